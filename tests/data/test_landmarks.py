"""Head pose from landmarks: exact for exact ones, refused for impossible ones; the output is marked `estimated`.

Regression: the y axis of the target was not inverted; the principal point was in the frame's corner; any points were
accepted as a face; landmarks were half a frame off; the origin was not written.
"""

import dataclasses
import itertools
import json
import sys
from pathlib import Path

import cv2
import fake_mediapipe
import numpy as np
import pytest
import raw_data
from fake_mediapipe import with_open_eyes
from numpy.typing import NDArray
from one_frame import normalize_pose

from faze.__main__ import main
from faze.base.geometry import angular_error, vector_from_pitchyaw
from faze.config.parameters import Synthetic
from faze.config.validation import read_yaml
from faze.data.landmarks import detector, gazecapture
from faze.data.landmarks.detector import ENVIRONMENT, open_detector, open_faces
from faze.data.landmarks.gazecapture import annotate, estimate_camera
from faze.data.landmarks.pose import FACE_MODEL_MM, MIRRORED, check_landmarks, estimate_pose
from faze.data.normalization.pose import UnusableFrame
from faze.data.readers import Frame
from faze.data.readers.gazecapture import GazeCapture
from faze.data.store.supplementary import Supplementary, read_supplementary, write_supplementary
from faze.data.synthetic import layouts
from faze.data.synthetic.people import cast, write_person

LENS = np.array([[573.0, 0, 239.5], [0, 590.0, 319.5], [0, 0, 1]])
VALUES = read_yaml(Path(__file__).parents[2] / "config" / "config.yaml")["synthetic"]
DEFAULT = Synthetic(**VALUES | {"gazecapture_train_frames": None})


def project(pose: NDArray, matrix: NDArray = LENS, distortion: NDArray | None = None) -> NDArray:
    """Return the landmarks (12, 2) of the face model in a pose."""
    return with_open_eyes(cv2.projectPoints(FACE_MODEL_MM, pose[:3], pose[3:], matrix, distortion)[0].reshape(-1, 2))


def random_pose(rng: np.random.Generator) -> NDArray:
    return np.array([*rng.uniform(-0.6, 0.6, 3), *rng.uniform(-60, 60, 2), rng.uniform(220, 500)])


STRAIGHT = np.zeros(5)


def test_exact_landmarks_give_the_pose() -> None:
    rng = np.random.default_rng(0)
    for pose in (random_pose(rng) for _ in range(50)):
        np.testing.assert_allclose(estimate_pose(project(pose), LENS, STRAIGHT), pose, atol=1e-3)


def test_several_faces_are_averaged_with_their_own_mirror_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """MediaPipe lists the faces in any order; the largest comes first, and an unclear one is a reason."""
    poses = [np.array([0, 0, 0, -80, 0, 600.0]), np.array([0, 0, 0, 60, 10, 400.0]), np.array([0, 0, 0, 150, 0, 700.0])]
    seen = [project(pose) for pose in poses]
    mirrored = [(face * [-1, 1] + [479, 0])[list(MIRRORED)] for face in seen]
    mirrored[0] = mirrored[0] + 1.0  # as MediaPipe's noise
    mirrored[2] = mirrored[2] + [0, 40]
    both = iter([lambda rgb: seen, lambda rgb: mirrored[::-1]])
    monkeypatch.setattr(detector, "_open_mesh", lambda stack, most, remedy: next(both))
    with open_faces(None, 3, ENVIRONMENT) as detect:
        found = detect(np.zeros((640, 480, 3), np.uint8))
    np.testing.assert_allclose(found[0], seen[1], atol=1e-9)
    np.testing.assert_allclose(found[1], seen[0] + [-0.5, 0.5], atol=1e-9)
    assert isinstance(found[2], UnusableFrame) and "eyes are covered or unclear" in str(found[2])
    both = iter([lambda rgb: seen, lambda rgb: []])
    with open_faces(None, 2, ENVIRONMENT) as detect:
        assert detect(np.zeros((640, 480, 3), np.uint8)) == []
    alternating = itertools.cycle([seen, mirrored])  # one thread, for the frame and then for its mirror image
    both = iter([lambda rgb: next(alternating) if rgb.shape[0] == 640 else []])
    with open_detector(None) as detect:
        np.testing.assert_allclose(detect(np.zeros((640, 480, 3), np.uint8)), seen[1], atol=1e-9)


@pytest.mark.parametrize("upright", [False, True])
def test_small_faces_are_found_in_square_parts_of_a_frame(monkeypatch: pytest.MonkeyPatch, upright: bool) -> None:
    """The parts overlap; each face is listed once, as it is where it is most central."""
    shape = project(np.array([0, 0, 0, 0, 0, 600.0]))  # 85 px wide, of 1280
    centers = np.array([[300, 350], [420, 380], [900, 340]])[:, :: -1 if upright else 1]
    drawn = [(shape - shape.mean(axis=0) + center).round() for center in centers]
    image = np.zeros((1280, 720, 3) if upright else (720, 1280, 3), np.uint8)
    for color, face in enumerate(drawn, start=1):
        for number, (x, y) in enumerate(face.astype(int)):
            image[y, x] = color, 0, 1 + number
    searched = []

    def find(rgb: NDArray[np.uint8]) -> list[NDArray]:
        """Find the faces, but not in large frames; the error grows with the distance from the middle."""
        searched.append(rgb.shape[:2])
        found = []
        for color in (1, 2, 3):
            rows, columns = np.nonzero(rgb[..., 2] == color)
            face = np.column_stack([columns, rows])[np.argsort(rgb[rows, columns, 0])].astype(float)
            if len(face) == 12 and max(rgb.shape[:2]) <= 1000:
                face = face if face[4, 0] < face[7, 0] else face[list(MIRRORED)]  # the frame is mirrored
                found.append(face + [0, 0.001 * np.linalg.norm(face.mean(axis=0) - np.array(rgb.shape[1::-1]) / 2)])
        return found

    monkeypatch.setattr(detector, "_open_mesh", lambda stack, most, remedy: find)
    with open_faces(None, 3, ENVIRONMENT, threads=1) as detect:
        searched.clear()
        found = detect(image)
        assert searched == [image.shape[:2]] * 2 + [(720, 720)] * 6
        middles = np.array([[360, start + 360] if upright else [start + 360, 360] for start in (0, 280, 560)])
        for face, points in zip(drawn, sorted(found, key=lambda points: points[0, int(upright)]), strict=True):
            error = 0.001 * np.linalg.norm(middles - face.mean(axis=0), axis=1).min()
            np.testing.assert_allclose(points, face + [0, error], atol=1e-3)
        searched.clear()
        assert len(detect(image[:720, :720])) == 2 and len(searched) == 2  # faces are large


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda points: points[:7], "expected 8 finite landmark positions"),
        (lambda points: np.full((12, 2), np.nan), "expected 8 finite landmark positions"),
        (lambda points: points[::-1], "not those of a face|behind the camera"),
        (lambda points: np.random.default_rng(0).uniform(0, 400, (12, 2)), "not those of a face|behind the camera"),
        (
            lambda points: points + 20 * (np.arange(12)[:, None] == 5),
            r"not those of a face: .* px from the face model",
        ),
    ],
)
def test_landmarks_that_are_no_face_are_refused(spoil, reason: str) -> None:
    points = project(np.array([0.1, 0.2, 0, 5, -10, 350.0]))
    with pytest.raises(UnusableFrame, match=reason):
        estimate_pose(spoil(points), LENS, STRAIGHT)


@pytest.mark.parametrize("rotation", [(0, 0.95, 0), (0, -0.95, 0), (0.95, 0, 0), (-0.95, 0, 0)])
def test_a_face_that_is_turned_away_is_refused(rotation: tuple[float, ...]) -> None:
    """The limit applies to the angle between the face and the camera: 54 degrees here."""
    with pytest.raises(UnusableFrame, match="face is turned away from the camera by 5[345] degrees"):
        estimate_pose(project(np.array([*rotation, 0, 0, 350.0])), LENS, STRAIGHT)
    estimate_pose(project(np.array([*np.multiply(rotation, 0.85), 0, 0, 350.0])), LENS, STRAIGHT)


def closed(points: NDArray, eyes: int) -> NDArray:
    """Move the lids of one or two eyes together."""
    points = points.copy()
    for upper, lower in ((8, 9), (10, 11))[:eyes]:
        points[[upper, lower]] = points[[upper, lower]].mean(axis=0) + [[0, -1], [0, 1]]
    return points


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda points: points, ""),
        (lambda points: closed(points, eyes=1), ""),
        (lambda points: closed(points, eyes=2), "both eyes are closed"),
        (lambda points: points - [points[:, 0].min() - 1, 0], ""),
        (lambda points: points - [points[:, 0].min() + 1, 0], "the frame's edge cuts off the eyes or the nose"),
        (lambda points: points + [481 - points[:, 0].max(), 0], "the frame's edge cuts off the eyes or the nose"),
        (lambda points: points + [0, 641 - points[:, 1].max()], "the frame's edge cuts off the eyes or the nose"),
        (lambda points: points * 0.27 + 200, ""),
        (lambda points: points * 0.25 + 200, "face is too small: 37 px between the outer eye corners"),
        (lambda points: points[:11], "expected 12 finite landmark positions"),
        (lambda points: points * np.nan, "expected 12 finite landmark positions"),
    ],
)
def test_faces_that_are_not_visible_enough_are_refused(spoil, reason: str) -> None:
    points = spoil(project(np.array([0.1, 0, 0, 5, -10, 350.0])))
    if reason:
        with pytest.raises(UnusableFrame, match=reason):
            check_landmarks(points, (480, 640))
    else:
        check_landmarks(points, (480, 640))


def test_a_camera_is_known_by_its_device_whichever_way_it_is_held() -> None:
    np.testing.assert_allclose(estimate_camera("iPhone 6s", 480, 640), [573, 573, 239.5, 319.5])
    np.testing.assert_allclose(estimate_camera("iphone 6S", 640, 480), [573, 573, 319.5, 239.5])
    np.testing.assert_allclose(estimate_camera("iPad 2", 320, 240), [323.5, 323.5, 159.5, 119.5])
    with pytest.raises(ValueError, match="device 'Nokia 3310' is unknown"):
        estimate_camera("Nokia 3310", 480, 640)


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Supplementary]]:
    """Create three recordings with their true annotation."""
    root = tmp_path_factory.mktemp("landmarks") / "gazecapture"
    people = dict.fromkeys(
        ("mpiigaze_people", "gazecapture_train_people", "gazecapture_val_people", "gazecapture_test_people"), 1
    )
    synthetic = DEFAULT.model_copy(update={"frames_per_person": 6, **people})
    written = [write_person(role, synthetic, root) for role in cast(synthetic) if role.layout == "gazecapture"]
    layouts.write_arrays(root.parent / "true.h5", {p.role.person_id: layouts.supplementary(p) for p in written})
    return root, {p.role.person_id: read_supplementary(root.parent / "true.h5", p.role.person_id) for p in written}


def exact_landmarks(true: Supplementary) -> list[NDArray]:
    """Return the landmarks of each frame, (12, 2) px, projected through the true camera with its distortion."""
    cameras = (np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]]) for fx, fy, cx, cy in true.camera_parameters)
    return [project(*row) for row in zip(true.head_pose, cameras, true.distortion_parameters, strict=True)]


def gaze_errors_deg(raw: Path, estimated: Path, true: dict[str, Supplementary]) -> NDArray:
    reader, errors = GazeCapture(raw, estimated), []
    for person in reader.persons():
        for frame in reader.entries(person):
            assert isinstance(frame, Frame) and frame.label_source == "estimated" and frame.on_screen and frame.device
            own = true[person]
            np.testing.assert_allclose(frame.gaze_target_mm, own.gaze_target_mm[frame.frame_index], atol=1e-9)
            pose = own.head_pose[frame.frame_index]
            corners = frame.inner_eye_corners_mm
            wanted = normalize_pose(pose[:3], pose[3:], corners, own.gaze_target_mm[frame.frame_index]).labels
            found = normalize_pose(frame.rotation_vector, frame.translation_mm, corners, frame.gaze_target_mm).labels
            errors.append(angular_error(vector_from_pitchyaw(found[None, :2]), vector_from_pitchyaw(wanted[None, :2])))
    return np.degrees(np.concatenate(errors))


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["faze", "landmarks", *map(str, arguments)])
    return main()


def test_exact_landmarks_and_camera_give_the_annotated_gaze(
    rendered: tuple[Path, dict[str, Supplementary]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw, true = rendered
    entries = {}
    for person, own in true.items():
        cameras = iter(own.camera_parameters)
        monkeypatch.setattr(gazecapture, "estimate_camera", lambda *_, cameras=cameras: next(cameras))
        straight = dataclasses.replace(own, distortion_parameters=np.zeros((6, 5)))
        points = iter(exact_landmarks(straight))
        entries[person] = annotate(raw, person, lambda image, points=points: next(points))
    write_supplementary(tmp_path / "estimated.h5", entries.items())
    assert gaze_errors_deg(raw, tmp_path / "estimated.h5", true).max() < 0.02


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    """Create a recording of three single-coloured frames with all of its JSON files."""
    raw_data.write_gazecapture(tmp_path / "raw", tmp_path / "unused.h5", splits=("train",))
    folder = tmp_path / "raw" / "00002"
    arrays = {"XPts": [10, 20, 30], "YPts": [10, 20, 600], "XCam": [1, 2, 3], "YCam": [-4, -5, -6]}
    (folder / "dotInfo.json").write_text(json.dumps(arrays))
    (folder / "screen.json").write_text(json.dumps({"W": [320] * 3, "H": [568] * 3, "Orientation": [1, 9, 4]}))
    (folder / "info.json").write_text(json.dumps({"Dataset": "train", "DeviceName": "iPhone 5"}))
    return tmp_path / "raw"


def test_what_the_stage_lacks_is_one_sentence(
    flat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def sentence(*arguments: object) -> str:
        assert run(monkeypatch, "--out", tmp_path / "out.h5", *arguments) == 1
        assert not list(tmp_path.glob("*.parts"))
        return capsys.readouterr().err.splitlines()[-1]

    monkeypatch.setitem(sys.modules, "mediapipe", None)
    assert "envs/landmarks.yaml (set landmarks.python" in sentence("--raw", flat)
    assert "contains no folder 00002" in sentence("--raw", tmp_path)
    monkeypatch.delitem(sys.modules, "mediapipe")
    monkeypatch.syspath_prepend(fake_mediapipe.install(tmp_path / "fake", {}))
    assert "no frame of any recording has a head pose" in sentence("--raw", flat)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.h5.lock", "fake", "raw", "unused.h5"]
