"""Memory that a process frees stays with it: glibc gives nothing back to the kernel, and takes it in huge pages.

A training step allocates and frees the same hundreds of MiB, in pieces that glibc by itself maps anew each time: the
kernel then clears every page again. The settings are read when a process starts, so a process that lacks them starts
itself once more. No number that it computes changes.
"""

import os
import platform
import sys

VARIABLE = "GLIBC_TUNABLES"
SETTINGS = {
    "glibc.malloc.hugetlb": "1",  # transparent huge pages
    "glibc.malloc.mmap_max": "0",  # large pieces come from the heap too
    "glibc.malloc.trim_threshold": "100000000000",  # bytes at the heap's end that are kept
    "glibc.malloc.top_pad": "268435456",  # bytes by which the heap grows at least; untouched ones cost nothing
}


def with_allocator_retention(given: str) -> str:
    """Add the settings to a value of GLIBC_TUNABLES; what somebody set already stays."""
    theirs = dict(setting.partition("=")[::2] for setting in given.split(":") if setting)
    return ":".join(f"{name}={value}" for name, value in (SETTINGS | theirs).items())


def keeps_memory() -> bool:
    """Say whether this process was started with the settings."""
    given = os.environ.get(VARIABLE, "")
    return given == with_allocator_retention(given) and _is_glibc()


def keep_memory() -> None:
    """Start this process once more with the settings, unless it has them or its C library is another than glibc."""
    if not keeps_memory() and _is_glibc():
        wanted = with_allocator_retention(os.environ.get(VARIABLE, ""))
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | {VARIABLE: wanted})


def _is_glibc() -> bool:
    return platform.libc_ver()[0] == "glibc"
