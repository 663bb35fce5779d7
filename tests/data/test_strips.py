"""Strips of a shard equal those made frame by frame; bad frames are named."""

import dataclasses
from pathlib import Path

import cv2
import numpy as np
import pytest
from jpegs import encode, exif, with_segment
from numpy.typing import NDArray
from one_frame import normalize_pose, warp_fused

from faze.config.parameters import NormalizedCamera
from faze.data.normalization.images import read_image
from faze.data.normalization.pose import INNER_EYE_CORNERS_6_MM
from faze.data.normalization.warp import warp_two_step
from faze.data.preparation.strip_maker import StripMaker
from faze.data.readers import Frame

CAMERA = NormalizedCamera(focal_length_px=1300, distance_mm=600, width_px=256, height_px=64)
MATRIX = np.array([[300.0, 0, 160], [0, 301, 118], [0, 0, 1]])
DISTORTIONS = (np.array([0.1, -0.2, 0.001, -0.002, 0.05]), np.zeros(5))
BEYOND_BELOW_MM = np.array([0.0, 150, 400])  # where the eyes are just within the frame, the strip is not


def some_frames(folder: Path, files: list[bytes]) -> list[Frame]:
    """Return frames of every file, with random poses and with a pose whose strip extends below the frame.

    Cameras and targets differ too.
    """
    rng, frames = np.random.default_rng(0), []
    for number, data in enumerate(files):
        path = folder / f"{number}.jpg"
        path.write_bytes(data)
        for shift_mm in (*rng.normal(0, 40, (3, 3)), BEYOND_BELOW_MM - [0, 0, 400]):
            each = frame(path, rng.normal(0, 0.2, 3), shift_mm + [0, 0, 400], DISTORTIONS[number % 2])
            other = {"camera_matrix": MATRIX + np.diag([3.0, -2, 0]) * (number % 3)}
            other |= {"gaze_target_mm": each.gaze_target_mm + rng.normal(0, 20, 3)}
            frames.append(dataclasses.replace(each, **other))
    return frames


def frame(path: Path, rotation_vector: NDArray, translation_mm: NDArray, distortion: NDArray = DISTORTIONS[0]) -> Frame:
    target = np.array([-30.0, 80, 5])
    where = (rotation_vector, np.asarray(translation_mm, float), target, INNER_EYE_CORNERS_6_MM)
    return Frame("p00", path, path.name, MATRIX, distortion, *where, "test")


def files() -> list[bytes]:
    data = encode()
    return [
        data,
        encode(320, 240, cv2.IMWRITE_JPEG_RST_INTERVAL, 5),
        encode(320, 240, cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
        with_segment(data, 0xE1, exif(3)),
        encode(gray=True),
        cv2.imencode(".png", read(data))[1].tobytes(),
        encode(333, 251),
    ]


def read(data: bytes) -> NDArray[np.uint8]:
    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)


def make(maker: StripMaker, frames: list[Frame]) -> tuple[NDArray[np.uint8], NDArray[np.float32], list[str]]:
    pixels = np.zeros((len(frames), CAMERA.height_px, CAMERA.width_px, 3), np.uint8)
    labels = np.zeros((len(frames), 4), np.float32)
    return pixels, labels, maker.make(frames, pixels, labels)


@pytest.mark.parametrize("released", [None, "recentred", "keep"])
def test_a_block_is_its_frames_one_by_one(tmp_path: Path, released: str | None, capfd: pytest.CaptureFixture) -> None:
    frames = some_frames(tmp_path, files())
    pixels, labels, reasons = make(StripMaker(CAMERA, released), frames)
    assert reasons == [""] * len(frames)
    for row, each in enumerate(frames):
        pose = normalize_pose(each.rotation_vector, each.translation_mm, each.inner_eye_corners_mm, each.gaze_target_mm)
        given = (read_image(each.image_path), each.camera_matrix, each.distortion, pose, CAMERA)
        wanted = warp_two_step(*given, released) if released else warp_fused(*given)
        np.testing.assert_array_equal(pixels[row], wanted)
        np.testing.assert_array_equal(labels[row], pose.labels.astype(np.float32))
    assert pixels.reshape(len(frames), -1).any(axis=1).all()
    assert capfd.readouterr().err == ""
