"""Readers: annotations become Frames; errors are reported, or listed frame by frame."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import raw_data

from faze.data.normalization.pose import INNER_EYE_CORNERS_6_MM, INNER_EYE_CORNERS_14_MM, UnusableFrame
from faze.data.readers import Frame, Reject, check_size
from faze.data.readers.gazecapture import GazeCapture
from faze.data.readers.mpiifacegaze import open_mpiifacegaze
from faze.data.store.supplementary import write_supplementary


@pytest.fixture
def mpiifacegaze(tmp_path: Path) -> Path:
    raw_data.write_mpiifacegaze(tmp_path / "mpiifacegaze")
    return tmp_path / "mpiifacegaze"


@pytest.fixture
def gazecapture(tmp_path: Path) -> Path:
    raw_data.write_gazecapture(tmp_path / "gazecapture", tmp_path / "gazecapture.h5")
    return tmp_path / "gazecapture"


def open_gazecapture(raw: Path) -> GazeCapture:
    return GazeCapture(raw, raw.with_suffix(".h5"))


def check_annotation(frame: Frame) -> None:
    np.testing.assert_allclose(frame.camera_matrix, raw_data.CAMERA_MATRIX)
    np.testing.assert_allclose(frame.distortion, raw_data.DISTORTION)
    np.testing.assert_allclose(frame.rotation_vector, raw_data.ROTATION_VECTOR)
    np.testing.assert_allclose(frame.translation_mm, raw_data.TRANSLATION_MM)
    np.testing.assert_allclose(frame.gaze_target_mm, raw_data.TARGET_MM)
    assert frame.image_path.is_file()


def test_mpiifacegaze(mpiifacegaze: Path) -> None:
    reader = open_mpiifacegaze(mpiifacegaze, None)
    assert reader.persons() == ["p00", "p01"]
    assert reader.count("p01") == 3
    frames = list(reader.entries("p01"))
    assert [f.file_name for f in frames] == [f"p01/day01/000{i}.jpg" for i in range(3)]
    for frame in frames:
        assert isinstance(frame, Frame)
        check_annotation(frame)
        assert (frame.person_id, frame.split) == ("p01", "")  # which the data set does not state
        assert (frame.label_source, frame.on_screen, frame.device) == ("annotated", None, "")
        np.testing.assert_array_equal(frame.inner_eye_corners_mm, INNER_EYE_CORNERS_6_MM)
    assert [f.frame_index for f in frames] == [0, 1, 2]
    lines = [
        raw_data.mpiifacegaze_line(f"day01/000{i}.jpg", np.array([i / 10, 0, 0.2]), np.array([i, 20.0, 30]))
        for i in (1, 2)
    ]
    (mpiifacegaze / "p01" / "p01.txt").write_text("\n".join(lines))
    for frame, i in zip(reader.entries("p01"), (1, 2), strict=True):  # each has the numbers of its own line
        assert (frame.file_name, frame.rotation_vector.tolist()) == (f"p01/day01/000{i}.jpg", [i / 10, 0, 0.2])
        assert frame.gaze_target_mm.tolist() == [i, 20, 30]


@pytest.mark.parametrize(
    ("name", "count"), [("p01.txt", 1), ("Calibration/Camera.mat", 3), ("Calibration/screenSize.mat", 3)]
)
def test_a_person_with_a_damaged_file_is_one_reject(mpiifacegaze: Path, name: str, count: int) -> None:
    (mpiifacegaze / "p01" / name).write_bytes(b"1 2 3")
    reader = open_mpiifacegaze(mpiifacegaze, None)
    (reject,) = reader.entries("p01")
    assert (reject.person_id, reject.file_name) == ("p01", "") and f"p01/{name}" in reject.reason
    assert reader.count("p01") == count
    assert all(isinstance(entry, Frame) for entry in reader.entries("p00"))


def test_a_folder_without_people_is_named(tmp_path: Path, gazecapture: Path) -> None:
    with pytest.raises(ValueError, match=f"{tmp_path}: .*p00"):
        open_mpiifacegaze(tmp_path, None)
    with pytest.raises(ValueError, match="gazecapture.h5.*00002"):
        GazeCapture(tmp_path, gazecapture.with_suffix(".h5"))
    with pytest.raises(ValueError, match="set `supplementary` of this data set.*faze landmarks"):
        GazeCapture(gazecapture, None)
    with pytest.raises(ValueError, match="absent.h5: no such file"):
        GazeCapture(gazecapture, tmp_path / "absent.h5")


def test_gazecapture(gazecapture: Path) -> None:
    reader = open_gazecapture(gazecapture)
    assert reader.persons() == ["00002", "00003"]
    assert reader.count("00003") == 3
    for person, split in (("00002", "train"), ("00003", "test")):
        frames = list(reader.entries(person))
        assert [f.file_name for f in frames] == [f"{person}/frames/0000{i}.jpg" for i in range(3)]
        for frame in frames:
            assert isinstance(frame, Frame)
            check_annotation(frame)
            assert (frame.person_id, frame.split) == (person, split)
            np.testing.assert_array_equal(frame.inner_eye_corners_mm, INNER_EYE_CORNERS_14_MM)
        assert [f.frame_index for f in frames] == [0, 1, 2]
        assert {f.label_source for f in frames} == {"supplementary"}
    usual = raw_data.supplementary([f"00002/frames/0000{i}.jpg" for i in (2, 0)])
    names = ("camera_parameters", "distortion_parameters", "head_pose", "gaze_target_mm")
    own = {name: getattr(usual, name) * [[1], [2]] for name in names}
    write_supplementary(gazecapture.with_suffix(".h5"), [("00002", dataclasses.replace(usual, **own))])
    for row, frame in enumerate(open_gazecapture(gazecapture).entries("00002")):  # each has the numbers of its own row
        fx, fy, cx, cy = own["camera_parameters"][row]
        assert frame.file_name == usual.file_names[row]
        np.testing.assert_array_equal(frame.camera_matrix, [[fx, 0, cx], [0, fy, cy], [0, 0, 1]])
        np.testing.assert_array_equal(frame.distortion, own["distortion_parameters"][row])
        pose = np.concatenate([frame.rotation_vector, frame.translation_mm])
        np.testing.assert_array_equal(pose, own["head_pose"][row])
        np.testing.assert_array_equal(frame.gaze_target_mm, own["gaze_target_mm"][row])


def edit_json(path: Path, change: Callable) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def test_frames_that_gazecapture_calls_invalid_are_rejects(gazecapture: Path) -> None:
    folder = gazecapture / "00002"
    edit_json(folder / "appleLeftEye.json", lambda content: content | {"IsValid": [1, 0, 1]})
    edit_json(folder / "faceGrid.json", lambda content: content | {"IsValid": [1, 0, 1]})
    edit_json(folder / "frames.json", lambda names: [names[0], names[1], "00009.jpg"])
    frame, *rejects = open_gazecapture(gazecapture).entries("00002")
    assert isinstance(frame, Frame)
    assert rejects == [
        Reject("00002", "00002/frames/00001.jpg", "IsValid 0 in appleLeftEye, faceGrid"),
        Reject("00002", "00002/frames/00002.jpg", "not listed in frames.json"),
    ]


def test_a_recording_with_a_damaged_file_is_one_reject(gazecapture: Path) -> None:
    (gazecapture / "00002/frames.json").write_text("[")
    reader = open_gazecapture(gazecapture)
    (reject,) = reader.entries("00002")
    assert (reject.person_id, reject.file_name) == ("00002", "") and "00002/frames.json" in reject.reason
    assert all(isinstance(entry, Frame) for entry in reader.entries("00003"))


def write_mpiigaze(original: Path, mpiifacegaze: Path) -> None:
    """Write the frames of an MPIIFaceGaze folder in the original layout: renumbered by day, with 41 columns."""
    for person in sorted(mpiifacegaze.glob("p*")):
        shutil.copytree(person / "Calibration", original / person.name / "Calibration")
        for day in sorted(person.glob("day*")):
            (original / person.name / day.name).mkdir()
            lines = []
            for line in (person / f"{person.name}.txt").read_text().splitlines():
                words = line.split()
                if words[0].startswith(day.name):
                    lines.append(" ".join([*["1"] * 24, *words[1:3], *words[24:27], *words[15:21], *["2"] * 6]))
                    image = original / person.name / day.name / f"{len(lines):04d}.jpg"
                    shutil.copyfile(person / words[0], image)
            (original / person.name / day.name / "annotation.txt").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(("given", "people"), [("", "Data/Original"), ("Data/Original", "Data/Original"), ("", "")])
def test_the_original_mpiigaze_is_recognised(mpiifacegaze: Path, tmp_path: Path, given: str, people: str) -> None:
    write_mpiigaze(tmp_path / "original" / people, mpiifacegaze)
    reader = open_mpiifacegaze(tmp_path / "original" / given, None)
    assert (reader.persons(), reader.count("p01")) == (["p00", "p01"], 3)
    frames = list(reader.entries("p01"))
    prefix = f"{people}/" if people and not given else ""
    assert [f.file_name for f in frames] == [f"{prefix}p01/day01/000{i}.jpg" for i in (1, 2, 3)]
    assert [f.frame_index for f in frames] == [0, 1, 2]
    for frame in frames:
        check_annotation(frame)
        assert (frame.split, frame.label_source) == ("", "annotated")
        np.testing.assert_array_equal(frame.inner_eye_corners_mm, INNER_EYE_CORNERS_6_MM)


def test_a_person_of_the_original_mpiigaze_without_annotation_is_one_reject(mpiifacegaze: Path, tmp_path: Path) -> None:
    write_mpiigaze(tmp_path / "original", mpiifacegaze)
    shutil.rmtree(tmp_path / "original" / "p00" / "day01")
    reader = open_mpiifacegaze(tmp_path / "original", None)
    (reject,) = reader.entries("p00")
    assert "dayYY/annotation.txt" in reject.reason
    assert len(list(reader.entries("p01"))) == 3


def test_gazecapture_knows_device_and_screen(gazecapture: Path) -> None:
    folder = gazecapture / "00002"
    edit_json(folder / "info.json", lambda info: info | {"DeviceName": "iPad Air"})
    (folder / "screen.json").write_text(json.dumps({"W": [768] * 3, "H": [1024] * 3, "Orientation": [1, 2, 9]}))
    dots = {"XPts": [768, 769, 5], "YPts": [0, 5, 5], "XCam": [0, 1, 1], "YCam": [-1] * 3}
    (folder / "dotInfo.json").write_text(json.dumps(dots))
    first, second, turned = open_gazecapture(gazecapture).entries("00002")
    assert (first.device, first.on_screen, second.on_screen) == ("iPad Air", True, False)
    assert turned.reason == "screen.json: Orientation is 9, not one of 1 to 4"
    (folder / "screen.json").write_text(json.dumps({"W": [768] * 3, "H": [1024] * 3, "Orientation": [1, 2, 3]}))
    (folder / "dotInfo.json").write_text(json.dumps(dots | {"XPts": [-1, 5, 5], "YPts": [5, -1, 1025]}))
    assert [frame.on_screen for frame in open_gazecapture(gazecapture).entries("00002")] == [False] * 3
    (folder / "dotInfo.json").write_text(json.dumps(dots | {"YCam": [-1] * 2}))
    (reject,) = open_gazecapture(gazecapture).entries("00002")
    assert "dotInfo.json: YCam is not a list of 3 numbers" in reject.reason


@pytest.mark.parametrize(
    ("size", "fits"),
    [((480, 640), True), ((240, 320), False), ((640, 480), False)]
    # The principal point is off the middle by 0.1397, 0.1533, -0.1397 and -0.1549 of a side.
    + [((383, 640), True), ((375, 640), False), ((680, 640), True), ((710, 640), False), ((480, 910), False)],
)
def test_a_frame_of_another_size_than_its_camera_s_is_unusable(
    mpiifacegaze: Path, size: tuple[int, int], fits: bool
) -> None:
    frame = next(iter(open_mpiifacegaze(mpiifacegaze, None).entries("p00")))
    frame = dataclasses.replace(frame, camera_matrix=np.array([[573.0, 0, 245], [0, 573, 316], [0, 0, 1]]))
    if fits:
        check_size(frame, *size)
    else:
        with pytest.raises(UnusableFrame, match=f"the {size[0]} x {size[1]} frame does not match its camera"):
            check_size(frame, *size)
