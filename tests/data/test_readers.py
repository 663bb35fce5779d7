"""Readers of MPIIFaceGaze, MPIIGaze, GazeCapture and FAZE's annotation: people as arrays, and reasons for bad frames.

MPIIGaze's layout is compared with an example worked out by hand, from its documentation. GazeCapture's dots are
compared with the conversion by its authors: gazecapture_dots.csv has three points for each of the 15 devices in each
orientation, in screen points and in cm to the right of and above the camera; gazecapture_devices.csv has the sizes on
which the conversion is based. Neither depends on our writer, whose errors our reader would undo.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
import raw_data
from golden_files import KEPT
from scipy.io import savemat

from faze.base.errors import UserError
from faze.data.normalization.pose import INNER_EYE_CORNERS_6_MM, INNER_EYE_CORNERS_14_MM
from faze.data.readers.gazecapture import open_gazecapture, read_recording
from faze.data.readers.mpiigaze import open_mpiigaze
from faze.data.readers.person import Person
from faze.data.readers.supplementary import read_supplementary, write_supplementary

ARRAYS = ("cameras", "distortions", "poses", "targets_mm")


@pytest.fixture
def mpiifacegaze(tmp_path: Path) -> Path:
    raw_data.write_mpiifacegaze(tmp_path / "mpiifacegaze")
    return tmp_path / "mpiifacegaze"


@pytest.fixture
def gazecapture(tmp_path: Path) -> Path:
    raw_data.write_gazecapture(tmp_path / "gazecapture", tmp_path / "gazecapture.h5")
    return tmp_path / "gazecapture"


def read_people(raw: Path) -> list[Person]:
    """Read GazeCapture with the annotation beside it."""
    return [read() for read in open_gazecapture(raw, raw.with_suffix(".h5")).values()]


def check_annotation(person: Person, files: list[str]) -> None:
    """Compare a person with `raw_data.annotation`."""
    assert (person.files, person.reasons) == (files, [""] * len(files))
    assert all((person.folder / file).is_file() for file in files)
    for name in ARRAYS:
        expected = getattr(raw_data.annotation(person.folder, files), name)
        np.testing.assert_allclose(getattr(person, name), expected, rtol=1e-8)


def test_mpiifacegaze(mpiifacegaze: Path, tmp_path: Path) -> None:
    people = open_mpiigaze(mpiifacegaze, None)
    assert list(people) == ["p00", "p01"]
    person = people["p01"]()
    check_annotation(person, [f"p01/day01/000{i}.jpg" for i in range(3)])
    assert (person.name, person.split, person.source, person.device) == ("p01", "", "annotated", "")
    np.testing.assert_array_equal(person.corners_mm, INNER_EYE_CORNERS_6_MM)
    with pytest.raises(UserError, match=f"{tmp_path}: .*p00"):
        open_mpiigaze(tmp_path, None)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("p01.txt", Path.unlink),
        ("p01.txt", lambda path: path.write_text(path.read_text().replace("left", "left right"))),
        ("p01.txt", lambda path: path.write_text(path.read_text().replace("640 400", "640 wide"))),
        ("Calibration/Camera.mat", lambda path: path.write_text("1 2 3")),
    ],
)
def test_a_person_with_a_damaged_file_has_one_reason(mpiifacegaze: Path, name: str, damage: Callable) -> None:
    damage(mpiifacegaze / "p01" / name)
    good, bad = (read() for read in open_mpiigaze(mpiifacegaze, None).values())
    assert good.reasons == [""] * 3 and bad.files == [""] and f"p01/{name}" in bad.reasons[0]


# MPIIGaze

# The 6-point model's inner eye corners are then 600 mm straight before the camera.
STRAIGHT_MM = (0.0, -0.4838, 602.397)


def line(target_px: tuple, target_mm: tuple, rotation: tuple = (0, 0, 0)) -> str:
    eyes = (-33.20485, *STRAIGHT_MM[1:], 33.20485, *STRAIGHT_MM[1:])  # means of each eye's two corners
    columns = (*range(501, 525), *target_px, *target_mm, *rotation, *STRAIGHT_MM, *eyes)
    return " ".join(map(str, columns)) + "\n"


LINES = {
    "day02": [
        line((10, 20), (600, 0, 0)),
        line((900, 300), (200, 100, 0)),  # farther right than the screen is high
        line((1300, 300), (-600, 0, 0), rotation=(0, np.pi / 6, 0)),
    ],
    "day10": [line((640, 400), (0, -600, 0))],
}


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """Write a person; the root of the whole download is `tmp_path`."""
    folder = tmp_path / "Data" / "Original" / "p03"
    (folder / "Calibration").mkdir(parents=True)
    camera = {"cameraMatrix": np.array([[960.0, 0, 640], [0, 960, 360], [0, 0, 1]]), "distCoeffs": np.zeros((1, 5))}
    savemat(folder / "Calibration" / "Camera.mat", camera)
    for day, lines in LINES.items():
        (folder / day).mkdir()
        (folder / day / "annotation.txt").write_text("".join(lines))
    return folder


def test_line_n_of_a_day_annotates_image_n(original: Path, tmp_path: Path) -> None:
    """Regression: images were counted from 0; days were read as one list, or in the wrong order; columns were
    shifted."""
    for raw in (tmp_path, tmp_path / "Data", tmp_path / "Data/Original"):
        (read,) = open_mpiigaze(raw, None).values()
        person = read()
        assert person.folder == original.parent
        assert person.files == [f"p03/day02/000{n}.jpg" for n in (1, 2, 3)] + ["p03/day10/0001.jpg"]
        assert person.targets_mm.tolist() == [[600, 0, 0], [200, 100, 0], [-600, 0, 0], [0, -600, 0]]
        np.testing.assert_allclose(person.poses[2], [0, np.pi / 6, 0, *STRAIGHT_MM])


def test_a_missing_line_shifts_no_image(original: Path, tmp_path: Path) -> None:
    """Regression: blank lines were skipped, so each later image got the annotation of the one before."""
    text = "\n".join([LINES["day02"][0].strip(), "", LINES["day02"][2]])
    (original / "day02" / "annotation.txt").write_text(text)
    person = open_mpiigaze(tmp_path, None)["p03"]()
    assert person.files[2] == "p03/day02/0003.jpg" and person.targets_mm[2].tolist() == [-600, 0, 0]
    assert np.isnan(person.targets_mm[1]).all()
    shutil.rmtree(original / "day02")
    shutil.rmtree(original / "day10")
    assert "p03.txt" in open_mpiigaze(tmp_path, None)["p03"]().reasons[0]


# FAZE's annotation


def test_faze_s_annotation_names_missing_people(original: Path, tmp_path: Path) -> None:
    person = raw_data.annotation(original.parent, ["p03/day02/0003.jpg", "p03/day02/0001.jpg", "p03/../../x.jpg"])
    write_supplementary(tmp_path / "s.h5", [person])
    (original.parent / "p05").mkdir()
    p03, p05 = (read() for read in open_mpiigaze(tmp_path, tmp_path / "s.h5").values())
    assert p03.files == person.files and p03.reasons == ["", "", "path is outside the data folder"]
    assert p03.source == "supplementary"
    np.testing.assert_array_equal(p03.corners_mm, INNER_EYE_CORNERS_14_MM)
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(p03, name), getattr(person, name))
    assert p05.reasons == ["not in the supplementary annotation"]
    with h5py.File(tmp_path / "s.h5", "r+") as file:
        poses = file["p03/head_pose"][:, :5]
        del file["p03/head_pose"]
        file["p03/head_pose"] = poses
    (reason,) = open_mpiigaze(tmp_path, tmp_path / "s.h5")["p03"]().reasons
    assert "s.h5: cannot be read" in reason


def test_the_supplementary_file_has_the_published_layout(tmp_path: Path) -> None:
    person = replace(raw_data.annotation(tmp_path, ["00002/a.jpg", "b"]), source="estimated")
    person.reasons[1] = "no face found"
    write_supplementary(tmp_path / "s.h5", [person])
    with h5py.File(tmp_path / "s.h5", "r+") as file:
        group = file["00002"]
        assert group["camera_parameters"][0].tolist() == raw_data.CAMERA_MATRIX[[0, 1, 0, 1], [0, 1, 2, 2]].tolist()
        again = read_supplementary(tmp_path / "s.h5", "00002", tmp_path)
        assert (again.files, again.reasons, again.source) == (person.files, person.reasons, "estimated")
        del group["reason"], group.attrs["label_source"]  # which the published file lacks
        widths = {"camera_parameters": 4, "distortion_parameters": 5, "head_pose": 6, "3d_gaze_target": 3}
        shapes = {"file_name": (2,)} | {name: (2, width) for name, width in widths.items()}
        assert {name: group[name].shape for name in group} == shapes
    again = read_supplementary(tmp_path / "s.h5", "00002", tmp_path)
    assert (again.reasons, again.source) == (["", ""], "supplementary")


# GazeCapture


def test_gazecapture(gazecapture: Path, tmp_path: Path) -> None:
    train, test = read_people(gazecapture)
    for person, name, split in ((train, "00002", "train"), (test, "00003", "test")):
        check_annotation(person, [f"{name}/frames/0000{i}.jpg" for i in range(3)])
        assert (person.name, person.split, person.device) == (name, split, "iPad Air")
        assert person.source == "supplementary"
        np.testing.assert_array_equal(person.corners_mm, INNER_EYE_CORNERS_14_MM)
    for raw, annotation, words in (
        (gazecapture, None, "set `supplementary` of this data set.*faze landmarks"),
        (gazecapture, tmp_path / "absent.h5", "absent.h5.*No such file"),
        (tmp_path / "golden", gazecapture.with_suffix(".h5"), "contains no folders 00002"),
    ):
        with pytest.raises(UserError, match=words):
            open_gazecapture(raw, annotation)


def test_invalid_frames_of_gazecapture_have_reasons(gazecapture: Path) -> None:
    """Frames that only FAZE lists are accepted."""
    for name in ("appleLeftEye", "appleRightEye"):
        (gazecapture / f"00002/{name}.json").write_text('{"IsValid": [1, 0, 1]}')
    (gazecapture / "00002/frames.json").write_text('["00000.jpg", "00001.jpg", "../../../x.jpg"]')
    (gazecapture / "00002/info.json").write_text('{"Dataset": "train"}')
    person, _ = read_people(gazecapture)
    assert person.reasons == ["", "IsValid 0 in appleLeftEye, appleRightEye", ""] and person.device == ""
    assert read_recording(gazecapture / "00002").reasons[2] == "path is outside the data folder"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("frames", "[", "frames.json: cannot be read"),
        ("frames", "null", "00002: cannot be read .*frames.json a list"),
        ("info", '{"DeviceName": "iPad Air"}', "info.json"),
        ("info", '{"Dataset": "training"}', "info.json: Dataset is 'training', not one of train, val, test"),
        ("appleFace", '{"IsValid": [1, 1]}', "appleFace.json.*IsValid must be a list of 3 numbers"),
        ("dotInfo", '{"XPts": [1, 1, 1]}', "dotInfo.json"),
    ],
)
def test_a_recording_with_a_damaged_file_has_one_reason(gazecapture: Path, name: str, content: str, words: str) -> None:
    (gazecapture / f"00002/{name}.json").write_text(content)
    bad, good = read_people(gazecapture)
    assert bad.files == [""] and good.reasons == [""] * 3
    with pytest.raises(UserError, match=words):
        raise UserError(bad.reasons[0])


def test_frames_before_the_eyes_reach_the_dot_are_rejected(gazecapture: Path) -> None:
    dots = {"XCam": [1, 2, 3], "YCam": [-1, -2, -3], "Time": [0.2, 0.399, 0.45]}
    (gazecapture / "00002/dotInfo.json").write_text(json.dumps(dots))
    first, second, third = read_recording(gazecapture / "00002").reasons
    assert "0.20 s after the dot appeared" in first and "less than 0.4 s" in second and not third


DOTS = pd.read_csv(KEPT / "gazecapture_dots.csv")
DEVICES = pd.read_csv(KEPT / "gazecapture_devices.csv").set_index("device")


def by_hand_mm(dot: pd.Series) -> list[float]:
    """Return a screen point in the camera frame: x right and y down, as the camera sees. The camera faces the user.

    The device is a sheet with its camera at the top. The user may also hold it upside down, or on its side, so that the
    home button, normally at the bottom, is on the right (orientation 3) or on the left (4). Points are counted from the
    top left corner of the turned screen, and are first converted to those of the upright screen.
    """
    device, orientation = DEVICES.loc[dot.device], dot.orientation
    x, y, wide, high = dot[["x_points", "y_points", "screen_w_points", "screen_h_points"]]
    x, y = {1: (x, y), 2: (wide - x, high - y), 3: (high - y, x), 4: (y, wide - x)}[orientation]
    right = x * device.screen_width_mm / device.screen_width_points - device.camera_to_screen_x_mm
    down = y * device.screen_height_mm / device.screen_height_points + device.camera_to_screen_y_mm
    right, down = {1: (right, down), 2: (-right, -down), 3: (down, -right), 4: (-down, right)}[orientation]
    return [-right, down, 0.0]


@pytest.mark.parametrize("device", DEVICES.index)
def test_dots_are_where_the_screen_is(device: str, gazecapture: Path) -> None:
    """Regression: x or y was not turned into the camera frame; x and y were exchanged; cm were used as mm."""
    dots = DOTS[DOTS.device == device]
    assert len(DOTS) == 180 and len(dots) == 12 and set(dots.orientation) == {1, 2, 3, 4}
    points = {"XCam": dots.x_cam_cm.tolist(), "YCam": dots.y_cam_cm.tolist(), "Time": [0.4] * 12}
    contents = dict.fromkeys(("appleFace", "appleLeftEye", "appleRightEye", "faceGrid"), {"IsValid": [1] * 12})
    contents |= {"frames": [f"{number:05d}.jpg" for number in range(12)], "dotInfo": points}
    for name, content in contents.items():
        (gazecapture / f"00002/{name}.json").write_text(json.dumps(content))
    recording = read_recording(gazecapture / "00002")
    np.testing.assert_allclose(recording.targets_mm, [by_hand_mm(dot) for _, dot in dots.iterrows()], atol=1e-3)
    assert recording.reasons == [""] * 12 and np.isnan(recording.cameras).all() and np.isnan(recording.poses).all()
