"""Tiny raw data sets in the layouts of MPIIFaceGaze and GazeCapture, for tests of readers and preprocess."""

import json
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.io import savemat

from faze.data.store.supplementary import Supplementary, write_supplementary

WIDTH_PX, HEIGHT_PX = 320, 240
CAMERA_MATRIX = np.array([[300.0, 0, 160], [0, 301, 118], [0, 0, 1]])
DISTORTION = np.array([0.1, -0.2, 0.001, -0.002, 0.05])
ROTATION_VECTOR = np.array([0.1, -0.2, 0.05])
TRANSLATION_MM = np.array([5.0, -10, 400])
TARGET_MM = np.array([-30.0, 80, 5])


def jpeg(seed: int) -> bytes:
    """Return an encoded frame with smooth colours."""
    noise = np.random.default_rng(seed).integers(0, 256, (12, 16, 3), dtype=np.uint8)
    image = cv2.resize(noise, (WIDTH_PX, HEIGHT_PX), interpolation=cv2.INTER_CUBIC)
    return cv2.imencode(".jpg", image)[1].tobytes()


def write_file(path: Path, content: bytes | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def mpiifacegaze_line(name: str, rotation_vector: NDArray = ROTATION_VECTOR, target_mm: NDArray = TARGET_MM) -> str:
    numbers = [640, 400, *range(12), *rotation_vector, *TRANSLATION_MM, 1, 2, 3, *target_mm]
    return " ".join([name, *(f"{n:.9g}" for n in numbers), "left"])


def write_mpiifacegaze(raw: Path, people: int = 2, frames: int = 3) -> None:
    for p in range(people):
        folder = raw / f"p{p:02d}"
        names = [f"day01/{i:04d}.jpg" for i in range(frames)]
        for i, name in enumerate(names):
            write_file(folder / name, jpeg(100 * p + i))
        write_file(folder / f"{folder.name}.txt", "\n".join(map(mpiifacegaze_line, names)) + "\n")
        (folder / "Calibration").mkdir()
        savemat(folder / "Calibration" / "Camera.mat", {"cameraMatrix": CAMERA_MATRIX, "distCoeffs": DISTORTION[None]})


def supplementary(file_names: list[str]) -> Supplementary:
    """Return an annotation with the same camera, pose and target for every frame."""
    count = len(file_names)
    return Supplementary(
        file_names=file_names,
        camera_parameters=np.tile(CAMERA_MATRIX[[0, 1, 0, 1], [0, 1, 2, 2]], (count, 1)),
        distortion_parameters=np.tile(DISTORTION, (count, 1)),
        head_pose=np.tile(np.concatenate([ROTATION_VECTOR, TRANSLATION_MM]), (count, 1)),
        gaze_target_mm=np.tile(TARGET_MM, (count, 1)),
    )


def write_gazecapture(
    raw: Path, annotation: Path, splits: tuple[str, ...] = ("train", "test"), frames: int = 3
) -> None:
    entries = {}
    for recording, split in enumerate(splits, start=2):
        folder = raw / f"{recording:05d}"
        names = [f"{i:05d}.jpg" for i in range(frames)]
        for i, name in enumerate(names):
            write_file(folder / "frames" / name, jpeg(1000 * recording + i))
        write_file(folder / "frames.json", json.dumps(names))
        write_file(folder / "info.json", json.dumps({"TotalFrames": frames, "Dataset": split}))
        for detection in ("appleFace", "appleLeftEye", "appleRightEye", "faceGrid"):
            write_file(folder / f"{detection}.json", json.dumps({"X": [0] * frames, "IsValid": [1] * frames}))
        entries[folder.name] = supplementary([f"{folder.name}/frames/{name}" for name in names])
    write_supplementary(annotation, entries.items())
