"""A fake package `mediapipe` that knows the landmarks of some frames, for stages in separate processes."""

import hashlib
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.data.landmarks.pose import FACE_MODEL_MM, MIRRORED, VERTICES

_PACKAGE = """
import hashlib, pathlib, sys, types
import numpy as np

known = np.load(pathlib.Path(__file__).with_name("known.npz"))

def find(rgb):
    "Return the landmarks of each face, (12, 2) px; tests replace this function."
    for mirrored, image in enumerate((rgb, rgb[:, ::-1])):
        key = hashlib.sha1(np.ascontiguousarray(image).tobytes()).hexdigest()
        if key in known:
            face = np.abs([mirrored, 0] - known[key]) * rgb.shape[1::-1] - 0.5
            return [face[known["mirrored"]] if mirrored else face]
    return []

class FaceLandmarker:
    @classmethod
    def create_from_options(cls, options):
        if options["base_options"]["model_asset_path"].endswith(".txt"):
            raise RuntimeError("Unable to open zip archive.")
        return cls()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def detect(self, image):
        size_px, faces = image["data"].shape[1::-1], []
        for face in find(image["data"]):
            shares = [types.SimpleNamespace(x=x, y=y) for x, y in (face + 0.5) / size_px]
            faces.append(dict(zip(known["vertices"].tolist(), shares, strict=True)))
        return types.SimpleNamespace(face_landmarks=faces)

ImageFormat = types.SimpleNamespace(SRGB=1)
Image = dict
vision = types.SimpleNamespace(FaceLandmarkerOptions=dict, FaceLandmarker=FaceLandmarker)
python = types.ModuleType("mediapipe.tasks.python")
python.BaseOptions, python.vision = dict, vision
sys.modules |= {"mediapipe.tasks": types.ModuleType("mediapipe.tasks"), "mediapipe.tasks.python": python}
"""


def key_of(image: NDArray[np.uint8]) -> str:
    """Return the key of a BGR frame."""
    return hashlib.sha1(np.ascontiguousarray(image[:, :, ::-1]).tobytes()).hexdigest()


def install(folder: Path, known: dict[str, NDArray]) -> Path:
    """Write the package; known: key -> landmarks (12, 2) as fractions of the sides. Return the PYTHONPATH."""
    (folder / "mediapipe").mkdir(parents=True)
    (folder / "mediapipe" / "__init__.py").write_text(_PACKAGE)
    np.savez(folder / "mediapipe" / "known.npz", mirrored=MIRRORED, vertices=VERTICES, **known)
    return folder


def with_open_eyes(points_px: NDArray) -> NDArray:
    """Append lids to the (8, 2) positions of the face model's points: (12, 2), in the order of VERTICES."""
    lids = []
    for outer, inner in (points_px[[4, 5]], points_px[[7, 6]]):
        half_height = 0.15 * np.array([0, np.linalg.norm(outer - inner)])
        lids += [(outer + inner) / 2 - half_height, (outer + inner) / 2 + half_height]
    return np.vstack([points_px, lids])


def project(pose: NDArray, matrix: NDArray, distortion: NDArray) -> NDArray:
    """Return the landmarks (12, 2), px, of the face model in a head pose (6,)."""
    return with_open_eyes(cv2.projectPoints(FACE_MODEL_MM, pose[:3], pose[3:], matrix, distortion)[0].reshape(-1, 2))
