"""Allocator retention: glibc keeps freed memory, in huge pages, instead of returning it to the kernel.

A training step allocates and frees the same hundreds of MiB. By default, glibc maps that memory again in every step,
and the kernel clears every page. Glibc reads its settings when a process starts, so a process without them restarts
itself. Results do not change.
"""

import os
import platform
import sys

VARIABLE = "GLIBC_TUNABLES"
SETTINGS = {
    "glibc.malloc.hugetlb": "1",  # transparent huge pages
    "glibc.malloc.mmap_max": "0",  # take large allocations from the heap too
    "glibc.malloc.trim_threshold": "100000000000",  # free bytes that are kept at the end of the heap
    "glibc.malloc.top_pad": "268435456",  # smallest growth of the heap in bytes; untouched pages cost nothing
}


def with_allocator_retention(given: str) -> str:
    """Add the settings to a value of GLIBC_TUNABLES, without overriding any that it already contains."""
    theirs = dict(setting.partition("=")[::2] for setting in given.split(":") if setting)
    return ":".join(f"{name}={value}" for name, value in (SETTINGS | theirs).items())


def keeps_memory() -> bool:
    """Return whether this process was started with these settings and uses glibc's allocator."""
    given = os.environ.get(VARIABLE, "").split(":")
    is_glibc = platform.libc_ver()[0] == "glibc" and not os.environ.get("LD_PRELOAD")
    return is_glibc and all(f"{name}={value}" in given for name, value in SETTINGS.items())


def keep_memory() -> None:
    """Restart this process with the settings, unless it already has them or its C library is not glibc."""
    given = os.environ.get(VARIABLE, "")
    if (wanted := with_allocator_retention(given)) != given and platform.libc_ver()[0] == "glibc":
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | {VARIABLE: wanted})
