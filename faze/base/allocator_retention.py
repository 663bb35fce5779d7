"""Make glibc keep the memory that this process frees, and allocate it in huge pages.

A training step allocates and frees the same hundreds of MiB each time. By default glibc maps them again, and the kernel
clears every page. The settings are read when a process starts, so a process without them restarts itself. They change
no number that it computes.
"""

import os
import platform
import sys

VARIABLE = "GLIBC_TUNABLES"
SETTINGS = {
    "glibc.malloc.hugetlb": "1",  # transparent huge pages
    "glibc.malloc.mmap_max": "0",  # allocate large blocks from the heap too
    "glibc.malloc.trim_threshold": "100000000000",  # free bytes at the end of the heap that are kept
    "glibc.malloc.top_pad": "268435456",  # bytes by which the heap grows at least; untouched ones cost nothing
}


def with_allocator_retention(given: str) -> str:
    """Add the settings to a value of GLIBC_TUNABLES, except those that it already contains."""
    theirs = dict(setting.partition("=")[::2] for setting in given.split(":") if setting)
    return ":".join(f"{name}={value}" for name, value in (SETTINGS | theirs).items())


def keeps_memory() -> bool:
    """Return whether this process was started with the settings and its C library is glibc."""
    given = os.environ.get(VARIABLE, "")
    return given == with_allocator_retention(given) and platform.libc_ver()[0] == "glibc"


def keep_memory() -> None:
    """Restart this process with the settings, unless it has them or its C library is not glibc."""
    if not keeps_memory() and platform.libc_ver()[0] == "glibc":
        wanted = with_allocator_retention(os.environ.get(VARIABLE, ""))
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | {VARIABLE: wanted})
