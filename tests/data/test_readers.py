"""Readers: annotations become Frames; errors are reported, or listed frame by frame."""

import dataclasses
import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import raw_data
from damaged import flip
from scipy.io import savemat

from faze.base.errors import DamagedFile
from faze.data.normalization.images import read_image
from faze.data.normalization.pose import INNER_EYE_CORNERS_6_MM, INNER_EYE_CORNERS_14_MM, UnusableFrame
from faze.data.readers import Frame, Reject, check_entries, check_size, is_inside
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


def test_mpiifacegaze_by_the_supplementary_annotation(mpiifacegaze: Path, tmp_path: Path) -> None:
    """The supplementary annotation has its own people, frames and face model; the text files are not read."""
    (mpiifacegaze / "p00" / "p00.txt").unlink()
    entries = raw_data.supplementary(["p00/day01/0002.jpg", "p00/../../etc/passwd", "/etc/passwd"])
    write_supplementary(tmp_path / "s.h5", [("p00", entries), ("p09", entries)])
    reader = open_mpiifacegaze(mpiifacegaze, tmp_path / "s.h5")
    assert (reader.persons(), reader.count("p00"), reader.count("p09")) == (["p00", "p09"], 3, 1)
    frame, *rejects = reader.entries("p00")
    check_annotation(frame)
    assert (frame.file_name, frame.split) == ("p00/day01/0002.jpg", "")
    np.testing.assert_array_equal(frame.inner_eye_corners_mm, INNER_EYE_CORNERS_14_MM)
    assert [r.reason for r in rejects] == ["path leads out of the data folder"] * 2
    assert list(reader.entries("p09")) == [Reject("p09", "", "no folder p09")]


def test_a_path_out_of_mpiifacegaze_is_a_reject(mpiifacegaze: Path) -> None:
    with (mpiifacegaze / "p00" / "p00.txt").open("a") as file:
        file.write(raw_data.mpiifacegaze_line("../../secret.jpg") + "\n")
    *_, last = open_mpiifacegaze(mpiifacegaze, None).entries("p00")
    assert last == Reject("p00", "p00/../../secret.jpg", "path leads out of the data folder")


SCREEN = Path("Calibration", "screenSize.mat")


@pytest.mark.parametrize(
    ("name", "count"), [("p01.txt", 1), ("Calibration/Camera.mat", 3), ("Calibration/screenSize.mat", 3)]
)
def test_a_person_with_a_damaged_file_is_one_reject(mpiifacegaze: Path, name: str, count: int) -> None:
    """The table in tests/fuzz lists every kind of damage."""
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


def test_damage_to_the_supplementary_file_ends_the_run(gazecapture: Path) -> None:
    """Regression: the person was left out, and the ablation continued."""
    flip(gazecapture.with_suffix(".h5"), raw_data.supplementary(["a"] * 3).head_pose.tobytes())
    with pytest.raises(DamagedFile, match="gazecapture.h5: .* 00002 is corrupt"):
        list(open_gazecapture(gazecapture).entries("00002"))


def test_recordings_that_lack_frames_or_annotation_are_rejects(gazecapture: Path) -> None:
    (gazecapture / "00003").rename(gazecapture / "00007")
    reader = open_gazecapture(gazecapture)
    assert reader.persons() == ["00002", "00003", "00007"]
    assert [reader.count(person) for person in reader.persons()] == [3, 1, 1]
    assert list(reader.entries("00003")) == [Reject("00003", "", "no folder 00003")]
    assert list(reader.entries("00007")) == [Reject("00007", "", "not in the supplementary annotation")]


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


@pytest.mark.parametrize("original", [False, True])
def test_a_target_off_the_screen_is_marked_and_can_be_excluded(
    mpiifacegaze: Path, tmp_path: Path, original: bool, capsys: pytest.CaptureFixture
) -> None:
    """The annotated target is (640, 400) px; the edge is on the screen."""
    savemat(mpiifacegaze / "p00" / SCREEN, {"width_pixel": 640, "height_pixel": 400})
    savemat(mpiifacegaze / "p01" / SCREEN, {"width_pixel": 1280, "height_pixel": 399})
    raw = mpiifacegaze
    if original:
        write_mpiigaze(raw := tmp_path / "original", mpiifacegaze)
    reader = open_mpiifacegaze(raw, None)
    assert capsys.readouterr().err == ""
    assert [f.on_screen for person in reader.persons() for f in reader.entries(person)] == [True] * 3 + [False] * 3
    assert all(isinstance(entry, Frame) for entry in check_entries(reader.entries("p01"), False))
    excluded = list(check_entries(reader.entries("p01"), True))
    assert [entry.reason for entry in excluded] == ["gaze target off the screen"] * 3
    assert len({entry.file_name for entry in excluded}) == 3
    (raw / "p01" / SCREEN).unlink()
    reader = open_mpiifacegaze(raw, None)
    assert [f.on_screen for f in check_entries(reader.entries("p01"), True)] == [None] * 3
    (note,) = capsys.readouterr().err.splitlines()
    assert "1 of 2 people (p01) have no Calibration/screenSize.mat" in note


def test_the_supplementary_annotation_learns_of_the_screen(mpiifacegaze: Path, tmp_path: Path) -> None:
    savemat(mpiifacegaze / "p00" / SCREEN, {"width_pixel": 639, "height_pixel": 800})
    entries = raw_data.supplementary(["p00/day01/0002.jpg", "p00/day01/0077.jpg"])
    write_supplementary(tmp_path / "s.h5", [("p00", entries)])
    frames = list(open_mpiifacegaze(mpiifacegaze, tmp_path / "s.h5").entries("p00"))
    assert [(f.on_screen, f.label_source) for f in frames] == [(False, "supplementary"), (None, "supplementary")]


def test_a_frame_listed_twice_is_a_reject(mpiifacegaze: Path) -> None:
    with (mpiifacegaze / "p00" / "p00.txt").open("a") as file:
        file.write(raw_data.mpiifacegaze_line("day01/0001.jpg") + "\n")
    reader = open_mpiifacegaze(mpiifacegaze, None)
    assert (reader.persons(), reader.count("p00")) == (["p00", "p01"], 4)
    *_, last = check_entries(reader.entries("p00"), exclude_off_screen=False)
    assert last == Reject("p00", "p00/day01/0001.jpg", "listed twice")


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


def test_a_day_without_its_annotation_is_said(mpiifacegaze: Path, tmp_path: Path) -> None:
    """Regression: a day without annotation was ignored silently."""
    write_mpiigaze(tmp_path / "original", mpiifacegaze)
    before = open_mpiifacegaze(tmp_path / "original", None)
    person = before.persons()[0]
    count = before.count(person)
    (tmp_path / "original" / person / "day77").mkdir()
    reader = open_mpiifacegaze(tmp_path / "original", None)
    *frames, reject = reader.entries(person)
    assert reject == Reject(person, f"{person}/day77", "the day has no annotation.txt")
    assert len(frames) == count and reader.count(person) == count + 1


@pytest.mark.parametrize(
    ("name", "fits"),
    [("a/b.jpg", True), ("a\udcff.jpg", True), ("a\0.jpg", False), ("\ud800", False)]
    + [("", False), ("/a.jpg", False), ("a/../b.jpg", False), ("..a/b..jpg", True)],
)
def test_what_cannot_be_a_file_name_is_none(name: str, fits: bool) -> None:
    assert is_inside(name) is fits


def test_a_disk_that_is_gone_ends_the_run(mpiifacegaze: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: every frame on the lost disk became a reject, and the run continued."""

    def stale(*_: object, **__: object) -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    reader = open_mpiifacegaze(mpiifacegaze, None)
    person = reader.persons()[0]
    monkeypatch.setattr("builtins.open", stale)
    with pytest.raises(OSError, match="Stale"):
        list(reader.entries(person))
    with pytest.raises(OSError, match="Stale"):
        read_image(Path("frame.jpg"))
