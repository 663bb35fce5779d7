"""Compile faze's C kernels, which faze.native.compiled lists. Everything else about the package is in pyproject.toml.

Without a C compiler the installation succeeds, but faze cannot render people.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup

sys.path.insert(0, str(Path(__file__).parent))

from faze.native.compiled import KERNELS, LEVELS, library_name  # noqa: E402

for variable in ("CC", "CXX", "LDSHARED"):  # setuptools would run an empty value as a program
    if not os.environ.get(variable):
        os.environ.pop(variable, None)


def extension(kernel: str, level: int) -> Extension:
    """Describe one library: a kernel compiled for one level of the processor architecture."""
    source = f"faze/{kernel}"
    return Extension(
        f"{source.rpartition('/')[0].replace('/', '.')}.{library_name(kernel, level)}",
        [source] if level else [source, "faze/native/level.c"],
        extra_compile_args=[*KERNELS[kernel], *LEVELS[level]],
        libraries=["m"],
        optional=True,
    )


setup(ext_modules=[extension(kernel, level) for kernel in KERNELS for level in LEVELS])
