"""Each planted fault is listed once, with its reason, by every reader that finds it; every good frame is present.

Regression: a frame of the wrong size was accepted; a frame that was listed twice was kept; EXIF was ignored; one
person's damaged annotation ended the run; a name that is not UTF-8 could not be read.
"""

import contextlib
import csv
import shutil
import sys
from pathlib import Path

import fake_mediapipe
import numpy as np
import pytest
from data_sets import LAYOUTS
from manifests import write_people
from planted_faults import FAULTS, Planted, damage
from test_landmarks import exact_landmarks
from test_preprocess import write_config

from faze.__main__ import main
from faze.config.validation import read_config
from faze.data.landmarks.pose import VERTICES
from faze.data.normalization.images import read_image
from faze.data.normalization.pose import UnusableFrame
from faze.data.store.strips import StripStore
from faze.data.store.supplementary import read_supplementary

PEOPLE = ("mpiigaze_people", "gazecapture_train_people", "gazecapture_val_people", "gazecapture_test_people")
SYNTHETIC = read_config().synthetic.model_copy(
    update=dict.fromkeys(PEOPLE, 1) | {"frames_per_person": 15, "gazecapture_train_frames": None}
)


def run_preprocess(
    folder: Path, patch: pytest.MonkeyPatch, dataset: str, supplementary: Path | None, **changes: str
) -> int:
    config = write_config(folder, "preprocess", dataset, preprocess=changes)
    arguments = ["--config", config, "--raw", folder / LAYOUTS[dataset]]
    arguments += ["--out", folder / "strips.h5", "--rejects", folder / "rejects.csv"]
    arguments += ["--supplementary", supplementary] if supplementary else []
    patch.setattr(sys, "argv", ["faze", "preprocess", *map(str, arguments)])
    return main()


def read_rejects(folder: Path) -> dict[tuple[str, str], str]:
    """Return the reason for each person and file; each is listed once."""
    with (folder / "rejects.csv").open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        rows = [(row["person"], row["file_name"], row["reason"]) for row in csv.DictReader(file)]
    found = {(person, name): reason for person, name, reason in rows}
    assert len(found) == len(rows)
    return found


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    write_people(folder, SYNTHETIC)
    return folder


@pytest.fixture(scope="module")
def spoilt(sound: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Planted]]:
    """Plant all faults that a run survives."""
    folder = Path(shutil.copytree(sound, tmp_path_factory.mktemp("spoilt") / "copy"))
    return folder, damage(folder, [fault for fault in FAULTS if fault != "truncated_hdf5"])


def estimate(folder: Path, sound: Path, patch: pytest.MonkeyPatch) -> Path:
    """Run `faze landmarks` with a detector that knows the good and the damaged frames."""
    known = {}
    for person in ("00001", "60001", "80001"):
        true = read_supplementary(sound / "gazecapture_supplementary.h5", person)
        points = [(p + 0.5) for p in exact_landmarks(true)]
        for row, name in enumerate(true.file_names):
            height, width = read_image(sound / "gazecapture" / name).shape[:2]
            for path in {sound / "gazecapture" / name, folder / "gazecapture" / name}:
                with contextlib.suppress(UnusableFrame):
                    shares = points[row] / [width, height]
                    known[fake_mediapipe.key_of(read_image(path))] = np.column_stack([VERTICES, shares])
    package = folder / f"fake{len(list(folder.glob('fake*')))}"
    patch.syspath_prepend(fake_mediapipe.install(package, known))  # the processes of the pool import it again
    arguments = ["--raw", folder / "gazecapture", "--out", folder / "gazecapture_estimated.h5"]
    patch.setattr(sys, "argv", ["faze", "landmarks", *map(str, arguments)])
    assert main() == 0
    return folder / "gazecapture_estimated.h5"


READERS = (
    ("mpiigaze", "own"),
    ("mpiigaze", "supplementary"),
    ("gazecapture", "supplementary"),
    ("gazecapture", "estimated"),
)


@pytest.mark.parametrize(("dataset", "annotation"), READERS)
def test_every_fault_is_listed_once_and_every_good_frame_is_there(
    spoilt: tuple[Path, list[Planted]], sound: Path, monkeypatch: pytest.MonkeyPatch, dataset: str, annotation: str
) -> None:
    folder, faults = spoilt
    planted = {fault.fault: fault for fault in faults if fault.dataset == dataset}
    for each in (folder, sound):
        file = {"own": None, "supplementary": each / f"{LAYOUTS[dataset]}_supplementary.h5"}
        supplementary = file[annotation] if annotation in file else estimate(each, sound, monkeypatch)
        assert run_preprocess(each, monkeypatch, dataset, supplementary) == 0
    assert read_rejects(sound) == {}
    rejects = read_rejects(folder)
    matter = [f for f in planted.values() if f.consequence == "reject" and f.annotation in ("any", annotation)]
    assert set(rejects) == {(fault.person, fault.file_name) for fault in matter}
    assert [f for f in matter if f.reason not in rejects[f.person, f.file_name]] == []
    with StripStore(sound / "strips.h5") as good, StripStore(folder / "strips.h5") as found:
        first, renamed = good.persons()[0], FAULTS.index("non_utf8_name")
        for person in good.persons():
            names = good.file_names(person)
            if person == first:
                names[renamed] = planted["non_utf8_name"].file_name
            rejected = {name for (_, name), reason in rejects.items() if reason != "listed twice"}
            assert found.file_names(person) == [name for name in names if name not in rejected]
            for row, name in enumerate(found.file_names(person)):
                before = names.index(name)
                if annotation == "estimated" and before == FAULTS.index("wrong_size"):
                    continue  # the estimated intrinsics are of half the size, too
                np.testing.assert_array_equal(found.labels(person)[row], good.labels(person)[before])
                apart = np.abs(found.pixels(person, row).astype(int) - good.pixels(person, before)).mean()
                assert apart < (4 if name == planted["exif_rotated"].file_name else 1e-9), name  # compressed twice
        assert found.count(planted["person_with_one_sample"].person) == 1


def test_a_truncated_annotation_is_one_sentence(
    tmp_path: Path, sound: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    folder = Path(shutil.copytree(sound, tmp_path / "copy"))
    (folder / "strips.h5").unlink(missing_ok=True)
    for fault in damage(folder, ["truncated_hdf5"]):
        annotation = folder / f"{LAYOUTS[fault.dataset]}_supplementary.h5"
        assert run_preprocess(folder, monkeypatch, fault.dataset, annotation) == 1
        (sentence,) = capsys.readouterr().err.splitlines()
        assert fault.reason in sentence
    assert not (folder / "strips.h5").exists()
