"""The built wheel works outside the checkout: it contains every data file, and commands find the defaults."""

import ctypes
import itertools
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from faze.native.compiled import KERNELS, LEVELS, library_name

ROOT = Path(__file__).resolve().parents[2]
LOADED = "from faze.native.compiled import KERNELS, library; print(*(library(kernel)._name for kernel in KERNELS))"
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build from a copy of the sources, since setuptools creates folders beside the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("faze", "config"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "_*.so")
        shutil.copytree(ROOT / name, folder / "project" / name, symlinks=True, ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "LICENSE"):
        shutil.copy(ROOT / name, folder / "project")
    build = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder)]
    subprocess.run([*build, str(folder / "project")], check=True, timeout=120)
    (built,) = folder.glob("faze-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    target = wheel.parent / "installed"
    install = [*PIP, "install", "--no-deps", "--no-index", "--target", str(target), str(wheel)]
    subprocess.run(install, check=True, timeout=120)
    return target


def test_every_data_file_is_in_the_wheel(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    data = {path.relative_to(ROOT).as_posix() for path in (ROOT / "faze").rglob("*") if path.is_file()}
    data = {name for name in data if not name.endswith((".py", ".pyc", ".so")) and ".egg-info" not in name}
    assert {Path(name).suffix for name in data} >= {".c", ".css", ".j2", ".csv", ".yaml"}
    assert data <= names, "name them under tool.setuptools.package-data"


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_every_kernel_is_compiled_in_the_wheel(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for kernel, level in itertools.product(KERNELS, LEVELS):
        library = f"faze/{Path(kernel).with_name(library_name(kernel, level))}."
        assert any(name.startswith(library) for name in names), library


def run(installed: Path, empty: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in an empty folder, with the installed wheel and this environment's dependencies."""
    environment = os.environ | {"PYTHONPATH": str(installed)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True, timeout=120)


def test_the_wheel_itself_is_run_with_its_own_defaults_and_weights(installed: Path, tmp_path: Path) -> None:
    program = "import faze.config.validation as v, faze.weights as w; print(v.DEFAULTS, w.network_path('shipped'))"
    defaults, network = map(Path, run(installed, tmp_path, "-c", program).stdout.split())
    assert network.is_file() and all(path.is_relative_to(installed) for path in (defaults, network))
    assert defaults.read_bytes() == (ROOT / "config" / "config.yaml").read_bytes()


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_compiled_kernels_are_loaded(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "-c", LOADED)
    supported = ctypes.CDLL(str(next(installed.glob("faze/fewshot/_kernel_v0_*")))).level()
    best = max(level for level in LEVELS if level <= supported)
    assert done.stdout.count(f"_v{best}_") == len(KERNELS) and done.stderr == ""


def test_commands_find_the_defaults_from_any_folder(installed: Path, tmp_path: Path) -> None:
    """The command can detect this error only after it has read the defaults."""
    answer = run(installed, tmp_path, "-m", "faze", "profile", "--tier", "ampp")
    assert answer.returncode == 1 and answer.stderr.count("\n") == 1
    assert "ampp is not defined under tiers; did you mean amp?" in answer.stderr
