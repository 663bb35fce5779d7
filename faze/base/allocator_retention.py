"""Allocator retention: glibc keeps freed memory, in huge pages, instead of returning it to the kernel.

A training step allocates and frees the same hundreds of MiB. By default, glibc maps that memory again in every
step, and the kernel clears every page. Glibc reads its settings when a process starts, so a process without them
restarts itself. Results do not change.
"""

import os
import platform
import sys

VARIABLE = "GLIBC_TUNABLES"
SETTINGS = {
    "glibc.malloc.hugetlb": "1",  # transparent huge pages
    "glibc.malloc.mmap_max": "0",  # take large allocations from the heap too
    "glibc.malloc.trim_threshold": "100000000000",  # bytes at the heap's end that are kept
    "glibc.malloc.top_pad": "268435456",  # bytes by which the heap grows at least; untouched pages cost nothing
}


def with_allocator_retention(given: str) -> str:
    """Add the settings to a value of GLIBC_TUNABLES; settings that it already contains are kept."""
    theirs = dict(setting.partition("=")[::2] for setting in given.split(":") if setting)
    return ":".join(f"{name}={value}" for name, value in (SETTINGS | theirs).items())


def keeps_memory() -> bool:
    """Return whether this process was started with these settings."""
    given = os.environ.get(VARIABLE, "")
    return given == with_allocator_retention(given) and _is_glibc()


def keep_memory() -> None:
    """Restart this process with the settings, unless it has them or its C library is not glibc."""
    if not keeps_memory() and _is_glibc():
        wanted = with_allocator_retention(os.environ.get(VARIABLE, ""))
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | {VARIABLE: wanted})


def _is_glibc() -> bool:
    return platform.libc_ver()[0] == "glibc"
