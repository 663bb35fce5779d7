"""Manifests: anyone's frames, described by one table; faults are reported with file, line, column and remedy."""

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest
import raw_data
from manifests import CAMERA, HEAD, LINE, TARGET, lines, write_images, write_table
from scipy.io import savemat

from faze.base.errors import UserError
from faze.data.normalization.pose import (
    INNER_EYE_CORNERS_6_MM,
    INNER_EYE_CORNERS_14_MM,
    gaze_origins_mm,
    normalize_poses,
)
from faze.data.readers.camera import read_camera
from faze.data.readers.manifest import LENS, needs_landmarks, read_manifest
from faze.data.readers.person import Person
from faze.data.readers.screen import read_screen
from faze.data.readers.supplementary import write_supplementary

NO_CAMERA, NO_TARGET = dict.fromkeys(CAMERA), dict.fromkeys(TARGET)  # without these columns
FIVE = dict(zip((*LENS, "k3"), raw_data.DISTORTION, strict=True))
PAGE = Path(__file__).parents[2] / "docs/how-to/own-frames.md"
SCREEN = "width_mm: 345\nheight_mm: 194\nwidth_px: 1920\nheight_px: 1080\ntop_left_mm: [172.5, 10, 0]\n"
OPENCV = """%YAML:1.0
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
ROS = OPENCV.replace("%YAML:1.0\n---\n", "").replace(" !!opencv-matrix", "").replace("   dt: d\n", "")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_images(tmp_path)
    return tmp_path / "frames.csv"


def read(path: Path) -> Person:
    (anna,) = read_manifest(path)
    return anna


def check_same(ours: Person, its: Person) -> None:
    for name in ("name", "files", "reasons", "split", "source"):
        assert getattr(ours, name) == getattr(its, name)
    for name in ("cameras", "poses", "targets_mm"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(its, name), name)
    assert (ours.distortions[:, :5] == its.distortions[:, :5]).all() and not ours.distortions[:, 5:].any()


def test_numbers_are_read_to_the_bit(path: Path) -> None:
    files = [f"img/000{i}.jpg" for i in range(3)]
    expected = replace(raw_data.annotation(path.parent, files), name="anna", split="val", source="annotated")
    expected.cameras[:, 0, 0] = 300.1  # no float32
    for model, corners_mm in (("faze", INNER_EYE_CORNERS_14_MM), ("mpiigaze", INNER_EYE_CORNERS_6_MM)):
        anna = read(write_table(path, lines(split="Val", face_model=model, fx_px=300.1, **FIVE)))
        check_same(anna, expected)
        np.testing.assert_array_equal(anna.corners_mm, [corners_mm] * 3)
    anna, ben = read_manifest(write_table(path, lines(person=["ben", "anna", "ben"])))
    assert (anna.split, anna.files, ben.name, ben.files) == ("test", files[1:2], "ben", files[::2])
    assert not anna.distortions.any()


def test_head_poses_of_faze_landmarks(path: Path) -> None:
    annotation = raw_data.annotation(path.parent, [f"img/000{i}.jpg" for i in range(3)])
    annotation = replace(annotation, name="anna", reasons=["", "no face found", ""])
    write_supplementary(path.with_suffix(".h5"), [annotation])
    posed = write_table(path.with_name("posed.csv"), lines())
    write_table(path, lines(**dict.fromkeys(HEAD), **FIVE))
    assert needs_landmarks(path) and not needs_landmarks(posed)
    check_same(read_manifest(path, path.with_suffix(".h5"))[0], replace(annotation, split="test"))
    (anna,) = read_manifest(path, posed=False)
    assert np.isnan(anna.poses).all() and anna.reasons == [""] * 3
    for table, supplementary in ((posed, path.with_suffix(".h5")), (path, None)):
        with pytest.raises(UserError, match="head poses must be given exactly once.*faze landmarks"):
            read_manifest(table, supplementary)
    write_table(path, lines(image=annotation.files[::-1], **dict.fromkeys(HEAD), **FIVE))
    with pytest.raises(UserError, match="frames of anna have changed: run `faze landmarks` again"):
        read_manifest(path, path.with_suffix(".h5"))


def test_camera_files(path: Path) -> None:
    raw_data.write_file(path.parent / "cam.yaml", OPENCV)
    raw_data.write_file(path.parent / "ros.yml", ROS + "image_width: 320\nimage_height: 240\n")
    matrices = {"cameraMatrix": raw_data.CAMERA_MATRIX, "distCoeffs": raw_data.DISTORTION[None]}
    savemat(path.parent / "cam.mat", matrices)
    expected = read(write_table(path, lines(**FIVE)))
    for name in ("cam.yaml", "ros.yml", "cam.mat", str(path.parent / "cam.mat")):
        check_same(read(write_table(path, lines(camera=name, **NO_CAMERA))), expected)
    assert read_camera(path.parent / "ros.yml")[2] == (320, 240)


def test_field_of_view_gives_an_assumed_camera(path: Path) -> None:
    """Half of 320 px at 45 degrees: the focal length is 160 px. EXIF orientation 6 exchanges the sides."""
    raw_data.write_file(path.parent / "img/0001.jpg", raw_data.with_exif(raw_data.jpeg(1), 6))
    raw_data.write_file(path.parent / "img/0002.jpg", cv2.imencode(".png", np.zeros((48, 64), np.uint8))[1].tobytes())
    raw_data.write_file(path.parent / "img/0004.jpg", b"GIF89a")
    anna = read(write_table(path, lines(hfov_deg=[90, 90, 90, 90, 90, 1.2], **NO_CAMERA)))
    expected = [[160, 159.5, 119.5], [120, 119.5, 159.5], [32, 31.5, 23.5]]
    np.testing.assert_allclose(anna.cameras[:3, [0, 0, 1], [0, 2, 2]], expected, rtol=1e-12)
    assert anna.source == "assumed_camera" and not anna.distortions.any()
    words = "No such file", "not an image", "not between 20 and 150 degrees: is it in radians?"
    assert anna.reasons[:3] == [""] * 3 and all(map(str.__contains__, anna.reasons[3:], words))


def test_screen_converts_pixels(path: Path, capsys: pytest.CaptureFixture) -> None:
    """The middle of a 345 x 194 mm screen, 10 mm below a camera centred above it: 107 mm below the camera."""
    raw_data.write_file(path.parent / "screen.yaml", SCREEN)
    anna = read(write_table(path, lines(**NO_TARGET, target_x_px=[960, 0, 1920], target_y_px=[540, 0, 0])))
    np.testing.assert_allclose(anna.targets_mm, [[0, 107, 0], [172.5, 10, 0], [-172.5, 10, 0]], atol=1e-12)
    assert not capsys.readouterr().err
    read(write_table(path, lines(**NO_TARGET, target_x_px=[960, -1, 1920], target_y_px=[540, 0, 1081])))
    assert "the targets of 2 lines, such as line 3, are outside the screen" in capsys.readouterr().err
    raw_data.write_file(path.parent / "leaning.yaml", SCREEN + "rotation_deg: [30, 0, 0]\n")  # its lower edge is nearer
    leaning, below = read_screen(path.parent / "leaning.yaml"), 194 * np.array([0, np.cos(np.pi / 6), 0.5])
    np.testing.assert_allclose(leaning.to_mm(np.array([[0, 1080.0]]))[0], below + [172.5, 10, 0])
    np.testing.assert_allclose(leaning.hit(np.array([9, 9, 600.0]), below + [163.5, 1, -600]), [0, 1080], atol=1e-9)


@pytest.mark.parametrize(("unit", "angles"), [("rad", [0.2, -0.3]), ("deg", [11.5, -17.25])])
def test_gaze_angles_are_returned_exactly(path: Path, unit: str, angles: list[float]) -> None:
    """With the gaze origin on the camera's axis, the normalised camera is the camera."""
    origin = gaze_origins_mm(np.zeros((1, 3)), np.array([[0, 0, 600.0]]), INNER_EYE_CORNERS_14_MM[None])[0]
    head = dict(zip(HEAD, [0, 0, 0, *([0, 0, 1200] - origin)], strict=True))
    gaze = {f"gaze_pitch_{unit}": angles[0], f"gaze_yaw_{unit}": angles[1]}
    anna = read(write_table(path, lines(1, **NO_TARGET, **head, **gaze)))
    poses, _ = normalize_poses(anna.poses[:, :3], anna.poses[:, 3:], anna.corners_mm, anna.targets_mm)
    np.testing.assert_allclose(poses.labels[0, :2], angles if unit == "rad" else np.radians(angles), atol=1e-12)


ISO = ["2026-11-28T00:00:02", "2026-11-28T02:00:01+02:00", "2026-11-28 00:00:01.5Z"]


@pytest.mark.parametrize("times", [[2, 0, 1], ISO])
def test_frames_are_in_the_order_of_session_and_time(path: Path, times: list) -> None:
    rows = lines(session=["b", "a", "b"], time_s=times)
    assert read(write_table(path, rows)).files == ["img/0002.jpg", "img/0000.jpg", "img/0001.jpg"]
    rows[1]["time_s"] = "01/02/2026 10:00"
    assert "line 3, column time_s" in "".join(read(write_table(path, rows)).reasons)


def add_column(name: str, cells: Callable[[int], object]) -> Callable[[str], str]:
    return lambda text: "".join(f"{cells(i) if i else name},{line}\n" for i, line in enumerate(text.splitlines()))


def german(text: str) -> str:
    """Write decimal commas, in the numbers."""
    text = text.replace(",", ";").replace(".", ",").replace(",jpg", ".jpg")
    return text.replace("\n", "\r\n") + ";;;\r\n"


# Tables that spreadsheets, pandas and people write, made of a plain one.
TABLES: dict[str, Callable[[str], str]] = {
    "Excel": lambda text: "\ufeff" + text.replace("\n", "\r\n"),
    "Excel in German": german,
    "declared delimiter": lambda text: "sep=;\r\n" + german(text),
    "semicolon": lambda text: text.replace(",", ";"),
    "tab": lambda text: text.replace(",", "\t"),
    "quotes": lambda text: re.sub("[^,\n]+", r'"\g<0>"', text),
    "spaces and capitals": lambda text: text.replace(",", " , ").replace("image", "Image"),
    "empty lines": lambda text: text.replace("\n", "\n\n,,\n"),
    "trailing delimiters": lambda text: text.replace("\n", ",,\n"),
    "index of pandas": add_column("", lambda i: i - 1),
    "absolute paths and others": lambda text: text.replace("img/0000", "./img/0000").replace("img/0001", "{}/img/0001"),
    "index of pandas, read again": add_column("Unnamed: 0", lambda i: i - 1),
    "decimal comma elsewhere": add_column("note", lambda i: '"3,5"'),
    "line break in a cell": add_column("note", lambda i: '"a\nb"'),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_all_kinds_are_read(path: Path, name: str) -> None:
    expected = read(write_table(path, lines()))
    text = TABLES[name](path.read_text()).replace("{}", str(path.parent))
    path.write_bytes(text.encode())
    check_same(read(path), expected)


@pytest.mark.parametrize("index", [None, "image", "person", "other"])
def test_parquet_gives_the_same_frames(path: Path, index: str | None) -> None:
    expected, parquet = read(write_table(path, lines(person="7"))), path.with_suffix(".parquet")
    table = pd.DataFrame(lines(person=7, other=1))
    (table.set_index(index) if index else table).to_parquet(parquet)
    check_same(read(parquet), expected)
    table["fx_px"] = [300.0, None, np.nan]
    table.to_parquet(parquet)
    first, second, third = read(parquet).reasons
    assert not first and "line 3, column fx_px" in second and "line 4, column fx_px" in third


# Cells of all lines, or the content of a file, that make it unusable, and words of the message.
FILE_FAULTS: list[tuple[dict[str, object] | bytes, str]] = [
    (b"", "frames.csv: cannot be read"),
    (",".join(("image", *LINE)).encode(), "no lines"),
    ("image\tperson\n".encode("utf-16"), "save the table again, as CSV in UTF-8"),
    (b'image,person\n"a.jpg,anna\n', "cannot be read"),
    (b"image,person\na.jpg,anna\na,b.jpg,anna\n", "in line 3"),
    ({"person": None}, "line 1: has no column 'person'"),
    (NO_CAMERA, "has 0 descriptions of the camera, but needs exactly one: camera; or fx_px"),
    ({"cy_px": None}, "lacks cy_px: state all of fx_px, fy_px, cx_px, cy_px, or none"),
    ({"hfov_deg": 60}, "has 2 descriptions of the camera, but needs exactly one"),
    (NO_CAMERA | {"hfov_deg": 60} | dict.fromkeys(LENS, 0), "k1, k2, p1, p2 need fx_px"),
    ({"Person": "ben"}, "line 1: two columns are called 'person'"),
    ({"slpit": "train"}, "unknown column 'slpit': did you mean 'split'?"),
    ({"target_x_mm": None, "target_x_cm": 1}, "did you mean 'target_x_mm'? If so, rename the column"),
    ({"target_x_mm": -0.03, "target_y_mm": 0.08, "target_z_mm": 0}, "in mm, not cm or m"),
    ({"target_x_mm": list(range(12)), "target_y_mm": 8}, "in mm, not cm or m"),
    (NO_TARGET | {"gaze_pitch_rad": 12.5, "gaze_yaw_rad": 0}, "angles in degrees need the columns gaze_..._deg"),
    (NO_TARGET | {"target_x_px": 1, "target_y_px": 1}, "screen.yaml: cannot be read (No such file"),
    ({"head_rx": 20}, "rotate a head by more than a full turn"),
]


@pytest.mark.parametrize(("cells", "words"), FILE_FAULTS)
def test_fault_of_the_file_is_one_sentence(path: Path, cells: dict[str, object] | bytes, words: str) -> None:
    if isinstance(cells, bytes):
        path.write_bytes(cells)
    else:
        write_table(path, lines(**cells))
    with pytest.raises(UserError, match=re.escape(words)) as refused:
        read_manifest(path)
    assert str(refused.value).startswith(str(path.parent)) and "\n" not in str(refused.value)


# Cells of the second line that make it a reject, and words of the reason.
LINE_FAULTS: list[tuple[dict[str, object], str]] = [
    ({"fx_px": "wide"}, "line 3, column fx_px is 'wide': must be a finite number"),
    ({"head_rx": ""}, "column head_rx is ''"),
    ({"target_z_mm": "nan"}, "column target_z_mm is 'nan': must be a finite number"),
    ({"target_z_mm": "1,5"}, "with a decimal point"),
    ({"head_z_mm": "1,400.0"}, "no thousands separator"),
    ({"image": "/etc/passwd"}, "column image is '/etc/passwd': path is outside the data folder"),
    ({"image": "a/../../b.jpg"}, "path is outside the data folder"),
    ({"image": ""}, "column image is ''"),
    ({"fy_px": -3}, "focal lengths must be positive"),
    ({"face_model": "mine"}, "column face_model is 'mine': not one of faze, mpiigaze"),
    ({"head_x_mm": 0, "head_y_mm": 0, "head_z_mm": 0.6}, "write the position in mm"),
    ({"head_z_mm": -600}, "line 3: head pose is behind the camera"),
    ({"head_rx": 0, "head_ry": 3, "head_rz": 0}, "the head faces away from the camera"),
    ({"target_z_mm": 2000}, "the gaze points away from the camera"),
    (dict.fromkeys(TARGET, 0), "gaze target is (0, 0, 0), which means that it is missing"),
    ({"split": "training"}, "column split is 'training': not one of train, val, test"),
    ({"split": "val"}, "column split is 'val': the person is in another split in an earlier line"),
    ({"person": " "}, "column person is '': a name may not be empty"),
    ({"person": "a/b"}, "column person is 'a/b'"),
]


@pytest.mark.parametrize(("cells", "words"), LINE_FAULTS)
def test_fault_of_a_line_is_a_reject(path: Path, cells: dict[str, object], words: str) -> None:
    rows = lines(face_model="faze", split="train")
    rows[1] |= cells
    people = read_manifest(write_table(path, rows))
    *others, found = sorted(itertools.chain.from_iterable(person.reasons for person in people))
    assert words in found and found.startswith("line 3") and others == ["", ""]


def test_faults_of_camera_files_are_rejects(path: Path) -> None:
    files = {
        "cam.yaml": (OPENCV, ""),
        "none.yaml": (None, "none.yaml: cannot be read (No such file"),
        "short.yaml": (OPENCV.replace("0., 0., 1. ]", "0. ]"), "short.yaml: needs a (3, 3) camera matrix"),
        "bad.mat": ("MATLAB", "bad.mat: cannot be read"),
        "fish.yaml": (OPENCV + "fisheye_model: 1\n", "distortion model fisheye cannot be used"),
    }
    for name, (content, _) in files.items():
        if content:
            raw_data.write_file(path.parent / name, content)
    found = read(write_table(path, lines(**NO_CAMERA | {"camera": list(files)}))).reasons
    for reason, (_, words) in zip(found, files.values(), strict=True):
        assert words in reason and bool(words) == bool(reason)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("width_mm: 345\n", "", "must have the keys width_mm"),
        ("345", "34.5", "width_mm and height_mm"),
        ("1920", "wide", "each value must be a number"),
        ("1920", "1080", "pixels that are not square: are they swapped?"),
        ("[172.5, 10, 0]", "[172.5, 10]", "lists of three"),
        (SCREEN, "a: [", "cannot be read"),
    ],
)
def test_faults_of_a_screen(tmp_path: Path, old: str, new: str, words: str) -> None:
    raw_data.write_file(tmp_path / "screen.yaml", SCREEN.replace(old, new))
    with pytest.raises(UserError, match=f"screen.yaml: .*{words}"):
        read_screen(tmp_path / "screen.yaml")


def test_examples_of_the_page_are_read(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    raw_data.write_file(tmp_path / "screen.yaml", re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1])
    raw_data.write_file(tmp_path / "camera.yaml", OPENCV)
    for number in (1, 2):
        raw_data.write_file(tmp_path / f"anna/{number:04d}.jpg", raw_data.jpeg(number))
    smallest, complete = re.findall(r"```text\n(image,.*?)```", text, re.DOTALL)
    raw_data.write_file(tmp_path / "smallest.csv", smallest)
    raw_data.write_file(tmp_path / "complete.csv", complete)
    (anna,) = read_manifest(tmp_path / "smallest.csv", posed=False)
    np.testing.assert_allclose(anna.targets_mm[0], [0, 107, 0], atol=1e-12)
    anna, ben = read_manifest(tmp_path / "complete.csv")
    assert (anna.split, anna.reasons, ben.split, ben.reasons) == ("test", [""], "train", [""])
