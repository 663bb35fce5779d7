"""Head poses from landmarks: exact for exact ones, refused for unusable faces; `faze landmarks` from frames to HDF5.

Regression: the y axis of the target was not inverted; the principal point was in the frame's corner; any points were
accepted as a face; landmarks were half a frame off.
"""

import contextlib
import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import cv2
import fake_mediapipe
import numpy as np
import pytest
from fake_mediapipe import project
from numpy.typing import NDArray
from stage_runs import call_faze

from faze.data.landmarks.annotation import estimate_camera
from faze.data.landmarks.detector import open_faces
from faze.data.landmarks.pose import MIRRORED, pose_of
from faze.data.normalization.pose import UnusableFrame
from faze.data.readers.supplementary import read_supplementary

LENS = np.array([[573.0, 0, 239.5], [0, 590.0, 319.5], [0, 0, 1]])
STRAIGHT = np.zeros(5)
FRAME = np.zeros((640, 480, 3), np.uint8)
TASK = "face_landmarker.task"
FACE = project(np.array([0.1, 0, 0, 5, -10, 350.0]), LENS, STRAIGHT)
ASLEEP = np.vstack([FACE[:8], (FACE[[4, 4, 7, 7]] + FACE[[5, 5, 6, 6]]) / 2])


def random_pose(rng: np.random.Generator) -> NDArray:
    return np.array([*rng.uniform(-0.6, 0.6, 3), *rng.uniform(-60, 60, 2), rng.uniform(220, 500)])


POSES = [random_pose(np.random.default_rng(row)) for row in range(4)]  # of a recording


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write recordings, a manifest of the same frames, and a MediaPipe that finds no face in the second frame."""
    root, known = tmp_path_factory.mktemp("landmarks"), {}
    (root / "00002" / "frames").mkdir(parents=True)
    names = [f"{row}.png" for row in range(len(POSES))]
    contents = dict.fromkeys(("appleFace", "appleLeftEye", "appleRightEye"), {"IsValid": [1, 1, 1, 0]})
    contents |= {"info": {"Dataset": "train", "DeviceName": "iPhone 5"}, "frames": names}
    contents["dotInfo"] = dict.fromkeys(("XPts", "YPts", "XCam"), [2] * 4) | {"YCam": [-3] * 4, "Time": [1] * 4}
    for name, content in contents.items():
        (root / "00002" / f"{name}.json").write_text(json.dumps(content))
    lines = ["image,person,fx_px,fy_px,cx_px,cy_px,gaze_pitch_deg,gaze_yaw_deg"]
    for row, name in enumerate(names):
        image = np.full((640, 480, 3), row, np.uint8)
        image[:, :240] += 1  # not symmetric
        cv2.imwrite(str(root / "00002" / "frames" / name), image)
        landmarks_px = project(POSES[row], estimate_camera("iPhone 5", 480, 640), STRAIGHT)
        known |= {fake_mediapipe.key_of(image): (landmarks_px + 0.5) / [480, 640]} if row != 1 else {}
        lines.append(f"00002/frames/{name},{'abbb'[row]},610,610,239.5,319.5,-5,{row}")
    for other in ("00003", "00004"):
        shutil.copytree(root / "00002", root / other)
    (root / "00003" / "info.json").write_text('{"Dataset": "val", "DeviceName": "Nokia"}')
    (root / "00004" / "frames.json").write_text("[")
    (root / "frames.csv").write_text("\n".join(lines))
    (root / TASK).touch()
    return fake_mediapipe.install(root, known)


@pytest.fixture
def mediapipe(raw: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Import that MediaPipe; tests replace its `find`."""
    monkeypatch.syspath_prepend(raw)
    yield importlib.import_module("mediapipe")
    for name in [name for name in sys.modules if name.partition(".")[0] == "mediapipe"]:
        del sys.modules[name]


def test_exact_landmarks_give_the_pose() -> None:
    rng, large = np.random.default_rng(0), np.zeros((1280, 960, 3), np.uint8)  # no face is cut off
    lens = LENS + [[0, 0, 240], [0, 0, 320], [0, 0, 0]], np.array([0.1, -0.05, 0.001, 0.002, 0])
    for pose in (random_pose(rng) for _ in range(50)):
        np.testing.assert_allclose(pose_of(project(pose, *lens), large, lens), pose, atol=1e-3)


def test_the_strip_is_centred_between_the_inner_eye_corners_wherever_the_eyes_are_in_the_face() -> None:
    lens, found = (LENS, STRAIGHT), FACE - np.array([[0, 6]]) * (np.arange(12)[:, None] >= 4)
    middle_px = project(pose_of(found, FRAME, lens), *lens)[5:7].mean(axis=0)
    np.testing.assert_allclose(middle_px, found[5:7].mean(axis=0), atol=0.1)


@pytest.mark.parametrize(
    ("points", "reason"),
    [
        (FACE, ""),
        (np.vstack([ASLEEP[:10], FACE[10:]]), ""),
        (ASLEEP, "both eyes are closed"),
        (FACE - [FACE[:, 0].min() + 1, 0], "the frame's edge cuts off the eyes or the nose"),
        (FACE + [0, 641 - FACE[:, 1].max()], "the frame's edge cuts off the eyes or the nose"),
        (FACE * 0.27 + 200, ""),
        (FACE * 0.25 + 200, "face is too small: 37 px between the outer eye corners"),
        (project(np.array([0, 0.95, 0, 0, 0, 350.0]), LENS, STRAIGHT), "face is turned away from the camera by 5"),
        (FACE + 20 * (np.arange(12)[:, None] == 5), "landmarks do not form a face: they are .* px from the face model"),
        (np.random.default_rng(0).uniform(0, 400, (12, 2)), "landmarks do not form a face"),
    ],
)
def test_unusable_faces_are_refused(points: NDArray, reason: str) -> None:
    with pytest.raises(UnusableFrame, match=reason) if reason else contextlib.nullcontext():
        pose_of(points, FRAME, (LENS, STRAIGHT))


def mirror(face: NDArray, width_px: int) -> NDArray:
    return (face * [-1, 1] + [width_px - 1, 0])[list(MIRRORED)]


def test_several_faces_are_averaged_with_their_own_mirror_images(mediapipe: ModuleType, raw: Path) -> None:
    """MediaPipe lists the faces in any order; the largest comes first, and an unclear one is a reason."""
    places = (-80, 0, 600.0), (60, 10, 400.0), (150, 0, 700.0)
    seen = [project(np.array([0, 0, 0, *at]), LENS, STRAIGHT) for at in places]
    mirrored = [mirror(face, 480) + error for face, error in zip(seen, (1, 0, [0, 40]), strict=True)]
    frame = FRAME.copy()
    frame[:, :240] = 1  # not symmetric
    mediapipe.find = lambda rgb: seen if rgb[0, 0, 0] else mirrored[::-1]
    with open_faces(raw / TASK, 3) as detect:
        found = detect(frame)
    np.testing.assert_allclose(found[0], seen[1], atol=1e-9)
    np.testing.assert_allclose(found[1], seen[0] + [-0.5, 0.5], atol=1e-9)
    assert isinstance(found[2], UnusableFrame) and "eyes are covered or unclear" in str(found[2])
    mediapipe.find = lambda rgb: seen if rgb[0, 0, 0] else []
    with open_faces(raw / TASK, 2) as detect:
        assert detect(frame) == []


@pytest.mark.parametrize("shape", [(720, 1280), (1280, 720)])
def test_small_faces_are_found_in_square_parts_of_a_frame(mediapipe: ModuleType, raw: Path, shape: tuple) -> None:
    """The parts overlap; each face is listed once, as it is where it is most central."""
    axis = int(shape[0] > shape[1])  # of the parts' middles
    face = project(np.array([0, 0, 0, 0, 0, 600.0]), LENS, STRAIGHT)  # 85 px wide, of 1280
    faces = [face - face.mean(axis=0) + np.roll(center, axis) for center in ([300, 350], [420, 380], [900, 340])]
    image = np.zeros((*shape, 3), np.uint8)
    image[..., 1], image[..., 0] = np.indices(shape) // 8  # says where a part is

    def find(rgb: NDArray[np.uint8]) -> list[NDArray]:
        """Find the faces, but not in large frames; the error grows with the distance from the middle."""
        if max(rgb.shape[:2]) > 720:
            return []
        moved = [face - 8 * rgb[..., [2, 1]].min(axis=(0, 1)).astype(int) for face in faces]
        inside = [face for face in moved if (face > 0).all() and (face < 720).all()]
        found = [face + [0, 0.001 * np.linalg.norm(face.mean(axis=0) - 360)] for face in inside]
        return [mirror(face, 720) for face in found] if rgb[0, 0, 2] > rgb[0, -1, 2] else found

    mediapipe.find = find
    with open_faces(raw / TASK, 3) as detect:
        found = sorted(detect(image), key=lambda points: points[0, axis])
    middles = np.roll([[start + 360, 360] for start in (0, 280, 560)], axis, axis=1)
    for face, points in zip(faces, found, strict=True):
        error = 0.001 * np.linalg.norm(middles - face.mean(axis=0), axis=1).min()
        np.testing.assert_allclose(points, face + [0, error], atol=1e-3)


def test_recordings_get_cameras_head_poses_and_reasons(raw: Path, tmp_path: Path) -> None:
    words = ["--raw", raw, "--model", raw / TASK, "--threads", "2", "--out", tmp_path / "out.h5"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(raw), *sys.path])}
    subprocess.run([sys.executable, "-m", "faze", "landmarks", *words], env=environment, check=True)
    own, *others = [read_supplementary(tmp_path / "out.h5", f"0000{number}", raw) for number in (2, 3, 4)]
    np.testing.assert_allclose(own.poses[[0, 2]], np.array(POSES)[[0, 2]], atol=1e-3)
    np.testing.assert_allclose(own.cameras[0], [[610, 0, 239.5], [0, 610, 319.5], [0, 0, 1]])
    np.testing.assert_allclose(estimate_camera("ipad 2", 320, 240), [[323.5, 0, 159.5], [0, 323.5, 119.5], [0, 0, 1]])
    np.testing.assert_allclose(own.targets_mm[0], [-20, 30, 0])
    assert own.reasons[:3] == ["", "no face found", ""] and "IsValid 0" in own.reasons[3] and own.source == "estimated"
    assert [person.files for person in others] == [[""], [""]]
    assert "device 'Nokia' is unknown" in others[0].reasons[0] and "frames.json" in others[1].reasons[0]


def run(raw: Path, model: Path) -> int:
    return call_faze("landmarks", "--raw", raw, "--model", model, "--threads", 1, "--out", model.with_name("out.h5"))


def test_a_killed_run_of_a_manifest_resumes_with_the_others(mediapipe: ModuleType, raw: Path) -> None:
    find, searched = mediapipe.find, []
    mediapipe.find = lambda rgb: {0: find}[rgb.min()](rgb)  # fails at the second frame
    with pytest.raises(KeyError):
        run(raw / "frames.csv", raw / TASK)
    mediapipe.find = lambda rgb: searched.append(rgb.min()) or find(rgb)
    assert run(raw / "frames.csv", raw / TASK) == 0 and set(searched) == {1, 2, 3} and not [*raw.glob(".work*")]
    first, second = (read_supplementary(raw / "out.h5", name, raw) for name in "ab")
    np.testing.assert_allclose(np.vstack([first.poses, second.poses])[[0, 2, 3]], np.array(POSES)[[0, 2, 3]], atol=1e-3)
    assert second.files[0] == "00002/frames/1.png" and second.reasons == ["no face found", "", ""]


def test_what_is_missing_is_one_sentence(mediapipe: ModuleType, raw: Path, monkeypatch, capsys) -> None:
    def sentence(folder: Path = raw, model: str = TASK) -> str:
        assert run(folder, raw / model) == 1
        return capsys.readouterr().err.splitlines()[-1]

    (raw / "notes.txt").touch()
    assert "nowhere.task: no such file" in sentence(model="nowhere.task")
    assert "notes.txt: cannot be read" in sentence(model="notes.txt")
    assert "contains no folders 00002" in sentence(folder=raw / "00002")
    monkeypatch.setitem(sys.modules, "mediapipe", None)
    assert "make landmarker" in sentence()
