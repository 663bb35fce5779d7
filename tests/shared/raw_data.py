"""Tiny raw data sets in the layouts of MPIIFaceGaze and GazeCapture, for tests of readers and preprocess."""

import json
import os
from pathlib import Path

import cv2
import numpy as np
from scipy.io import savemat

from faze.data.readers.person import Person
from faze.data.readers.supplementary import write_supplementary

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


def with_exif(data: bytes, orientation: int) -> bytes:
    """Insert an EXIF orientation into a JPEG."""
    entry = b"\x01\x12\x00\x03\x00\x00\x00\x01" + orientation.to_bytes(2) + b"\0\0"
    contents = b"Exif\0\0MM\0*\0\0\0\x08\0\x01" + entry + b"\0\0\0\0"
    return data[:2] + b"\xff\xe1" + (len(contents) + 2).to_bytes(2) + contents + data[2:]


def write_file(path: Path, content: bytes | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def mpiifacegaze_line(name: str) -> str:
    numbers = [640, 400, *range(12), *ROTATION_VECTOR, *TRANSLATION_MM, 1, 2, 3, *TARGET_MM]
    return " ".join([name, *(f"{n:.9g}" for n in numbers), "left"])


def write_mpiifacegaze(raw: Path, people: int = 2, frames: int = 3, images: int = 5) -> None:
    """Write people; from `images` on, frames are links to the first ones."""
    for p in range(people):
        folder = raw / f"p{p:02d}"
        names = [f"day01/{i:04d}.jpg" for i in range(frames)]
        for i, name in enumerate(names[:images]):
            write_file(folder / name, jpeg(100 * p + i))
        for i, name in enumerate(names[images:], start=images):
            os.link(folder / names[i % images], folder / name)
        write_file(folder / f"{folder.name}.txt", "\n".join(map(mpiifacegaze_line, names)) + "\n")
        (folder / "Calibration").mkdir()
        savemat(folder / "Calibration" / "Camera.mat", {"cameraMatrix": CAMERA_MATRIX, "distCoeffs": DISTORTION[None]})


def annotation(folder: Path, files: list[str]) -> Person:
    """Return FAZE's annotation of a person, the name of whose folder begins each path: the same for every frame."""
    count = len(files)
    pose = np.concatenate([ROTATION_VECTOR, TRANSLATION_MM])
    rows = (np.tile(row, (count, *[1] * row.ndim)) for row in (CAMERA_MATRIX, DISTORTION, pose, TARGET_MM))
    return Person(files[0].partition("/")[0], folder, files, [""] * count, *rows, source="supplementary")


def write_gazecapture(
    raw: Path, supplementary: Path, splits: tuple[str, ...] = ("train", "test"), frames: int = 3
) -> None:
    """Write a recording for each of the splits, 00002 and so on, and FAZE's annotation of them."""
    people = []
    for recording, split in enumerate(splits, start=2):
        folder = raw / f"{recording:05d}"
        names = [f"{i:05d}.jpg" for i in range(frames)]
        for i, name in enumerate(names):
            write_file(folder / "frames" / name, jpeg(1000 * recording + i))
        contents = dict.fromkeys(("appleFace", "appleLeftEye", "appleRightEye", "faceGrid"), {"IsValid": [1] * frames})
        contents |= {"frames": names, "info": {"Dataset": split, "DeviceName": "iPad Air"}}
        for name, content in contents.items():
            write_file(folder / f"{name}.json", json.dumps(content))
        people.append(annotation(raw, [f"{folder.name}/frames/{name}" for name in names]))
    write_supplementary(supplementary, people)
