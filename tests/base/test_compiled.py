"""The compiled C kernels: how they are built, found and identified.

Regression: without a home directory, libraries were loaded from a temporary folder that any user could have filled.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from faze.base import compiled
from faze.base.compiled import KERNELS, LEVELS, library, library_name

ROOT = Path(__file__).resolve().parents[2]
LOADED = """
import torch
from faze.fewshot.kernel import kernel_for
from faze.fewshot.mlp import random_weights
print(type(kernel_for(random_weights(1, 6, 64, 0), "selu")).__name__)
print(open("/proc/self/maps").read())
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


def highest_level() -> int:
    """Return the highest of the levels that this processor supports, according to the kernel."""
    path = Path("/proc/cpuinfo")
    found = set(path.read_text(encoding="utf-8").split()) if path.exists() else set()
    if not {"avx2", "fma", "bmi2"} <= found:
        return 0
    return 4 if {"avx512vl", "avx512bw", "avx512dq", "avx512cd"} <= found else 3


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_each_kernel_is_built_for_each_level_under_the_name_that_is_loaded(checkout):
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    names = {(Path("faze") / k).with_name(library_name(k, level) + suffix) for k in KERNELS for level in LEVELS}
    assert build(checkout) == names
    command = [sys.executable, "-c", LOADED]
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    done = subprocess.run(command, cwd=checkout, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.startswith("CompiledKernel") and done.stderr == ""
    assert {level for level in LEVELS if f"/_kernel_v{level}_" in done.stdout} == {0, highest_level()}


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no /proc")
def test_no_library_comes_from_a_folder_that_others_can_write_to(tmp_path):
    """This also holds without a home directory, when caches are in the temporary folder."""
    environment = {name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"}
    environment |= {"HOME": "~", "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", LOADED]
    done = subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True, text=True, timeout=120)
    assert str(tmp_path) not in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_library_of_another_source_is_not_loaded(tmp_path, monkeypatch, capsys):
    kernel = "fewshot/kernel.c"
    (tmp_path / "fewshot").mkdir()
    (tmp_path / kernel).write_bytes((compiled.PACKAGE / kernel).read_bytes())
    for path in (compiled.PACKAGE / "fewshot").glob("_*.so"):
        shutil.copy(path, tmp_path / "fewshot")
    monkeypatch.setattr(compiled, "PACKAGE", tmp_path)
    library.cache_clear()
    if library(kernel, "skipped") is None:
        pytest.skip("kernel.c is not compiled")
    (tmp_path / kernel).write_text("/* changed */")
    library.cache_clear()
    capsys.readouterr()
    assert library(kernel, "torch is used") is None
    library.cache_clear()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "faze/fewshot/kernel.c is not compiled: torch is used. To use the kernel, install a C compiler"
    )
