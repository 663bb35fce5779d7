"""Each planted fault is listed once, with its reason, by every reader that finds it; every good frame is present.

Regression: a frame of the wrong size was accepted; a frame that was listed twice was kept; EXIF was ignored; one
person's damaged annotation ended the run; a name that is not UTF-8 could not be read.
"""

import contextlib
import csv
import os
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


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        return list(csv.DictReader(file))


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


READERS = [
    ("mpiigaze", "own"),
    ("mpiigaze", "supplementary"),
    ("gazecapture", "supplementary"),
    ("gazecapture", "estimated"),
]


@pytest.mark.parametrize(("dataset", "annotation"), READERS)
def test_every_fault_is_listed_once_and_every_good_frame_is_there(
    spoilt: tuple, sound: Path, monkeypatch: pytest.MonkeyPatch, dataset: str, annotation: str
) -> None:
    def supplementary(folder: Path) -> Path | None:
        if annotation == "estimated":
            return estimate(folder, sound, monkeypatch)
        return folder / f"{LAYOUTS[dataset]}_supplementary.h5" if annotation == "supplementary" else None

    folder, planted = spoilt[0], [vars(fault) for fault in spoilt[1] if fault.dataset == dataset]
    wanted = [f for f in planted if f["annotation"] in ("any", annotation) and f["consequence"] == "reject"]
    assert run_preprocess(folder, monkeypatch, dataset, supplementary(folder)) == 0
    listed = read_csv(folder / "rejects.csv")
    assert sorted((r["person"], r["file_name"]) for r in listed) == sorted(
        (f["person"], f["file_name"]) for f in wanted
    )
    for fault in wanted:
        assert any(
            fault["reason"] in r["reason"] and all(r[key] == fault[key] for key in ("person", "file_name"))
            for r in listed
        ), fault

    assert run_preprocess(sound, monkeypatch, dataset, supplementary(sound)) == 0
    assert read_csv(sound / "rejects.csv") == []
    rejected = {r["file_name"] for r in listed if r["reason"] != "listed twice"}
    renamed = {f["file_name"]: f for f in planted if f["fault"] == "non_utf8_name"}
    with StripStore(sound / "strips.h5") as good, StripStore(folder / "strips.h5") as found:
        for person in good.persons():
            names, labels = good.file_names(person), good.labels(person)
            kept = found.file_names(person)
            assert [n for n in kept if n not in renamed] == [
                n for row, n in enumerate(names) if n not in rejected and (person != good.persons()[0] or row != 11)
            ]
            for row, name in enumerate(kept):
                before = names.index(name) if name in names else 11
                resized = annotation == "estimated" and before == FAULTS.index("wrong_size")
                np.testing.assert_allclose(found.labels(person)[row], labels[before], atol=1e-3 if resized else 0)
                if resized:
                    continue  # of half the size, and so are the intrinsics then
                apart = np.abs(found.pixels(person, row).astype(int) - good.pixels(person, before))
                exif = any(f["fault"] == "exif_rotated" and f["file_name"] == name for f in planted)
                assert apart.mean() < 4 if exif else not apart.any(), name  # turned back, but compressed a second time
        single = [f["person"] for f in planted if f["fault"] == "person_with_one_sample"]
        assert single and [found.count(person) for person in single] == [1]
        assert set(renamed) < set(found.file_names(good.persons()[0]))


def test_all_faults_are_planted_and_described(spoilt: tuple) -> None:
    folder, planted = spoilt
    assert {fault.fault for fault in planted} == set(FAULTS) - {"truncated_hdf5"}
    assert {fault.consequence for fault in planted} == {"reject", "none"}
    (name,) = (f.file_name for f in planted if f.fault == "non_utf8_name" and f.dataset == "gazecapture")
    assert os.fsencode(name).endswith(b"\xff\xe90011.jpg") and (folder / "gazecapture" / name).is_file()
    assert name in read_supplementary(folder / "gazecapture_supplementary.h5", "00001").file_names


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
