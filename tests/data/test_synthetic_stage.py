"""The stage writes complete outputs or none, and the same bytes for any number of processes."""

import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from stage_runs import defaults, write_config
from truth import read_truth

from faze.__main__ import main
from faze.data.store.supplementary import read_supplementary
from faze.data.synthetic import people
from faze.stages import synthesise

PEOPLE = {
    "mpiigaze_people": 1,
    "gazecapture_train_people": 1,
    "gazecapture_val_people": 1,
    "gazecapture_test_people": 1,
    "frames_per_person": 3,
    "gazecapture_train_frames": None,
}
OUTPUTS = ("mpiifacegaze", "gazecapture", "mpiifacegaze_supplementary", "gazecapture_supplementary", "truth")


def run(folder: Path, threads: int, monkeypatch: pytest.MonkeyPatch, **changes: object) -> int:
    folder.mkdir()
    config = write_config(folder, "synthesise", {"synthetic": {**PEOPLE, **changes}}, config=defaults())
    outputs = [word for name in OUTPUTS for word in (f"--{name.replace('_', '-')}", str(path(folder, name)))]
    arguments = ["--config", str(config), "--threads", str(threads), *outputs]
    monkeypatch.setattr(sys, "argv", ["faze", "synthesise", *arguments])
    return main()


def path(folder: Path, name: str) -> Path:
    return folder / "raw" / (name if name in OUTPUTS[:2] else f"{name}.h5")


def digests(folder: Path) -> dict[str, str]:
    files = sorted(file for file in (folder / "raw").rglob("*") if file.is_file() and not file.name.endswith(".lock"))
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_bytes_do_not_depend_on_the_number_of_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(tmp_path / "one", 1, monkeypatch) == 0
    assert run(tmp_path / "two", 2, monkeypatch) == 0
    one = digests(tmp_path / "one")
    assert one == digests(tmp_path / "two")
    assert sum(name.endswith(".jpg") for name in one) == 12
    assert run(tmp_path / "other", 1, monkeypatch, seed=1) == 0
    assert not set(value for name, value in one.items() if name.endswith(".jpg")) & set(
        digests(tmp_path / "other").values()
    )


def test_every_output_is_there_and_parallel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(tmp_path / "run", 1, monkeypatch) == 0
    truth = read_truth(path(tmp_path / "run", "truth"))
    assert sorted(truth) == ["00001", "60001", "80001", "p00"]
    for person, known in truth.items():
        dataset = "mpiifacegaze" if person == "p00" else "gazecapture"
        annotation = read_supplementary(path(tmp_path / "run", f"{dataset}_supplementary"), person)
        assert annotation.file_names == [name.decode() for name in known["file_name"]]
        assert annotation.distortion_parameters.shape == (3, 5)
        assert all((path(tmp_path / "run", dataset) / name).is_file() for name in annotation.file_names)
        assert known["labels"].shape == (3, 4) and known["optical_axes"].shape == (3, 2, 3)


def refuse(*_: object) -> None:
    raise OSError("no space left on device")


def die(*_: object) -> None:
    os._exit(9)


@pytest.mark.parametrize(
    ("function", "failure", "sentence"),
    [
        ("people.write_person", refuse, "no space left"),
        ("people.write_person", die, "process was killed"),
        ("synthesise.write_truth", refuse, "no space left"),
    ],
)
def test_a_stage_that_fails_says_why_and_leaves_nothing(
    function: str,
    failure: Callable[..., None],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    module, name = function.split(".")
    monkeypatch.setattr({"people": people, "synthesise": synthesise}[module], name, failure)
    assert run(tmp_path / "run", 1, monkeypatch) == 1
    errors = capsys.readouterr().err
    assert sentence in errors and "Traceback" not in errors
    left = [file.name for file in (tmp_path / "run" / "raw").iterdir() if not file.name.endswith(".lock")]
    assert not set(left) & {"mpiifacegaze", "gazecapture", "truth.h5"}, left
    assert not any(name.startswith(".") for name in left), "temporary folders are cleared away"


def test_without_the_compiled_kernel_one_sentence_says_how_to_get_it(
    tmp_path: Path, without_kernels: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "run", 1, monkeypatch) == 1
    sentence = capsys.readouterr().err.splitlines()[-1]
    assert "C compiler" in sentence and "reinstall" in sentence
    assert not (tmp_path / "run/raw/gazecapture").exists()
