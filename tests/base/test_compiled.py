"""The compiled C kernels: an installation without a compiler has none. tests/config/test_wheel.py builds them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_without_a_compiler_the_installation_succeeds(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "faze", tmp_path / "faze", ignore=shutil.ignore_patterns("__pycache__", "_*.so"))
    for name in ("setup.py", "pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    environment = os.environ | {"CC": "no-such-compiler"}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=300)
    assert not list(tmp_path.rglob("_*.so"))
