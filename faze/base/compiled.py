"""The C kernels: setup.py compiles them when faze is installed, and `library` loads them.

Each kernel is compiled to plain shared libraries next to its C file: one for any processor and, on x86-64, one for each
of the higher `LEVELS`, so that different machines can share an installation. The name of a library contains a hash of
its source and flags: after a change to either, the old library is not loaded. Standard library only: setup.py imports
this.
"""

import ctypes
import functools
import hashlib
import multiprocessing
import platform
import sys
import sysconfig
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
# -fno-wrapv undoes a flag that Python adds to extensions.
_FLAGS = ("-std=gnu11", "-O3", "-g0", "-fno-wrapv", "-fno-math-errno", "-fno-trapping-math")
# Sums may be reordered, as vectors need; NaN and infinity keep their meaning.
_REORDERED = (*_FLAGS, "-fno-signed-zeros", "-fassociative-math")
KERNELS = {  # path in the package: flags
    "fewshot/kernel.c": (*_REORDERED, "-fno-tree-slp-vectorize"),  # same rounding in every function
    "model/inference.c": _REORDERED,
    "data/synthetic/kernel.c": (*_FLAGS, "-ffp-contract=off"),  # whether a ray meets the head must round as in numpy
}
LEVELS: dict[int, tuple[str, ...]] = {0: ()}  # number of an x86-64 level, or 0: flags
if platform.machine() == "x86_64":
    LEVELS |= {number: (f"-march=x86-64-v{number}", "-mprefer-vector-width=512") for number in (3, 4)}


def library_name(kernel: str, level: int) -> str:
    """Return the name, without suffix, of the library for one of `KERNELS` at one of `LEVELS`."""
    identity = repr((KERNELS[kernel], LEVELS[level])).encode() + (PACKAGE / kernel).read_bytes()
    return f"_{Path(kernel).stem}_v{level}_{hashlib.sha256(identity).hexdigest()[:12]}"


@functools.cache
def library(kernel: str, otherwise: str) -> ctypes.CDLL | None:
    """Load a compiled kernel; calls to its functions release Python's global interpreter lock.

    Args:
        kernel: path of the C file in the package, from `KERNELS`.
        otherwise: description of what is used without it.

    Returns:
        The library for the highest level that this processor supports. None if there is none, after a one-line message
        on stderr, which worker processes do not repeat.
    """
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    paths = {level: (PACKAGE / kernel).with_name(library_name(kernel, level) + suffix) for level in LEVELS}
    fault = f"faze/{kernel} is not compiled"
    remedy = "install a C compiler and then reinstall faze (make, or pip install --no-build-isolation --editable .)"
    if paths[0].exists():
        try:
            supported = ctypes.CDLL(str(paths[0])).level()
            best = max(level for level in LEVELS if level <= supported and paths[level].exists())
            return ctypes.CDLL(str(paths[best]))
        except OSError as error:  # a file system that is mounted with noexec, another libc, or an incomplete copy
            fault = f"{error}"
            remedy = "install faze on a file system that is mounted without noexec, or reinstall it"
    if multiprocessing.parent_process() is None:
        print(f"{fault}: {otherwise}. To use the kernel, {remedy}.", file=sys.stderr)
    return None


def processor_features() -> str:
    """Describe the processor features by which numpy and OpenCV choose their code."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
