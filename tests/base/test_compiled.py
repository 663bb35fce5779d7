"""The compiled C kernels: how they are built, found and identified."""

import ctypes
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from faze.native.compiled import KERNELS, LEVELS, library_name

ROOT = Path(__file__).resolve().parents[2]
LOADED = """
from faze.fewshot.kernel import kernel_for
from faze.fewshot.mlp import random_weights
from faze.native.compiled import library
print(type(kernel_for(random_weights(1, 6, 64, 0), "selu")).__name__, library("fewshot/kernel.c")._name)
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the sources that a build needs, without compiled libraries."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "faze", folder / "faze", ignore=shutil.ignore_patterns("__pycache__", "_*.so"))
    for name in ("setup.py", "pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


def build(checkout: Path, **environment: str) -> set[Path]:
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    subprocess.run(command, cwd=checkout, env=os.environ | environment, check=True, capture_output=True, timeout=300)
    return {path.relative_to(checkout) for path in checkout.rglob("_*.so") if "build" not in path.parts}


def test_without_a_compiler_the_installation_succeeds(checkout):
    assert build(checkout, CC="no-such-compiler") == set()


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_each_kernel_is_built_for_each_level_under_the_name_that_is_loaded(checkout):
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    names = {(Path("faze") / k).with_name(library_name(k, level) + suffix) for k in KERNELS for level in LEVELS}
    assert build(checkout) == names
    command = [sys.executable, "-c", LOADED]
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    done = subprocess.run(command, cwd=checkout, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.startswith("CompiledKernel") and done.stderr == ""
    any_processor = next(checkout / name for name in names if "_v0_" in name.name)
    best = max(level for level in LEVELS if level <= ctypes.CDLL(str(any_processor)).level())
    assert f"_v{best}_" in done.stdout
