"""The C kernels: setup.py compiles them when faze is installed, and `library` loads them.

Each kernel is compiled to plain shared libraries next to its C file: one for any processor and, on x86-64, one for each
of the higher `LEVELS`, so that different machines can share an installation. A library's name contains a hash of its
source and flags. This module uses only the standard library, because setup.py imports it.
"""

import ctypes
import functools
import hashlib
import platform
import sysconfig
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
# -fno-wrapv undoes a flag that Python adds to extensions.
_FLAGS = ("-std=gnu11", "-O3", "-g0", "-fno-wrapv", "-fno-math-errno", "-fno-trapping-math")
# Sums may be reordered, which vectorisation requires; NaN and infinity keep their meaning.
_REORDERED = (*_FLAGS, "-fno-signed-zeros", "-fassociative-math")
KERNELS = {  # path in the package -> flags
    "fewshot/kernel.c": (*_REORDERED, "-fno-tree-slp-vectorize"),  # same rounding in every function
    "data/synthetic/kernel.c": (*_FLAGS, "-ffp-contract=off"),  # rounding decides whether a ray meets the head
}
LEVELS: dict[int, tuple[str, ...]] = {0: ()}  # x86-64 level (0: any processor) -> flags
if platform.machine() == "x86_64":
    LEVELS |= {number: (f"-march=x86-64-v{number}", "-mprefer-vector-width=512") for number in (3, 4)}


def library_name(kernel: str, level: int) -> str:
    """Return the name, without its suffix, of the library for one of `KERNELS` at one of `LEVELS`."""
    identity = repr((KERNELS[kernel], LEVELS[level])).encode() + (PACKAGE / kernel).read_bytes()
    return f"_{Path(kernel).stem}_v{level}_{hashlib.sha256(identity).hexdigest()[:12]}"


@functools.cache
def library(kernel: str) -> ctypes.CDLL | None:
    """Load one of `KERNELS` for the highest level that this processor supports; return None if it is not compiled."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    paths = {level: (PACKAGE / kernel).with_name(library_name(kernel, level) + suffix) for level in LEVELS}
    if not paths[0].exists():
        return None
    supported = ctypes.CDLL(str(paths[0])).level()
    return ctypes.CDLL(str(paths[max(level for level in LEVELS if level <= supported and paths[level].exists())]))
