"""Readers: what an annotation says arrives in the Frame; what is wrong with it is named, or listed frame by frame."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import raw_data
from scipy.io import savemat

from faze.datasets import Frame, Reject
from faze.datasets.gazecapture import GazeCapture
from faze.datasets.mpiifacegaze import open_mpiifacegaze
from faze.normalization import INNER_EYE_CORNERS_6_MM, INNER_EYE_CORNERS_14_MM
from faze.store import write_supplementary


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
        assert (frame.person_id, frame.split) == ("p01", "test")
        np.testing.assert_array_equal(frame.inner_eye_corners_mm, INNER_EYE_CORNERS_6_MM)


def test_mpiifacegaze_by_the_supplementary_annotation(mpiifacegaze: Path, tmp_path: Path) -> None:
    """That one has people, frames and face model of its own; the text files are not read."""
    (mpiifacegaze / "p00" / "p00.txt").unlink()
    entries = raw_data.supplementary(["p00/day01/0002.jpg", "p00/../../etc/passwd", "/etc/passwd"])
    write_supplementary(tmp_path / "s.h5", [("p00", entries), ("p09", entries)])
    reader = open_mpiifacegaze(mpiifacegaze, tmp_path / "s.h5")
    assert (reader.persons(), reader.count("p00"), reader.count("p09")) == (["p00", "p09"], 3, 1)
    frame, *rejects = reader.entries("p00")
    check_annotation(frame)
    assert (frame.file_name, frame.split) == ("p00/day01/0002.jpg", "test")
    np.testing.assert_array_equal(frame.inner_eye_corners_mm, INNER_EYE_CORNERS_14_MM)
    assert [r.reason for r in rejects] == ["path leads out of the data folder"] * 2
    assert list(reader.entries("p09")) == [Reject("p09", "", "no folder p09")]


def test_a_path_out_of_mpiifacegaze_is_a_reject(mpiifacegaze: Path) -> None:
    with (mpiifacegaze / "p00" / "p00.txt").open("a") as file:
        file.write(raw_data.mpiifacegaze_line("../../secret.jpg") + "\n")
    *_, last = open_mpiifacegaze(mpiifacegaze, None).entries("p00")
    assert last == Reject("p00", "p00/../../secret.jpg", "path leads out of the data folder")


def write_line(line: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        with (folder / "p01.txt").open("a") as file:
            file.write("\n" + line + "\n")

    return write


LINE = raw_data.mpiifacegaze_line("day01/0000.jpg")
CALIBRATION, SCREEN = Path("Calibration", "Camera.mat"), Path("Calibration", "screenSize.mat")


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (write_line(LINE + " 3"), r"p01.txt:5: 29 columns, not the 28"),
        (write_line("day01/0000.jpg 1 2"), r"p01.txt:5: 3 columns, not the 28"),
        (write_line(LINE.replace("640", "six")), r"p01.txt:5: .*'six'"),
        (lambda folder: (folder / "p01.txt").unlink(), r"p01.txt: no such file"),
        (lambda folder: (folder / "p01.txt").write_bytes(b"\xff\xfe\x00"), r"p01.txt: is not text"),
        (lambda folder: (folder / CALIBRATION).unlink(), r"Camera.mat: no such file"),
        (lambda folder: (folder / CALIBRATION).write_bytes(b""), r"Camera.mat: not a readable MATLAB file"),
        (lambda folder: (folder / CALIBRATION).write_bytes(b"x" * 500), r"Camera.mat: not a readable MATLAB file"),
        (lambda folder: savemat(folder / CALIBRATION, {"K": np.eye(3)}), r"Camera.mat: has no 'cameraMatrix'"),
        (
            lambda folder: savemat(folder / CALIBRATION, {"cameraMatrix": np.eye(2), "distCoeffs": np.zeros(5)}),
            "not the 3 x 3 matrix",
        ),
        (
            lambda folder: savemat(folder / CALIBRATION, {"cameraMatrix": np.eye(3), "distCoeffs": np.zeros(3)}),
            "3 distortion coefficients",
        ),
        (lambda folder: (folder / SCREEN).write_bytes(b"x" * 500), r"screenSize.mat: not a readable MATLAB file"),
        (lambda folder: savemat(folder / SCREEN, {"width_pixel": 1280}), r"screenSize.mat: has no 'height_pixel'"),
        (
            lambda folder: savemat(folder / SCREEN, {"width_pixel": 1280, "height_pixel": 0}),
            "not one positive number each",
        ),
    ],
)
def test_a_person_whose_files_are_broken_is_one_reject(mpiifacegaze: Path, spoil: Callable, sentence: str) -> None:
    spoil(mpiifacegaze / "p01")
    reader = open_mpiifacegaze(mpiifacegaze, None)
    (reject,) = reader.entries("p01")
    assert (reject.person_id, reject.file_name) == ("p01", "") and re.search(sentence, reject.reason)
    assert reader.count("p01") in (1, 3)  # as many as are listed, where only another file is broken
    assert all(isinstance(entry, Frame) for entry in reader.entries("p00"))


def test_a_folder_without_people_is_named(tmp_path: Path, gazecapture: Path) -> None:
    with pytest.raises(ValueError, match=f"{tmp_path}: holds no folder p00"):
        open_mpiifacegaze(tmp_path, None)
    with pytest.raises(ValueError, match="holds no folder of a person in .*gazecapture.h5, such as 00002"):
        GazeCapture(tmp_path, gazecapture.with_suffix(".h5"))
    with pytest.raises(ValueError, match="give the FAZE supplementary HDF5 .* or what `faze landmarks"):
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


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("info.json", '{"Dataset": "Train"}', "info.json: Dataset is 'Train'"),
        ("info.json", "{}", "info.json: Dataset is None"),
        ("info.json", "[]", "info.json: not a JSON dict"),
        ("frames.json", '["00000.jpg", ', "frames.json: not JSON"),
        ("appleFace.json", '{"IsValid": [1]}', "appleFace.json: IsValid is not a list of 3 flags"),
        ("appleFace.json", '{"X": [1, 1, 1]}', "appleFace.json: IsValid is not a list of 3 flags"),
        ("appleRightEye.json", None, "appleRightEye.json: No such file"),
    ],
)
def test_a_recording_with_a_broken_file_is_one_reject(
    gazecapture: Path, name: str, content: str | None, reason: str
) -> None:
    path = gazecapture / "00002" / name
    path.unlink() if content is None else path.write_text(content)
    reader = open_gazecapture(gazecapture)
    (reject,) = reader.entries("00002")
    assert (reject.person_id, reject.file_name) == ("00002", "")
    assert reject.reason.startswith(reason)
    assert all(isinstance(entry, Frame) for entry in reader.entries("00003"))


def test_recordings_that_lack_frames_or_annotation_are_rejects(gazecapture: Path) -> None:
    (gazecapture / "00003").rename(gazecapture / "00007")
    reader = open_gazecapture(gazecapture)
    assert reader.persons() == ["00002", "00003", "00007"]
    assert [reader.count(person) for person in reader.persons()] == [3, 1, 1]
    assert list(reader.entries("00003")) == [Reject("00003", "", "no folder 00003")]
    assert list(reader.entries("00007")) == [Reject("00007", "", "not in the supplementary annotation")]
