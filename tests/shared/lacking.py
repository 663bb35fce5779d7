"""A folder on a file system that lacks features of ext4, for processes that a test starts (`lacking.c`)."""

import functools
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

EVERYTHING = "chmod link lock sync fallocate utime"
_BUILT = tempfile.TemporaryDirectory()  # removed when the tests end


def lacking(folder: Path, features: str = EVERYTHING, **others: str) -> dict[str, str]:
    """Return the variables of a process for which a folder lacks features; skip the test if it cannot be arranged."""
    return {"LD_PRELOAD": str(_library()), "FOREIGN": str(folder), "LACKING": features} | others


@functools.cache
def _library() -> Path:
    compiler, library = shutil.which("cc"), Path(_BUILT.name, "lacking.so")
    if not compiler or not sys.platform.startswith("linux"):
        pytest.skip("no C compiler, or not Linux")
    source = Path(__file__).with_suffix(".c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library
