"""The stage writes complete outputs or none, and the same bytes for any number of processes."""

import hashlib
import resource
import sys
from pathlib import Path

import h5py
import pytest
from stage_runs import defaults, write_config

from faze.__main__ import main
from faze.data.synthetic import layouts

PEOPLE = ("laptop_people", "phone_train_people", "phone_val_people", "phone_test_people")
TINY = dict.fromkeys(PEOPLE, 1) | {"frames_per_person": 3, "phone_train_frames": None}
OUTPUTS = {"laptop": "", "phone": "", "laptop-supplementary": ".h5", "phone-supplementary": ".h5"}


def run(folder: Path, threads: int, monkeypatch: pytest.MonkeyPatch, **changes: object) -> int:
    folder.mkdir()
    config = write_config(folder, "synthesise", {"synthetic": TINY | changes}, config=defaults())
    arguments = ["--config", str(config), "--threads", str(threads)]
    for name, end in (OUTPUTS | {"truth": ".h5"}).items():
        arguments += [f"--{name}", f"{folder}/raw/{name}{end}"]
    monkeypatch.setattr(sys, "argv", ["faze", "synthesise", *arguments])
    return main()


def digests(folder: Path) -> dict[str, str]:
    files = sorted(file for file in (folder / "raw").rglob("*") if file.is_file() and not file.name.endswith(".lock"))
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_bytes_do_not_depend_on_the_number_of_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(tmp_path / "one", 1, monkeypatch) == 0
    assert run(tmp_path / "two", 2, monkeypatch) == 0
    one = digests(tmp_path / "one")
    assert one == digests(tmp_path / "two")
    with h5py.File(tmp_path / "one/raw/truth.h5") as truth:
        assert sorted(truth) == ["00001", "60001", "80001", "p00"]
        for person, known in truth.items():
            data_set = "laptop" if person == "p00" else "phone"
            with h5py.File(tmp_path / f"one/raw/{data_set}-supplementary.h5") as file:
                names = file[person]["file_name"][()].tolist()
                assert file[person]["distortion_parameters"].shape == (3, 5)
            assert names == known["file_name"][()].tolist()
            assert all(f"raw/{data_set}/{name.decode()}" in one for name in names)
            assert known["labels"].shape == (3, 4) and known["optical_axes"].shape == (3, 2, 3)


def refuse(*_: object) -> None:
    raise OSError("no space left on device")


@pytest.mark.parametrize(("place", "sentence"), [("frames", "File too large"), ("truth", "no space left")])
def test_a_stage_that_fails_says_why_and_leaves_nothing(place, sentence, tmp_path, monkeypatch, capsys) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    if place == "frames":
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))  # bytes: only a laptop frame is larger
    else:
        monkeypatch.setattr(layouts, "truth", refuse)
    try:
        assert run(tmp_path / "run", 1, monkeypatch) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    errors = capsys.readouterr().err
    assert sentence in errors and "Traceback" not in errors
    left = {file.name for file in (tmp_path / "run/raw").iterdir() if not file.name.endswith(".lock")}
    assert left <= {"laptop-supplementary.h5", "phone-supplementary.h5"}


def test_without_the_compiled_kernel_one_sentence_says_how_to_get_it(
    tmp_path: Path, without_kernels: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "run", 1, monkeypatch) == 1
    (sentence,) = capsys.readouterr().err.splitlines()
    assert "C compiler" in sentence and "reinstall" in sentence
    assert not (tmp_path / "run/raw/phone").exists()
