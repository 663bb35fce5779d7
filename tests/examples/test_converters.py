"""Converters of public data sets: their manifests contain the poses, cameras and targets of files in these layouts.

The files are made here, in the documented layouts. Numbers differ between axes, so that an exchange would be noticed.
"""

import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import cv2
import h5py
import numpy as np
import pytest
import raw_data

from faze.config.parameters import NormalizedCamera
from faze.data.normalization.images import read_image
from faze.data.normalization.pose import NormalizedPose, gaze_origins_mm, normalize_poses
from faze.data.normalization.warp import make_strip
from faze.data.readers.manifest import needs_landmarks, read_manifest
from faze.data.readers.person import Person

ROOT = Path(__file__).resolve().parents[2]
WIDTH_PX, HEIGHT_PX = raw_data.WIDTH_PX, raw_data.HEIGHT_PX
MATRIX, LENS = np.array([[900.0, 0, 170], [0, 910, 113], [0, 0, 1]]), np.array([0.1, -0.2, 0.001, -0.002, 0.05])
CORNERS = np.array([[-18.0, -32, 29], [20, -30, 27]])  # midpoint (1, -31, 28)
POSITION, TARGET = np.array([5.0, 30, 400]), np.array([-30.0, 80, 5])
TURNED = np.array([0.1, -0.2, 0.05])  # rotation vector of frame0002
TURN = np.diag([-1.0, -1, 1])


def run(script: str, *arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, ROOT / f"examples/{script}_manifest.py", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def frames_of(manifest: Path, name: str) -> list[Person]:
    """Return a person's frames, each as a person of one frame."""
    (person,) = [person for person in read_manifest(manifest) if person.name == name]
    assert not any(person.reasons), person.reasons
    return [person[row : row + 1] for row in range(len(person.files))]


def people_of(manifest: Path) -> list[str]:
    return [person.name for person in read_manifest(manifest)]


def origin_of(frame: Person) -> np.ndarray:
    return gaze_origins_mm(frame.poses[:, :3], frame.poses[:, 3:], frame.corners_mm)[0]


def pose_of(frame: Person) -> NormalizedPose:
    return normalize_poses(frame.poses[:, :3], frame.poses[:, 3:], frame.corners_mm, frame.targets_mm)[0][0]


def rotation_of(frame: Person) -> np.ndarray:
    return cv2.Rodrigues(frame.poses[0, :3])[0]


# ETH-XGaze


def annotation(frame: str, camera: int, rotation: np.ndarray) -> list[object]:
    landmarks = np.arange(136.0).reshape(68, 2)
    points = (CORNERS @ cv2.Rodrigues(rotation)[0].T + POSITION) @ MATRIX.T
    landmarks[[39, 42]] = points[:, :2] / points[:, 2:]
    return [frame, f"cam{camera:02d}.JPG", 960, 540, *TARGET, *rotation, *POSITION, *landmarks.ravel()]


def image(camera: int) -> bytes:
    """Return the same scene for both cameras, of which camera 3 stores it rotated."""
    upright = cv2.imdecode(np.frombuffer(raw_data.jpeg(0), np.uint8), cv2.IMREAD_COLOR)
    turn = cv2.getRotationMatrix2D((WIDTH_PX / 2, HEIGHT_PX / 2), 180, 1)
    stored = cv2.warpAffine(upright, turn, (WIDTH_PX, HEIGHT_PX)) if camera == 3 else upright
    return cv2.imencode(".png", stored)[1].tobytes()


def write_xgaze(raw: Path) -> None:
    model = np.random.default_rng(0).normal(0, 40, (50, 3))
    model[[23, 26]] = CORNERS
    (raw / "calibration/cam_calibration").mkdir(parents=True)
    np.savetxt(raw / "calibration/face_model.txt", model)
    for camera in (0, 3):
        path = raw / f"calibration/cam_calibration/cam{camera:02d}.xml"
        file = cv2.FileStorage(str(path), cv2.FILE_STORAGE_WRITE)
        file.write("Camera_Matrix", MATRIX)
        file.write("Distortion_Coefficients", LENS[None])
        file.release()
    lines = [("frame0000", np.zeros(3)), ("frame0001", np.zeros(3)), ("frame0002", TURNED)]
    for person in ("subject0000", "subject0004"):
        path = raw / f"data/annotation_train/{person}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(annotation(frame, camera, r) for frame, r in lines for camera in (0, 3))
        for frame, camera in (("frame0000", 0), ("frame0000", 3), ("frame0002", 0), ("frame0002", 3)):
            raw_data.write_file(raw / f"data/train/{person}/{frame}/cam{camera:02d}.JPG", image(camera))
    raw_data.write_file(raw / "train_test_split.json", json.dumps({"train": ["subject0004.h5"], "test": []}))


@pytest.fixture(scope="module")
def xgaze(tmp_path_factory: pytest.TempPathFactory) -> Path:
    raw = tmp_path_factory.mktemp("xgaze") / "ETH-XGaze"
    write_xgaze(raw)
    done = run("eth_xgaze", raw, raw.parent / "frames.csv")
    assert done.returncode == 0, done.stderr
    return raw.parent / "frames.csv"


def test_xgaze_people_images_and_splits(xgaze: Path) -> None:
    manifest = people_of(xgaze)
    assert manifest == ["subject0000", "subject0004"]
    frames = frames_of(xgaze, "subject0004")  # frame0001 has no images
    folder = "ETH-XGaze/data/train/subject0004"
    names = [f"{folder}/{name}" for name in ("frame0000/cam00.JPG", "frame0000/cam03.JPG", "frame0002/cam00.JPG")]
    assert [frame.files[0] for frame in frames][:3] == names and len(frames) == 4
    assert all((frame.folder / frame.files[0]).is_file() for frame in frames)
    assert (frames[0].split, frames_of(xgaze, "subject0000")[0].split) == ("train", "test")


def test_xgaze_keeps_rotation_and_midpoint_of_the_eye_corners(xgaze: Path) -> None:
    upright, _, turned, _ = frames_of(xgaze, "subject0000")
    np.testing.assert_allclose(rotation_of(upright), np.eye(3), atol=1e-12)
    np.testing.assert_allclose(origin_of(upright), [6, -1, 428], atol=1e-9)  # (1, -31, 28) + (5, 30, 400)
    np.testing.assert_allclose(turned.poses[0, :3], TURNED, atol=1e-12)
    expected = cv2.Rodrigues(TURNED)[0] @ [1, -31, 28] + POSITION
    np.testing.assert_allclose(origin_of(turned), expected, atol=1e-9)
    np.testing.assert_array_equal(upright.targets_mm[0], TARGET)
    np.testing.assert_array_equal(upright.cameras[0], MATRIX)
    np.testing.assert_array_equal(upright.distortions[0, :5], LENS)


def test_xgaze_gaze_has_fazes_signs(xgaze: Path) -> None:
    """The target is to the left of the eyes in the image, which is the person's right, and below them."""
    pitch, yaw, *_ = pose_of(frames_of(xgaze, "subject0000")[0]).labels
    eyes = np.array([6.0, -1, 428])
    to_target = TARGET - eyes
    assert pitch < 0 < yaw
    cosine = -eyes @ to_target / np.linalg.norm(eyes) / np.linalg.norm(to_target)
    np.testing.assert_allclose(np.cos(pitch) * np.cos(yaw), cosine, atol=1e-12)


def test_xgaze_rotated_camera_describes_the_stored_image(xgaze: Path) -> None:
    for plain, rotated in zip(*[iter(frames_of(xgaze, "subject0000"))] * 2, strict=True):
        np.testing.assert_allclose(rotated.cameras[0], [[900, 0, 150], [0, 910, 127], [0, 0, 1]])
        np.testing.assert_allclose(rotated.distortions[0, :5], LENS * [1, 1, -1, -1, 1])
        np.testing.assert_allclose(rotated.targets_mm[0], [30, -80, 5])
        np.testing.assert_allclose(rotation_of(rotated), TURN @ rotation_of(plain), atol=1e-9)
        np.testing.assert_allclose(origin_of(rotated), TURN @ origin_of(plain), atol=1e-9)
        np.testing.assert_allclose(pose_of(rotated).labels, pose_of(plain).labels, atol=1e-9)
        pixels = [
            cv2.projectPoints(
                np.zeros((1, 3)) + [3, 7, 11], f.poses[0, :3], f.poses[0, 3:], f.cameras[0], f.distortions[0, :5]
            )
            for f in (plain, rotated)
        ]
        np.testing.assert_allclose(pixels[1][0].ravel(), [WIDTH_PX, HEIGHT_PX] - pixels[0][0].ravel(), atol=1e-6)


def test_xgaze_rotated_camera_gives_the_same_strips(xgaze: Path) -> None:
    camera, strips = NormalizedCamera(focal_length_px=900.0, distance_mm=600.0, width_px=64, height_px=64), []
    for frame in frames_of(xgaze, "subject0000"):
        image, lens = read_image(frame.folder / frame.files[0]), (frame.cameras[0], frame.distortions[0, :5])
        strips.append(make_strip(image, lens, pose_of(frame), camera).astype(int))
    assert strips[0].std() > 20
    np.testing.assert_allclose(strips[1::2], strips[::2], atol=3)


def shortened(raw: Path) -> None:
    path = raw / "data/annotation_train/subject0000.csv"
    path.write_text(path.read_text().replace("960,540,", "960,", 1))


def in_metres(raw: Path) -> None:
    path = raw / "data/annotation_train/subject0000.csv"
    path.write_text(path.read_text().replace(",5.0,30.0,400.0,", ",0.005,0.03,0.4,"))


CAM = "calibration/cam_calibration/cam03.xml"
XGAZE_FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no camera": (lambda raw: (raw / CAM).unlink(), "cam03.xml: has no Camera_Matrix"),
    "columns": (shortened, "subject0000.csv, line 1: does not contain frameNNNN, camNN.JPG and 147 numbers"),
    "unit": (in_metres, "subject0000.csv: its head poses do not match the eye landmarks"),
    "no lines": (lambda raw: shutil.rmtree(raw / "data/annotation_train"), "is RAW the raw data?"),
}


@pytest.mark.parametrize("name", XGAZE_FAULTS)
def test_xgaze_faults_are_one_sentence(tmp_path: Path, name: str) -> None:
    write_xgaze(tmp_path)
    fault, words = XGAZE_FAULTS[name]
    fault(tmp_path)
    done = run("eth_xgaze", tmp_path, tmp_path / "frames.csv")
    assert done.returncode == 1 and words in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr
    assert not (tmp_path / "frames.csv").exists()


# EVE

COUNT = 6
TO_CAMERA = np.array([[-1.0, 0, 0, 250], [0, 1, 0, 12], [0, 0, -1, 3], [0, 0, 0, 1]])
HEAD = np.array([0.05, -0.1, 0.02])
EYES = np.array([[40.0, -20, 600], [-24, -18, 604]])  # left, right; midpoint (8, -19, 602)
FACE = np.array([8.0, 10, 602])


def eve_labels() -> dict[str, np.ndarray]:
    gaze_px = np.array([[400.0 + 8 * i, 300 + 10 * i] for i in range(COUNT)])
    targets = np.array([[150.0 - 2 * i, 102 + 3 * i, 3] for i in range(COUNT)])  # with 0.25 x 0.3 mm per px
    forward = FACE / np.linalg.norm(FACE)
    down = np.cross(forward, cv2.Rodrigues(HEAD)[0][:, 0])
    down /= np.linalg.norm(down)
    virtual = np.stack([np.cross(down, forward), down, forward])
    x, y, z = -(virtual @ (targets - FACE).T) / np.linalg.norm(targets - FACE, axis=1)
    vectors = {"left_o": EYES[0], "right_o": EYES[1], "face_o": FACE, "head_rvec": HEAD[:, None], "face_R": virtual}
    repeated = {name: np.repeat(vector[None], COUNT, axis=0) for name, vector in vectors.items()}
    return repeated | {"face_PoG_tobii": gaze_px, "face_g_tobii": np.stack([np.arcsin(y), np.arctan2(x, z)], axis=1)}


def write_eve(raw: Path, person: str = "train07", step: str = "step008_image_MIT-i1", **changed: np.ndarray) -> Path:
    folder = raw / person / step
    folder.mkdir(parents=True)
    with h5py.File(folder / "webcam_c.h5", "w") as file:
        file["camera_matrix"], file["camera_transformation"] = MATRIX, TO_CAMERA
        file["millimeters_per_pixel"] = np.array([0.25, 0.3])
        for name, values in (eve_labels() | changed).items():
            file[f"{name}/data"] = values
            file[f"{name}/validity"] = (np.arange(COUNT) != 1) | (name != "face_PoG_tobii")
    write_video(folder, COUNT)
    return folder


def write_video(folder: Path, count: int) -> None:
    video = cv2.VideoWriter(str(folder / "webcam_c.mp4"), cv2.VideoWriter_fourcc(*"mp4v"), 30, (WIDTH_PX, HEIGHT_PX))
    for i in range(count):
        video.write(np.full((HEIGHT_PX, WIDTH_PX, 3), 40 * i, np.uint8))
    video.release()


@pytest.fixture(scope="module")
def eve(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("eve")
    write_eve(folder / "raw")
    write_eve(folder / "raw", "val01", "step030_video_diem")
    write_eve(folder / "raw", "test01")
    done = run("eve", folder / "raw", folder / "eve.csv", "--every", 2)
    assert done.returncode == 0 and "6 frames; 0 videos" in done.stdout, done.stderr
    return folder / "eve.csv"


def test_eve_writes_every_second_valid_frame(eve: Path) -> None:
    assert people_of(eve) == ["train07", "val01"]
    frames = frames_of(eve, "train07")
    folder = "eve/train07/step008_image_MIT-i1/webcam_c"
    assert [frame.files[0] for frame in frames] == [f"{folder}/{i:06d}.jpg" for i in (0, 3, 5)]  # 1 is not valid
    levels = [cv2.imread(str(frame.folder / frame.files[0])).mean() for frame in frames]
    np.testing.assert_allclose(levels, [0, 120, 200], atol=12)
    assert (frames[0].split, frames_of(eve, "val01")[0].split) == ("train", "val")


def test_eve_poses_cameras_and_targets(eve: Path) -> None:
    for frame, i in zip(frames_of(eve, "train07"), (0, 3, 5), strict=True):
        np.testing.assert_array_equal(frame.cameras[0], MATRIX)
        assert not frame.distortions.any()
        np.testing.assert_allclose(frame.targets_mm[0], [150 - 2 * i, 102 + 3 * i, 3], atol=1e-9)
        np.testing.assert_allclose(frame.poses[0, :3], HEAD, atol=1e-12)
        np.testing.assert_allclose(origin_of(frame), [8, -19, 602], atol=1e-9)
        pitch, yaw, *_ = pose_of(frame).labels  # the target is below the eyes, and to the person's left
        assert pitch < 0 and yaw < 0


def test_eve_without_poses(eve: Path) -> None:
    out = eve.parent / "unposed.csv"
    done = run("eve", eve.parent / "raw", out, "--no-pose")
    assert done.returncode == 0, done.stderr
    assert needs_landmarks(out)
    train = next(person for person in read_manifest(out, posed=False) if person.name == "train07")
    np.testing.assert_allclose(train.targets_mm[0], [150, 102, 3], atol=1e-9)


EVE_FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no labels": (lambda step: (step / "webcam_c.h5").unlink(), "webcam_c.h5 is missing"),
    "no video": (lambda step: (step / "webcam_c.mp4").unlink(), "webcam_c.mp4: is missing or ends before frame 0"),
    "short video": (lambda step: write_video(step, 3), "ends before frame 3, which has labels"),
}
EVE_CHANGES: dict[str, tuple[dict[str, np.ndarray], str]] = {
    "gaze sign": ({"face_g_tobii": -eve_labels()["face_g_tobii"]}, "gaze points and face_g_tobii differ by"),
    "head axes": (
        {"head_rvec": np.tile([[[np.pi], [0], [0]]], (COUNT, 1, 1))},
        "head_rvec and face_R have different axes: pass --no-pose",
    ),
}


@pytest.mark.parametrize("name", [*EVE_FAULTS, *EVE_CHANGES])
def test_eve_faults_are_one_sentence_a_video(tmp_path: Path, name: str) -> None:
    write_eve(tmp_path / "raw", "val01")
    changed, words = EVE_CHANGES.get(name, ({}, ""))
    step = write_eve(tmp_path / "raw", **changed)
    if name in EVE_FAULTS:
        fault, words = EVE_FAULTS[name]
        fault(step)
    done = run("eve", tmp_path / "raw", tmp_path / "eve.csv", "--every", 1)
    sentences = [line for line in done.stderr.splitlines() if not line.startswith("[mov")]  # FFmpeg adds its own
    assert len(sentences) == 1 and words in sentences[0] and "train07" in sentences[0], done.stderr
    assert done.returncode == 0 and "5 frames; 1 videos cannot be used" in done.stdout
    assert people_of(tmp_path / "eve.csv") == ["val01"]
