"""A video of a rendered person, whose gaze is known: variable rate, rotation tag, exact landmarks, shipped network."""

import contextlib
import csv
import dataclasses
import subprocess
from collections.abc import Iterator
from pathlib import Path

import cv2
import imageio_ffmpeg
import numpy as np
import pytest
from fake_mediapipe import with_open_eyes
from numpy.typing import NDArray
from stage_runs import call_faze

from faze.base.geometry import angular_error
from faze.config.validation import read_config
from faze.data.landmarks.pose import FACE_MODEL_MM
from faze.data.synthetic.layouts import supplementary
from faze.data.synthetic.people import Role, render_frames, sample_frames
from faze.gaze import estimator
from faze.gaze.estimator import GazeEstimator

DURATIONS = (0.04, 0.12, 0.04, 0.2, 0.04, 0.04)  # whole frames at 25 frames/s, as ffmpeg reads images


@dataclasses.dataclass(frozen=True)
class Rendered:
    """A person's frames (H, W, 3) BGR, all of one size, and their annotation."""

    images: list[NDArray[np.uint8]]
    known: dict[str, NDArray]
    rows: list[int]  # of the annotation

    def camera(self, frame: int) -> tuple[NDArray, NDArray]:
        fx, fy, cx, cy = self.known["camera_parameters"][self.rows[frame]]
        return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]]), self.known["distortion_parameters"][self.rows[frame]]


@pytest.fixture(scope="module")
def person() -> Rendered:
    synthetic = read_config().synthetic.model_copy(update={"frames_per_person": 12})
    role = Role("mpiifacegaze", "test", 2)
    frames = sample_frames(role, synthetic)
    images = [cv2.cvtColor(image, cv2.COLOR_RGB2BGR) for image in render_frames(frames, synthetic.seed)]
    return Rendered(images[: len(DURATIONS)], supplementary(frames), list(range(len(DURATIONS))))


@pytest.fixture(scope="module")
def video(person: Rendered, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the frames lying on their side, with durations of their own, and a tag that turns them upright."""
    folder, lines = tmp_path_factory.mktemp("video"), []
    for number, (image, duration) in enumerate(zip(person.images, DURATIONS, strict=True)):
        cv2.imwrite(str(folder / f"{number}.png"), cv2.rotate(image, cv2.ROTATE_90_CLOCKWISE))
        lines.append(f"file '{folder / f'{number}.png'}'\nduration {duration}\n")
    (folder / "list.txt").write_text("".join(lines))
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-loglevel", "error"]
    coded = ["-fps_mode", "vfr", "-pix_fmt", "yuv420p", "-crf", "15", str(folder / "flat.mp4")]
    subprocess.run([*ffmpeg, "-f", "concat", "-safe", "0", "-i", str(folder / "list.txt"), *coded], check=True)
    turned = ["-display_rotation", "90", "-i", str(folder / "flat.mp4"), "-c", "copy", str(folder / "me.mp4")]
    subprocess.run([*ffmpeg, *turned], check=True)
    return folder / "me.mp4"


@pytest.fixture
def rows(person: Rendered, video: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """Run the command with exact landmarks: those of the face model in the annotated poses."""
    numbers = iter(range(len(DURATIONS) + 1))

    @contextlib.contextmanager
    def open_faces(model: Path, most: int) -> Iterator:
        def detect(image: NDArray[np.uint8]) -> list[NDArray]:
            frame = min(next(numbers), len(DURATIONS) - 1)  # ffmpeg shows the last frame twice
            pose = person.known["head_pose"][person.rows[frame]]
            return [
                with_open_eyes(cv2.projectPoints(FACE_MODEL_MM, pose[:3], pose[3:], *person.camera(frame))[0][:, 0])
            ]

        yield detect

    matrix, distortion = person.camera(0)
    lens = cv2.FileStorage(str(tmp_path / "lens.yaml"), cv2.FILE_STORAGE_WRITE)
    lens.write("camera_matrix", matrix)
    lens.write("distortion_coefficients", distortion)
    lens.release()
    monkeypatch.setattr(estimator, "open_faces", open_faces)
    assert call_faze("gaze", video, "--lens", tmp_path / "lens.yaml", "--table", tmp_path / "gaze.csv") == 0
    with (tmp_path / "gaze.csv").open() as file:
        return list(csv.DictReader(file))[: len(DURATIONS)]


def vectors(rows: list[dict[str, str]], *names: str) -> NDArray[np.float64]:
    return np.array([[float(row[name]) for name in names] for row in rows])


def test_the_gaze_in_a_turned_video_is_that_of_the_frames(person: Rendered, rows: list[dict[str, str]]) -> None:
    """Only the compression of the video changes the gaze; poses are those of the annotation."""
    times = vectors(rows, "timestamp")[:, 0]
    np.testing.assert_allclose(times, np.concatenate([[0], np.cumsum(DURATIONS)[:-1]]), atol=0.002)
    plain = GazeEstimator.load(faces=0)
    poses = person.known["head_pose"][person.rows]
    faces = [plain.at_pose(image, person.camera(i), poses[i]) for i, image in enumerate(person.images)]
    found = vectors(rows, "gaze_x", "gaze_y", "gaze_z")
    moved = np.degrees(angular_error(found, np.stack([face.direction for face in faces])))
    assert moved.max() < 1.5 and moved.mean() < 0.6
    np.testing.assert_allclose(vectors(rows, "pose_Tx", "pose_Ty", "pose_Tz"), poses[:, 3:], atol=0.5)
    origins = vectors(rows, "origin_x_mm", "origin_y_mm", "origin_z_mm")
    toward = person.known["3d_gaze_target"][person.rows] - origins
    errors = np.degrees(angular_error(found, toward / np.linalg.norm(toward, axis=1, keepdims=True)))
    assert errors.mean() < 4
