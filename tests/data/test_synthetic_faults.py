"""Each planted fault is listed once, with its reason, by every reader that meets it; every good frame is there.

Seen red: a frame of the wrong size that is taken for good; a second listing of a frame that is kept; EXIF that is
ignored; one person's broken annotation that ends the run; a name that is not UTF-8 and cannot be read.
"""

import contextlib
import csv
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import fake_mediapipe
import numpy as np
import pytest
from test_landmarks import exact_landmarks

from faze.config.data_parameters import RAW, PlantedFault
from faze.config.stage_config import resolve, to_lines
from faze.config.yaml_files import read_yaml
from faze.data.landmarks import VERTICES
from faze.data.normalization.images import read_image
from faze.data.normalization.pose import UnusableFrame
from faze.data.store.strips import StripStore
from faze.data.store.supplementary import read_supplementary
from faze.stages import landmarks, preprocess, synthesise

FAULTS = list(get_args(PlantedFault))
PEOPLE = ("mpiigaze_people", "gazecapture_train_people", "gazecapture_val_people", "gazecapture_test_people")
FRAMES = 15


def write_raw(folder: Path, patch: pytest.MonkeyPatch, faults: list[str]) -> int:
    config = read_yaml(Path(__file__).parents[2] / "config" / "config.yaml")
    frames = {"frames_per_person": FRAMES, "gazecapture_train_frames": None}
    config["synthetic"] |= frames | {"faults": faults} | dict.fromkeys(PEOPLE, 1)
    (folder / "synthesise.yaml").write_text("\n".join(to_lines(resolve(config, "synthesise"))))
    arguments = ["--config", folder / "synthesise.yaml", "--threads", 1, "--truth", folder / "truth.h5"]
    for name in RAW.values():
        arguments += [f"--{name}", folder / name, f"--{name}-supplementary", folder / f"{name}_supplementary.h5"]
    patch.setattr(sys, "argv", ["synthesise", *map(str, arguments)])
    return synthesise.main()


def run_preprocess(
    folder: Path, patch: pytest.MonkeyPatch, dataset: str, supplementary: Path | None, **changes: str
) -> int:
    config = read_yaml(Path(__file__).parents[2] / "config" / "config.yaml")
    config["preprocess"] |= changes
    (folder / "preprocess.yaml").write_text("\n".join(to_lines(resolve(config, "preprocess"))))
    arguments = ["--config", folder / "preprocess.yaml", "--dataset", dataset, "--raw", folder / RAW[dataset]]
    arguments += ["--out", folder / "strips.h5", "--rejects", folder / "rejects.csv"]
    arguments += ["--supplementary", supplementary] if supplementary else []
    patch.setattr(sys, "argv", ["preprocess", *map(str, arguments)])
    return preprocess.main()


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    with pytest.MonkeyPatch.context() as patch:
        assert write_raw(folder, patch, []) == 0
    assert not (folder / "faults.csv").exists()
    return folder


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All faults that a run outlives."""
    folder = tmp_path_factory.mktemp("spoilt")
    with pytest.MonkeyPatch.context() as patch:
        assert write_raw(folder, patch, [fault for fault in FAULTS if fault != "truncated_hdf5"]) == 0
    return folder


def estimate(folder: Path, sound: Path, patch: pytest.MonkeyPatch) -> Path:
    """Run `faze landmarks` with a detector that knows the frames, as they are and as they are spoilt."""
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
    patch.syspath_prepend(fake_mediapipe.install(package, known))  # the processes of the pool import it anew
    arguments = ["--raw", folder / "gazecapture", "--out", folder / "gazecapture_estimated.h5"]
    patch.setattr(sys, "argv", ["landmarks", *map(str, arguments)])
    assert landmarks.main() == 0
    return folder / "gazecapture_estimated.h5"


READERS = [
    ("mpiigaze", "own"),
    ("mpiigaze", "supplementary"),
    ("gazecapture", "supplementary"),
    ("gazecapture", "estimated"),
]


@pytest.mark.parametrize(("dataset", "annotation"), READERS)
def test_every_fault_is_listed_once_and_every_good_frame_is_there(
    spoilt: Path, sound: Path, monkeypatch: pytest.MonkeyPatch, dataset: str, annotation: str
) -> None:
    def supplementary(folder: Path) -> Path | None:
        if annotation == "estimated":
            return estimate(folder, sound, monkeypatch)
        return folder / f"{RAW[dataset]}_supplementary.h5" if annotation == "supplementary" else None

    planted = [f for f in read_csv(spoilt / "faults.csv") if f["dataset"] == dataset]
    wanted = [f for f in planted if f["annotation"] in ("any", annotation) and f["consequence"] == "reject"]
    assert run_preprocess(spoilt, monkeypatch, dataset, supplementary(spoilt)) == 0
    listed = read_csv(spoilt / "rejects.csv")
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
    with StripStore(sound / "strips.h5") as good, StripStore(spoilt / "strips.h5") as found:
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


def test_all_faults_are_planted_and_described(spoilt: Path) -> None:
    planted = read_csv(spoilt / "faults.csv")
    assert {f["fault"] for f in planted} == set(FAULTS) - {"truncated_hdf5"}
    assert {f["consequence"] for f in planted} == {"reject", "none"}
    assert all(bool(f["reason"]) == (f["consequence"] == "reject") for f in planted)
    (name,) = (f["file_name"] for f in planted if f["fault"] == "non_utf8_name" and f["dataset"] == "gazecapture")
    assert os.fsencode(name).endswith(b"\xff\xe90011.jpg") and (spoilt / "gazecapture" / name).is_file()
    assert name in read_supplementary(spoilt / "gazecapture_supplementary.h5", "00001").file_names


def test_the_same_frame_is_spoilt_whatever_else_is(tmp_path: Path, spoilt: Path, monkeypatch: Callable) -> None:
    assert write_raw(tmp_path, monkeypatch, ["wrong_size"]) == 0
    assert read_csv(tmp_path / "faults.csv") == [
        f for f in read_csv(spoilt / "faults.csv") if f["fault"] == "wrong_size"
    ]


def test_a_truncated_annotation_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    assert write_raw(tmp_path, monkeypatch, ["truncated_hdf5"]) == 0
    planted = read_csv(tmp_path / "faults.csv")
    assert [(f["dataset"], f["consequence"]) for f in planted] == [("mpiigaze", "fatal"), ("gazecapture", "fatal")]
    capsys.readouterr()
    for fault in planted:
        annotation = tmp_path / f"{RAW[fault['dataset']]}_supplementary.h5"
        assert run_preprocess(tmp_path, monkeypatch, fault["dataset"], annotation) == 1
        (sentence,) = capsys.readouterr().err.splitlines()
        assert fault["reason"] in sentence
    assert not (tmp_path / "strips.h5").exists()


def test_too_few_frames_for_a_fault_each_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "FRAMES", 5)
    assert write_raw(tmp_path, monkeypatch, ["zero_bytes"]) == 1
    assert "synthetic.faults: need more than 13 synthetic.frames_per_person" in capsys.readouterr().err
    assert not (tmp_path / "gazecapture").exists()
