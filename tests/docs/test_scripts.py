"""Every script starts. Regression: a script called a function that another package had renamed."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = [
    path
    for folder in ("benchmarks", "examples", "tests", "docs")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if not path.name.startswith("test_") and "argparse.ArgumentParser(" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_help(script: Path) -> None:
    done = subprocess.run([sys.executable, script, "--help"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "usage: " in done.stdout, done.stderr


def test_the_list_of_odd_sentences_runs() -> None:
    command = [sys.executable, ROOT / "tests/english.py", "README.md"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
