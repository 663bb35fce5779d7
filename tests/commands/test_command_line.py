"""The command line: a function's signature is its options, and an error ends it with one sentence."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
from stage_runs import ROOT, call_faze, write_config

from faze.__main__ import COMMANDS, STAGES, parse
from faze.base.errors import UserError
from faze.base.machine import usable_cores
from faze.config.stage_config import Resolved
from faze.stages import train


def example(
    published: Path,
    *,
    config: Resolved,
    inputs: list[Path] = (),
    kind: Literal["a", "b"] = "a",
    scale: float | None = None,
    quick_run: bool = False,
    threads: int,
) -> None:
    """Do something.

    Args:
        kind: one of two
            kinds
    """


def test_a_signature_is_a_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = str(write_config(tmp_path, "encode", {"encode": {"batch": 7}}))
    found = parse(example, "faze example", ["p.pt", "--config", own, "--inputs", "x", "y", "--quick-run"])
    assert found.pop("config").encode.batch == 7
    assert found == {
        "published": Path("p.pt"),
        "inputs": [Path("x"), Path("y")],
        "kind": "a",
        "scale": None,
        "quick_run": True,
        "threads": usable_cores(),
    }
    assert parse(example, "", ["p", "--config", own, "--scale", "2", "--threads", "3"])["scale"] == 2.0
    for wrong in (["p"], ["p", "--config", own, "--kind", "c"], ["p", "--config", own, "--scale", "x"]):
        with pytest.raises(SystemExit, match="2"):
            parse(example, "", wrong)
    with pytest.raises(SystemExit, match="0"):
        parse(example, "", ["--help"])
    assert "one of two kinds" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", [*STAGES, *COMMANDS])
def test_every_stage_and_command_shows_its_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        call_faze(name, "--help")
    assert f"usage: faze {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (UserError("mine.yaml: wrong, correct it"), "mine.yaml: wrong, correct it"),
        (FileNotFoundError(2, "No such file or directory", "x.h5"), "x.h5: No such file or directory"),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
    ],
)
def test_what_the_user_can_correct_is_one_sentence(
    error: Exception, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def main(*, config: Resolved, out: Path) -> None:
        raise error

    monkeypatch.setattr(train, "main", main)
    words = ["train", "--config", write_config(tmp_path, "train"), "--out", tmp_path / "out"]
    assert call_faze(*words) == 1
    assert capsys.readouterr().err == f"faze train: {sentence}\n"


def test_a_command_that_does_not_exist_is_refused_with_a_similar_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert call_faze("prepocess") == 2
    assert capsys.readouterr().err == "faze prepocess: no such command; did you mean preprocess?\n"


def test_a_package_that_is_not_installed_is_one_sentence(tmp_path: Path) -> None:
    """This is the state after `pip install faze` without extras."""
    program = "import sys; sys.modules['pandas'] = None; from faze.__main__ import main; sys.exit(main())"
    start = [sys.executable, "-c", program, "evaluate", "--config", "x.yaml", "--results", "x", "--out", "y"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    answer = subprocess.run(start, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert answer.stderr == "faze evaluate: pandas is missing: run pip install -e '.[workflow,onnx]' in faze's folder\n"
    assert answer.returncode == 1
