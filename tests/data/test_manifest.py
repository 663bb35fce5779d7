"""Manifests: anyone's frames, described by one table; faults are reported with file, line, column and remedy."""

import dataclasses
import pickle
import re
from pathlib import Path

import cv2
import jpegs
import manifests
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import raw_data
from manifests import HEAD, LINE, TARGET, lines, write_images, write_table
from one_frame import normalize_pose
from scipy.io import savemat

from faze.base.errors import UserError
from faze.config.parameters import NormalizedCamera, Synthetic
from faze.config.validation import read_yaml
from faze.data.normalization.pose import (
    INNER_EYE_CORNERS_14_MM,
    gaze_origins_mm,
)
from faze.data.preparation.strip_maker import StripMaker
from faze.data.readers import Frame, Reader, Reject
from faze.data.readers.gazecapture import GazeCapture
from faze.data.readers.manifest import Manifest, needs_landmarks
from faze.data.readers.manifest_lines import ManifestLines
from faze.data.readers.mpiifacegaze import open_mpiifacegaze
from faze.data.readers.plausibility import find_impossible
from faze.data.readers.screen import read_screen

SCREEN = "width_mm: 345\nheight_mm: 194\nwidth_px: 1920\nheight_px: 1080\ntop_left_mm: [172.5, 10, 0]\n"
CALIBRATED = """%YAML:1.0
---
camera_matrix: !!opencv-matrix
   rows: 3
   cols: 3
   dt: d
   data: [ 300., 0., 160., 0., 301., 118., 0., 0., 1. ]
distortion_coefficients: !!opencv-matrix
   rows: 1
   cols: 5
   dt: d
   data: [ 1.0e-01, -2.0e-01, 1.0e-03, -2.0e-03, 5.0e-02 ]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_images(tmp_path)
    return tmp_path / "frames.csv"


def read(path: Path, person: str = "anna", supplementary: Path | None = None) -> list[Frame | Reject]:
    return list(Manifest(path, supplementary).entries(person))


def frames(path: Path, person: str = "anna") -> list[Frame]:
    found = read(path, person)
    assert found and all(isinstance(entry, Frame) for entry in found), found
    return found


def reasons(path: Path, person: str = "anna") -> list[str]:
    return [entry.reason if isinstance(entry, Reject) else "" for entry in read(path, person)]


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as refused:
        Manifest(path, None)
    assert str(refused.value).startswith(str(path)), refused.value
    return str(refused.value)


def without(*names: str) -> dict[str, None]:
    return dict.fromkeys(names)


def test_minimal_manifest(path: Path) -> None:
    write_table(path, lines())
    reader: Reader = Manifest(path, None)
    assert (reader.persons(), reader.count("anna")) == (["anna"], 3)
    for position, frame in enumerate(frames(path)):
        assert (frame.person_id, frame.split, frame.frame_index) == ("anna", "test", position)
        assert (frame.file_name, frame.image_path.is_file()) == (f"img/{position:04d}.jpg", True)
        np.testing.assert_array_equal(frame.camera_matrix, raw_data.CAMERA_MATRIX)
        np.testing.assert_array_equal(frame.distortion, np.zeros(5))
        np.testing.assert_array_equal(frame.rotation_vector, raw_data.ROTATION_VECTOR)
        np.testing.assert_array_equal(frame.translation_mm, raw_data.TRANSLATION_MM)
        np.testing.assert_array_equal(frame.gaze_target_mm, raw_data.TARGET_MM)
        np.testing.assert_array_equal(frame.inner_eye_corners_mm, INNER_EYE_CORNERS_14_MM)
        assert (frame.label_source, frame.on_screen) == ("annotated", None)
    assert pickle.loads(pickle.dumps(reader)).count("anna") == 3  # preprocess sends it to other processes


@pytest.mark.parametrize("name", ["cam.yaml", "calib/cam.mat", "ros.yml"])
def test_camera_files(path: Path, name: str) -> None:
    raw_data.write_file(path.parent / "cam.yaml", CALIBRATED)
    (path.parent / "calib").mkdir()
    matrices = {"cameraMatrix": raw_data.CAMERA_MATRIX, "distCoeffs": raw_data.DISTORTION[None]}
    savemat(path.parent / "calib/cam.mat", matrices)
    ros = {"camera_matrix": raw_data.CAMERA_MATRIX, "distortion_coefficients": raw_data.DISTORTION[None]}
    text = "".join(
        f"{key}:\n  rows: {len(m)}\n  cols: {m.shape[1]}\n  data: {m.ravel().tolist()}\n" for key, m in ros.items()
    )
    raw_data.write_file(path.parent / "ros.yml", text)
    write_table(path, lines(camera=name, **without(*manifests.CAMERA)))
    for frame in frames(path):
        np.testing.assert_array_equal(frame.camera_matrix, raw_data.CAMERA_MATRIX)
        np.testing.assert_array_equal(frame.distortion, raw_data.DISTORTION)


def test_field_of_view_gives_an_assumed_camera(path: Path) -> None:
    """Half of 320 px at 45 degrees: the focal length is 160 px."""
    write_table(path, lines(hfov_deg=90, **without(*manifests.CAMERA)))
    for frame in frames(path):
        expected = [[160, 0, 159.5], [0, 160, 119.5], [0, 0, 1]]
        np.testing.assert_allclose(frame.camera_matrix, expected, rtol=1e-12)
        assert frame.label_source == "assumed_camera" and not frame.distortion.any()
    png = cv2.imencode(".png", np.zeros((48, 64, 3), np.uint8))[1].tobytes()
    (path.parent / "img/0000.jpg").write_bytes(png)
    assert frames(path)[0].camera_matrix[0, 2] == 31.5
    rotated = jpegs.with_segment(raw_data.jpeg(0), 0xE1, jpegs.exif(6))
    for content, reason in (
        (rotated, "rotated by its EXIF orientation"),
        (b"", "empty file"),
        (b"\xff\xd8\xff", "truncated JPEG"),
        (b"GIF89a", "not an image"),
    ):
        (path.parent / "img/0000.jpg").write_bytes(content)
        assert reason in reasons(path)[0] and not any(reasons(path)[1:])


def test_screen_converts_pixels(path: Path) -> None:
    """The middle of a 345 x 194 mm screen, 10 mm below a camera centred above it: 107 mm below the camera."""
    raw_data.write_file(path.parent / "screen.yaml", SCREEN)
    rows = lines(4, **without(*TARGET))
    for row, (x, y) in zip(rows, [(960, 540), (0, 0), (1920, 0), (1921, 0)], strict=True):
        row |= {"target_x_px": x, "target_y_px": y}
    write_table(path, rows)
    found = frames(path)
    expected = [[0, 107, 0], [172.5, 10, 0], [-172.5, 10, 0]]
    np.testing.assert_allclose([f.gaze_target_mm for f in found[:3]], expected, atol=1e-12)
    assert [f.on_screen for f in found] == [True, True, True, False]


def label(frame: Frame) -> np.ndarray:
    return normalize_pose(
        frame.rotation_vector, frame.translation_mm, frame.inner_eye_corners_mm, frame.gaze_target_mm
    ).labels


@pytest.mark.parametrize("unit", ["rad", "deg"])
def test_gaze_angles_are_returned_exactly(path: Path, unit: str) -> None:
    """With the gaze origin on the camera's axis, the normalised camera is the camera."""
    origin = gaze_origins_mm(np.zeros((1, 3)), np.array([[0, 0, 600.0]]), INNER_EYE_CORNERS_14_MM[None])[0]
    head = dict(zip(HEAD, [0, 0, 0, *([0, 0, 1200] - origin)], strict=True))
    angles = [0.2, -0.3] if unit == "rad" else [11.5, -17.25]
    gaze = {f"gaze_pitch_{unit}": angles[0], f"gaze_yaw_{unit}": angles[1]}
    write_table(path, lines(1, **without(*TARGET), **head, **gaze))
    found = label(frames(path)[0])[:2]
    np.testing.assert_allclose(found, angles if unit == "rad" else np.radians(angles), atol=1e-12)


VALUES = read_yaml(Path(__file__).parents[2] / "config" / "config.yaml")["synthetic"]
TINY = Synthetic(**VALUES | {"gazecapture_train_frames": None}).model_copy(
    update={
        "mpiigaze_people": 1,
        "gazecapture_train_people": 1,
        "gazecapture_val_people": 0,
        "gazecapture_test_people": 1,
        "frames_per_person": 3,
    }
)


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("rendered")
    manifests.write_people(root, TINY)
    return root


def others(root: Path) -> dict[str, Reader]:
    return {
        "mpiifacegaze": open_mpiifacegaze(root / "mpiifacegaze", None),
        "gazecapture": GazeCapture(root / "gazecapture", root / "gazecapture_supplementary.h5"),
    }


def strips_of(reader: Reader, person: str) -> tuple[np.ndarray, np.ndarray]:
    maker, found = (
        StripMaker(NormalizedCamera(focal_length_px=1300.0, distance_mm=600.0, width_px=256, height_px=64)),
        list(reader.entries(person)),
    )
    pixels, labels = np.zeros((len(found), 64, 256, 3), np.uint8), np.zeros((len(found), 4), np.float32)
    assert maker.make(found, pixels, labels) == [""] * len(found)
    return pixels, labels


def check_same(reader: Reader, other: Reader) -> None:
    """Compare everything except what a manifest with targets in mm cannot contain: screen and device.

    Without a split, as in MPIIFaceGaze, people of a manifest are test people.
    """
    assert reader.persons() == other.persons()
    for person in other.persons():
        for ours, its in zip(reader.entries(person), other.entries(person), strict=True):
            assert ours.split == (its.split or "test")
            for field in dataclasses.fields(Frame):
                if field.name not in ("on_screen", "device", "label_source", "split"):
                    np.testing.assert_array_equal(getattr(ours, field.name), getattr(its, field.name), field.name)
        (pixels, labels), (its_pixels, its_labels) = strips_of(reader, person), strips_of(other, person)
        np.testing.assert_array_equal(pixels, its_pixels)
        np.testing.assert_allclose(labels, its_labels, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["mpiifacegaze", "gazecapture"])
def test_manifest_equals_the_other_layouts_to_the_bit(rendered: Path, name: str) -> None:
    other = others(rendered)[name]
    entries = [entry for person in other.persons() for entry in other.entries(person)]
    check_same(Manifest(manifests.write_frames(rendered / name / "frames.csv", entries), None), other)


def test_manifest_takes_the_poses_of_a_supplementary_annotation(rendered: Path) -> None:
    other = others(rendered)["gazecapture"]
    rows = [manifests.line_of(entry) for person in other.persons() for entry in other.entries(person)]
    for row in rows:
        for name in (*HEAD, "face_model"):
            del row[name]
    path = write_table(rendered / "gazecapture/unposed.csv", rows)
    assert needs_landmarks(path) and not needs_landmarks(write_table(path.with_name("posed.csv"), lines()))
    with pytest.raises(UserError, match=r"unposed.csv: has no head poses: .*faze landmarks"):
        Manifest(path, None)
    reader = Manifest(path, rendered / "gazecapture_supplementary.h5")
    check_same(reader, other)
    assert {entry.label_source for p in reader.persons() for entry in reader.entries(p)} == {"supplementary"}


def test_frames_are_in_the_order_of_session_and_time(path: Path) -> None:
    rows = lines()
    for row, (session, time_s) in zip(rows, [("b", 2), ("a", 0), ("b", 1)], strict=True):
        row |= {"session": session, "time_s": time_s}
    write_table(path, rows)
    assert [(f.file_name, f.frame_index) for f in frames(path)] == [
        ("img/0002.jpg", 2),
        ("img/0000.jpg", 0),
        ("img/0001.jpg", 1),
    ]


def test_excel_in_german(path: Path) -> None:
    write_table(path, lines(camera="cam.yaml", **without(*manifests.CAMERA)), ";")
    raw_data.write_file(path.parent / "cam.yaml", CALIBRATED)
    plain = path.read_text()
    for name in ("0.1", "-0.2", "0.05", "5.0", "-10.0", "400.0", "-30.0", "80.0"):
        plain = plain.replace(f";{name}", f";{name.replace('.', ',')}")
    content = "\ufeffsep=;\r\n" + plain.replace("\n", "\r\n").replace("\r\r", "\r") + ";;;\r\n"
    path.write_bytes(content.encode())
    found = frames(path)
    assert len(found) == 3
    np.testing.assert_array_equal(found[2].gaze_target_mm, raw_data.TARGET_MM)
    path.write_text(plain.replace("-0,2", "-0.2", 1))
    assert "line 2, column" in refusal(path) and "one has a decimal comma and the other a point" in refusal(path)


@pytest.mark.parametrize("integers", [False, True])
def test_parquet_gives_the_same_frames(path: Path, integers: bool) -> None:
    rows = lines(person="7")
    write_table(path, rows)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    columns["person"] = [7, 7, 7] if integers else ["7"] * 3
    pq.write_table(pa.table(columns), path.with_suffix(".parquet"))
    assert not needs_landmarks(path.with_suffix(".parquet"))
    for ours, its in zip(frames(path.with_suffix(".parquet"), "7"), frames(path, "7"), strict=True):
        for field in dataclasses.fields(Frame):
            np.testing.assert_array_equal(getattr(ours, field.name), getattr(its, field.name), field.name)
    columns["fx_px"] = [300.0, None, float("nan")]
    pq.write_table(pa.table(columns), path.with_suffix(".parquet"))
    assert reasons(path.with_suffix(".parquet"), "7")[1:] == [
        f"line {n}, column fx_px is empty or not finite" for n in (3, 4)
    ]
    path.with_suffix(".parquet").write_bytes(b"PAR1" + bytes(20))
    assert "frames.parquet: cannot be read" in refusal(path.with_suffix(".parquet"))


def renamed(old: str, new: str) -> dict[str, object]:
    return {old: None, new: LINE[old]}


# Cells of all lines that make the file unusable, and words of the message.
FILE_FAULTS = {
    "no image": (lambda: [{"person": "a"} | LINE], "line 1: has no column 'image'"),
    "no camera": (lambda: lines(**without(*manifests.CAMERA)), "has no columns for the camera: add camera; or fx_px"),
    "half a camera": (lambda: lines(cy_px=None), "has fx_px, fy_px, cx_px, but not cy_px"),
    "two cameras": (lambda: lines(hfov_deg=60), "fx_px and hfov_deg describe the camera in two ways"),
    "lens without camera": (
        lambda: lines(hfov_deg=60, k1=0, k2=0, p1=0, p2=0, **without(*manifests.CAMERA)),
        "k1, k2, p1, p2 belong to fx_px",
    ),
    "k3 alone": (lambda: lines(k3=0), "has column 'k3', but no k1"),
    "no target": (lambda: lines(**without(*TARGET)), "has no columns for the gaze target: add target_x_mm"),
    "two targets": (
        lambda: lines(gaze_pitch_rad=0, gaze_yaw_rad=0),
        "target_x_mm and gaze_pitch_rad describe the gaze target in two ways",
    ),
    "half a pose": (lambda: lines(head_rz=None), "but not head_rz: add the missing columns"),
    "typing error": (lambda: lines(slpit="train"), "unknown column 'slpit': did you mean 'split'?"),
    "unknown unit": (
        lambda: lines(**renamed("target_x_mm", "target_x_cm")),
        "column 'target_x_cm' has an unknown unit: convert the values if necessary, and rename it to 'target_x_mm'",
    ),
    "no unit": (lambda: lines(**renamed("fx_px", "fx")), "column 'fx' has an unknown unit"),
    "head in degrees": (lambda: lines(**renamed("head_rx", "head_rx_deg")), "rename it to 'head_rx'"),
    "unknown split": (lambda: lines(split="training"), "line 2, column split: is 'training', not one of train, val"),
    "empty split": (lambda: lines(split=""), "line 2, column split: is ''"),
    "two splits": (
        lambda: [row | {"split": split} for row, split in zip(lines(), ("train", "train", "val"), strict=True)],
        "line 4, column split: person anna is in val, but in train in line 2",
    ),
    "no person": (lambda: lines(person=" "), "line 2, column person: the person is missing"),
    "person with a slash": (lambda: lines(person="a/b"), "line 2, column person: the name 'a/b'"),
    "two people in an image": (
        lambda: lines(2) + [lines(1)[0] | {"person": "ben"}],
        "line 4, column image: img/0000.jpg is an image of person ben, but of anna in line 2",
    ),
    "targets in m": (
        lambda: lines(target_x_mm=-0.03, target_y_mm=0.08, target_z_mm=0),
        "seem to be in m; multiply them by 1000",
    ),
    "targets in cm": (
        lambda: [row | {"target_x_mm": i, "target_y_mm": 8} for i, row in enumerate(lines(12))],
        "seem to be in cm; multiply them by 10",
    ),
    "targets in nm": (lambda: lines(target_x_mm=1e9), "the gaze target is 1,000,000 m from the camera"),
    "gaze in degrees": (
        lambda: lines(**without(*TARGET), gaze_pitch_rad=12.5, gaze_yaw_rad=0),
        "column gaze_pitch_rad: 12.5 is more than 1.57 rad: if the column is in degrees, call it gaze_pitch_deg",
    ),
    "pose in degrees": (lambda: lines(head_rx=20), "turn the head by 20.0 rad, more than a full turn"),
    "no screen": (
        lambda: lines(**without(*TARGET), target_x_px=1, target_y_px=1),
        "targets in px need the file screen.yaml beside it",
    ),
}


@pytest.mark.parametrize("name", FILE_FAULTS)
def test_fault_of_the_file_is_one_sentence(path: Path, name: str) -> None:
    rows, words = FILE_FAULTS[name]
    message = refusal(write_table(path, rows()))
    assert words in message and "\n" not in message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty: line 1 must contain the names of the columns"),
        (b"\n\n", "is empty"),
        (b"\xff\xfei\0m\0", "save the table again, as CSV in UTF-8"),
        (b"PK\x03\x04\0\0", "has no column 'image'"),
        (b'image,person\n"a.jpg,anna\n', "line 1: has no columns for the camera"),
    ],
)
def test_files_that_are_no_tables(path: Path, content: bytes, words: str) -> None:
    path.write_bytes(content)
    if b"anna" not in content:
        assert words in refusal(path)
    if not content.strip():
        with pytest.raises(UserError, match="is empty"):
            needs_landmarks(path)


# Cells of the second line that make it a reject, and words of the reason.
LINE_FAULTS = {
    "text": ({"fx_px": "wide"}, "line 3, column fx_px is 'wide', which is not a finite number"),
    "empty": ({"head_rx": ""}, "line 3, column head_rx is empty"),
    "not finite": ({"target_z_mm": "nan"}, "column target_z_mm is 'nan', which is not a finite number"),
    "decimal comma": ({"target_z_mm": "1,5"}, "write it with a decimal point"),
    "underscore": ({"target_z_mm": "1_5"}, "not a finite number"),
    "other digits": ({"target_z_mm": "٣"}, "not a finite number"),
    "absolute path": ({"image": "/etc/passwd"}, "column image: path leads out of the data folder"),
    "outside": ({"image": "a/../../b.jpg"}, "column image: path leads out of the data folder"),
    "backslash": ({"image": "img\\0001.jpg"}, "column image: has a backslash: write / between folders"),
    "focal length": ({"fy_px": -3}, "column fy_px: a focal length must be positive"),
    "face model": ({"face_model": "mine"}, "column face_model: is 'mine', not faze or mpiigaze"),
    "head in m": ({"head_x_mm": 0, "head_y_mm": 0, "head_z_mm": 0.6}, "is its position in m?"),
    "head in cm": ({"head_x_mm": 0, "head_y_mm": 0, "head_z_mm": 60}, "is its position in cm?"),
    "head behind the camera": ({"head_z_mm": -600}, "line 3: head pose is behind the camera"),
    "head from behind": ({"head_rx": 0, "head_ry": 3, "head_rz": 0}, "the head faces away from the camera"),
    "target behind the head": ({"target_z_mm": 2000}, "the gaze points away from the camera"),
    "no target": (dict.fromkeys(TARGET, 0), "gaze target is (0, 0, 0), which marks a missing one"),
}


@pytest.mark.parametrize("name", LINE_FAULTS)
def test_fault_of_a_line_is_a_reject(path: Path, name: str) -> None:
    cells, words = LINE_FAULTS[name]
    rows = lines(face_model="faze")
    rows[1] |= cells
    first, second, third = reasons(write_table(path, rows))
    assert words in second and second.startswith("line 3") and (first, third) == ("", "")


def test_faults_of_cameras_and_screens_are_rejects(path: Path) -> None:
    raw_data.write_file(path.parent / "cam.yaml", CALIBRATED)
    raw_data.write_file(path.parent / "bad.yaml", CALIBRATED.replace("rows: 3", "rows: 2"))
    raw_data.write_file(path.parent / "bad.mat", b"MATLAB")
    rows = lines(7, **without(*manifests.CAMERA))
    names = ["cam.yaml", "", "none.yaml", "../cam.yaml", "bad.yaml", "bad.mat", "cam.txt"]
    for row, name in zip(rows, names, strict=True):
        row["camera"] = name
    found = reasons(write_table(path, rows))
    words = ["", "column camera: is empty", "No such file", "path leads out", "not a matrix", "bad.mat", ".yml or .mat"]
    assert not found[0] and all(word in reason for word, reason in zip(words, found, strict=True)), found
    for added, words in {
        "image_width: 644\nimage_height: 240\n": "calibrated with 644 x 240 px, but the frame has 320 x 240",
        "distortion_model: equidistant\n": "distortion model equidistant cannot be used: calibrate with plumb_bob",
        "fisheye_model: 1\n": "distortion model fisheye cannot be used",
    }.items():
        raw_data.write_file(path.parent / "cam.yaml", CALIBRATED + added)
        assert words in reasons(write_table(path, rows))[0]
    rows = lines(hfov_deg=1.2, **without(*manifests.CAMERA))
    assert "1.2 is not between 20 and 150 degrees: is it in radians?" in reasons(write_table(path, rows))[0]
    raw_data.write_file(path.parent / "a.yaml", SCREEN)
    rows = lines(3, **without(*TARGET), target_x_px=1, target_y_px=1)
    for row, name in zip(rows, ["a.yaml", "", "b.yaml"], strict=True):
        row["screen"] = name
    first, second, third = reasons(write_table(path, rows))
    assert not first and "column screen: is empty" in second and "b.yaml: cannot be read" in third


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("width_mm: 345\n", "", "has no width_mm: the keys are width_mm"),
        ("width_mm", "width", "has no width_mm and has unknown keys 'width'"),
        ("345", "34.5", "width_mm and height_mm are 34.5 and 194"),
        ("1920", "0", "must be at least 1"),
        ("1920", "wide", "width_px is 'wide', not a number"),
        ("1920", "1080", "which is not square: are width and height exchanged?"),
        ("1920", "192000", "a pixel would have 0.0018"),
        ("[172.5, 10, 0]", "[172.5, 10]", "top_left_mm is [172.5, 10], not a list of 3 numbers"),
        ("[172.5, 10, 0]", "[172500, 10, 0]", "more than 5 m from the camera: write it in mm"),
        ("1920", "9" * 400, "not a number"),
        (SCREEN, "- 1", "contains no keys and values"),
        (SCREEN, "a: [", "cannot be read"),
    ],
)
def test_faults_of_a_screen(path: Path, old: str, new: str, words: str) -> None:
    raw_data.write_file(path.parent / "screen.yaml", SCREEN.replace(old, new))
    with pytest.raises(UserError) as refused:
        read_screen(path.parent / "screen.yaml")
    assert words in str(refused.value) and "screen.yaml" in str(refused.value)


def test_impossible_labels() -> None:
    labels = np.radians([[10, 20, 5, 10], [95, 0, 0, 0], [0, 100, 0, 0], [0, 0, 0, -170], [0, 60, 0, -60]])
    labels = np.concatenate([labels, [[np.nan, 0, 0, 0]]])
    words = ["", "beyond 90", "gaze points away", "head faces away", "behind the head", "not finite"]
    found = find_impossible(labels)
    assert not found[0] and all(word in reason for word, reason in zip(words, found, strict=True)), found
    assert find_impossible(np.empty((0, 4))) == []


def test_examples_of_the_page_are_read(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs/how-to/own-frames.md").read_text(encoding="utf-8")
    screen = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1]
    raw_data.write_file(tmp_path / "screen.yaml", screen)
    raw_data.write_file(tmp_path / "camera.yaml", CALIBRATED)
    middle, right = read_screen(tmp_path / "screen.yaml").to_mm(np.array([[960.0, 540], [1920, 0]]))
    np.testing.assert_allclose([middle, right], [[0, 107, 0], [-172.5, 10, 0]], atol=1e-12)
    smallest, complete = re.findall(r"```text\n(image,.*?)```", text, re.DOTALL)
    raw_data.write_file(tmp_path / "smallest.csv", smallest)
    raw_data.write_file(tmp_path / "complete.csv", complete)
    for number in (1, 2):
        raw_data.write_file(tmp_path / f"anna/{number:04d}.jpg", raw_data.jpeg(number))
    lines_of = list(ManifestLines(tmp_path / "smallest.csv").unposed("anna"))
    np.testing.assert_allclose(lines_of[0].target_mm, [0, 107, 0], atol=1e-12)
    (anna,), (ben,) = frames(tmp_path / "complete.csv"), frames(tmp_path / "complete.csv", "ben")
    assert (anna.split, ben.split) == ("test", "train")
