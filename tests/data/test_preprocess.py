"""The stage: from raw folders to strips, equal for any number of processes; bad frames and files are reported."""

import csv
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import cv2
import numpy as np
import pytest
import raw_data
from data_sets import entries
from one_frame import normalize_pose, warp_fused

from faze.__main__ import main
from faze.config.parameters import NormalizedCamera
from faze.config.stage_config import resolve, to_lines
from faze.config.validation import read_config
from faze.data.normalization.pose import INNER_EYE_CORNERS_6_MM
from faze.data.normalization.warp import warp_two_step
from faze.data.store.strips import StripStore

ROOT = Path(__file__).resolve().parents[2]
CAMERA = NormalizedCamera(focal_length_px=1300, distance_mm=600, width_px=256, height_px=64)


def write_config(
    folder: Path, stage: str, dataset: str = "", entry: Mapping[str, str] | None = None, **changes: dict
) -> Path:
    """Write the resolved config of a stage; `entry` contains changed values of the data set's entry."""
    datasets = {"datasets": entries(**{dataset: entry or {}})}
    config = read_config(changes={"preprocess": changes.get("preprocess", {}) | datasets})
    synthetic = config.synthetic.model_copy(update=changes.get("synthetic", {}))  # too small for few-shot learning
    config = config.model_copy(update={"synthetic": synthetic})
    path = folder / f"{stage}.config.yaml"
    path.write_text("\n".join(to_lines(resolve(config, stage, dataset=dataset))))
    return path


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Return a function that runs the stage on tmp_path/raw and returns the exit code."""

    def run(dataset: str, threads: int = 1, entry: Mapping[str, str] | None = None, **changes: str) -> int:
        resolved = write_config(tmp_path, "preprocess", dataset, entry, preprocess=changes)
        arguments = ["--raw", tmp_path / "raw", "--threads", threads]
        if dataset == "gazecapture":
            arguments += ["--supplementary", tmp_path / "supplementary.h5"]
        arguments += ["--out", tmp_path / "strips.h5", "--rejects", tmp_path / "rejects.csv"]
        monkeypatch.setattr(sys, "argv", list(map(str, ["faze", "preprocess", "--config", resolved, *arguments])))
        return main()

    return run


def read_rejects(folder: Path) -> list[dict[str, str]]:
    with (folder / "rejects.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("compatibility", ["none", "two_step"])
def test_mpiifacegaze_becomes_strips(tmp_path: Path, run: Callable, compatibility: str) -> None:
    raw_data.write_mpiifacegaze(tmp_path / "raw")
    assert run("mpiigaze", compatibility=compatibility) == 0
    assert read_rejects(tmp_path) == []
    pose = normalize_pose(raw_data.ROTATION_VECTOR, raw_data.TRANSLATION_MM, INNER_EYE_CORNERS_6_MM, raw_data.TARGET_MM)
    camera = (raw_data.CAMERA_MATRIX, raw_data.DISTORTION, pose, CAMERA)
    with StripStore(tmp_path / "strips.h5") as strips:
        assert (strips.dataset, strips.persons("test")) == ("mpiigaze", ["p00", "p01"])
        assert strips.file_names("p01") == [f"p01/day01/000{i}.jpg" for i in range(3)]
        np.testing.assert_allclose(strips.labels("p01"), np.tile(pose.labels, (3, 1)), atol=1e-6)
        for i in range(3):
            frame = cv2.imread(str(tmp_path / "raw" / strips.file_names("p01")[i]))
            two_step = warp_two_step(frame, *camera, undistorted="recentred")
            wanted = warp_fused(frame, *camera) if compatibility == "none" else two_step
            np.testing.assert_array_equal(strips.pixels("p01", i), wanted)


def test_gazecapture_becomes_strips_by_split(tmp_path: Path, run: Callable) -> None:
    raw_data.write_gazecapture(tmp_path / "raw", tmp_path / "supplementary.h5", splits=("train", "val", "test"))
    assert run("gazecapture", threads=2) == 0
    with StripStore(tmp_path / "strips.h5") as strips:
        splits = {split: strips.persons(split) for split in ("train", "val", "test")}
        assert splits == {"train": ["00002"], "val": ["00003"], "test": ["00004"]}
        assert [strips.count(person) for person in strips.persons()] == [3, 3, 3]
        for person in strips.persons():
            assert strips.file_names(person) == [f"{person}/frames/0000{i}.jpg" for i in range(3)]
            assert set(strips.label_sources(person)) == {"supplementary"}


def splits_of(folder: Path) -> dict[str, str]:
    with StripStore(folder / "strips.h5") as strips:
        return {person: strips.split(person) for person in strips.persons()}


@pytest.mark.parametrize(
    ("listed", "splits"),
    [
        ({"test": ["00002"], "train": ["00003"]}, ["test", "train", "test"]),  # 00004 states test
        ({"val": ["00004"]}, ["train", "val", "val"]),
    ],
)
def test_splits_of_gazecapture_can_be_changed(
    tmp_path: Path, run: Callable, listed: dict[str, list[str]], splits: list[str]
) -> None:
    raw_data.write_gazecapture(tmp_path / "raw", tmp_path / "supplementary.h5", splits=("train", "val", "test"))
    path = tmp_path / "splits.json"
    path.write_text(json.dumps(listed))
    assert run("gazecapture", entry={"splits": str(path)}) == 0
    assert splits_of(tmp_path) == dict(zip(("00002", "00003", "00004"), splits, strict=True))
    assert read_rejects(tmp_path) == []


def test_any_number_of_processes_writes_the_same_bytes(tmp_path: Path, run: Callable) -> None:
    raw_data.write_mpiifacegaze(tmp_path / "raw", people=4, frames=2)
    (tmp_path / "raw" / "p02" / "day01" / "0001.jpg").unlink()
    written = []
    for threads in (1, 3):
        assert run("mpiigaze", threads=threads) == 0
        written.append([(tmp_path / name).read_bytes() for name in ("strips.h5", "rejects.csv")])
    assert written[0] == written[1]


def test_bad_frames_are_skipped_and_listed(tmp_path: Path, run: Callable) -> None:
    raw_data.write_mpiifacegaze(tmp_path / "raw", people=3, frames=5)
    day = tmp_path / "raw" / "p01" / "day01"
    whole = (day / "0000.jpg").read_bytes()
    (day / "0000.jpg").write_bytes(whole[: len(whole) // 2])
    (day / "0001.jpg").write_bytes(b"")
    (day / "0002.jpg").unlink()
    with (tmp_path / "raw" / "p01" / "p01.txt").open("a") as file:
        file.write(raw_data.mpiifacegaze_line("day01/0005.jpg", rotation_vector=np.full(3, np.nan)) + "\n")
        file.write(raw_data.mpiifacegaze_line("day01/0006.jpg", target_mm=np.zeros(3)) + "\n")
        file.write(raw_data.mpiifacegaze_line("../../x.jpg") + "\n")
    (tmp_path / "raw" / "p02" / "p02.txt").write_text("")
    assert run("mpiigaze", threads=2) == 0
    assert [(r["person"], r["file_name"], r["reason"]) for r in read_rejects(tmp_path)] == [
        ("p01", "p01/day01/0000.jpg", "truncated JPEG"),
        ("p01", "p01/day01/0001.jpg", "empty file"),
        ("p01", "p01/day01/0002.jpg", "cannot read the file: No such file or directory"),
        ("p01", "p01/day01/0005.jpg", "head pose is not finite"),
        ("p01", "p01/day01/0006.jpg", "gaze target is (0, 0, 0), which marks a missing one"),
        ("p01", "p01/../../x.jpg", "path leads out of the data folder"),
        ("p02", "", "no annotated frame"),
    ]
    with StripStore(tmp_path / "strips.h5") as strips:
        assert strips.persons() == ["p00", "p01"]
        assert strips.file_names("p01") == ["p01/day01/0003.jpg", "p01/day01/0004.jpg"]
        assert strips.frame_index("p01").tolist() == [3, 4]
        pose = normalize_pose(
            raw_data.ROTATION_VECTOR, raw_data.TRANSLATION_MM, INNER_EYE_CORNERS_6_MM, raw_data.TARGET_MM
        )
        for row, name in enumerate(("0003.jpg", "0004.jpg")):
            wanted = warp_fused(cv2.imread(str(day / name)), raw_data.CAMERA_MATRIX, raw_data.DISTORTION, pose, CAMERA)
            np.testing.assert_array_equal(strips.pixels("p01", row), wanted)


def test_nothing_usable_is_an_error_with_the_reasons_and_leaves_no_file(
    tmp_path: Path, run: Callable, capsys: pytest.CaptureFixture
) -> None:
    raw_data.write_mpiifacegaze(tmp_path / "raw", people=2, frames=2)
    for frame in (tmp_path / "raw").glob("*/*/*.jpg"):
        frame.write_bytes(b"")
    assert run("mpiigaze") == 1
    assert "no frame is usable: empty file (4 times)" in capsys.readouterr().err
    assert not [path for path in tmp_path.iterdir() if path.suffix in (".h5", ".csv")]


def test_a_person_with_a_wrong_annotation_is_listed_and_the_others_go_on(tmp_path: Path, run: Callable) -> None:
    raw_data.write_mpiifacegaze(tmp_path / "raw")
    with (tmp_path / "raw" / "p01" / "p01.txt").open("a") as file:
        file.write("day01/0000.jpg 1 2 3\n")
    assert run("mpiigaze") == 0
    (reject,) = read_rejects(tmp_path)
    assert (reject["person"], reject["file_name"]) == ("p01", "")
    assert reject["reason"].endswith("p01.txt:4: 4 columns, not the 28 of MPIIFaceGaze")
    with StripStore(tmp_path / "strips.h5") as strips:
        assert strips.persons() == ["p00"]
