"""The positions of GazeCapture's dots, compared with the conversion by the data set's authors.

tests/golden/gazecapture_dots.csv has three points for each of the 15 devices in each of the four orientations, in
screen points and in cm to the right of and above the camera, as converted by the authors themselves;
gazecapture_devices.csv has the sizes on which that conversion is based. Neither depends on our writer, whose errors our
reader would undo.
"""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from golden_files import KEPT

from faze.data.readers.gazecapture import read_recording

DETECTIONS = ("appleFace", "appleLeftEye", "appleRightEye", "faceGrid")


def rows(name: str) -> list[dict[str, str]]:
    with (KEPT / name).open(newline="") as file:
        return list(csv.DictReader(file))


DOTS = rows("gazecapture_dots.csv")
DEVICES = {
    row["device"]: {key: float(row[key]) for key in row if key != "device"} for row in rows("gazecapture_devices.csv")
}


def numbers(dots: list[dict[str, str]], key: str) -> list[float]:
    return [float(dot[key]) for dot in dots]


def by_hand_mm(dot: dict[str, str]) -> list[float]:
    """Return a screen point in the camera frame: x right and y down, as the camera sees. The camera faces the user.

    The device is a sheet with its camera at the top. The user may also hold it upside down, or on its side, so that the
    home button, normally at the bottom, is on the right (orientation 3) or on the left (4). Points are counted from the
    top left corner of the turned screen, and are first converted to those of the upright screen.
    """
    device, orientation = DEVICES[dot["device"]], int(dot["orientation"])
    x, y, wide, high = (float(dot[key]) for key in ("x_points", "y_points", "screen_w_points", "screen_h_points"))
    x, y = {1: (x, y), 2: (wide - x, high - y), 3: (high - y, x), 4: (y, wide - x)}[orientation]
    right = x * device["screen_width_mm"] / device["screen_width_points"] - device["camera_to_screen_x_mm"]
    down = y * device["screen_height_mm"] / device["screen_height_points"] + device["camera_to_screen_y_mm"]
    right, down = {1: (right, down), 2: (-right, -down), 3: (down, -right), 4: (-down, right)}[orientation]
    return [-right, down, 0.0]


def write_recording(folder: Path, dots: list[dict[str, str]]) -> None:
    names = {"XPts": "x_points", "YPts": "y_points", "XCam": "x_cam_cm", "YCam": "y_cam_cm"}
    screen = {"W": "screen_w_points", "H": "screen_h_points", "Orientation": "orientation"}
    files = {
        "info": {"Dataset": "train", "DeviceName": dots[0]["device"]},
        "frames": [f"{number:05d}.jpg" for number in range(len(dots))],
        "dotInfo": {name: numbers(dots, key) for name, key in names.items()},
        "screen": {name: numbers(dots, key) for name, key in screen.items()},
        **{name: {"IsValid": [1] * len(dots)} for name in DETECTIONS},
    }
    folder.mkdir()
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))


def test_the_dots_are_those_of_all_devices_and_orientations() -> None:
    assert len(DOTS) == 180 and {dot["device"] for dot in DOTS} == set(DEVICES) and len(DEVICES) == 15
    assert {dot["orientation"] for dot in DOTS} == set("1234")


@pytest.mark.parametrize("device", DEVICES)
def test_reader_places_the_dots_where_the_screen_is(device: str, tmp_path: Path) -> None:
    """Regression: x or y was not turned into the camera frame; x and y were exchanged; cm were used as mm."""
    dots = [dot for dot in DOTS if dot["device"] == device]
    write_recording(tmp_path / "00001", dots)
    recording = read_recording(tmp_path / "00001")
    np.testing.assert_allclose(recording.targets_mm, [by_hand_mm(dot) for dot in dots], atol=1e-3)
    assert recording.on_screen == [True] * 12 and recording.faults == [""] * 12
