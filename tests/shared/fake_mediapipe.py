"""A fake package `mediapipe` that knows the landmarks of some frames, for stages in separate processes."""

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.data.landmarks.pose import MIRRORED

_PACKAGE = """
import hashlib, pathlib, sys, types
import numpy as np

__version__ = "0"
known = np.load(pathlib.Path(__file__).with_name("known.npz"))

def find(rgb):
    for mirrored, image in enumerate((rgb, rgb[:, ::-1])):
        key = hashlib.sha1(np.ascontiguousarray(image).tobytes()).hexdigest()
        if key in known:
            vertices, x, y = known[key].T
            if mirrored:
                vertices, x = vertices[known["order"]], 1 - x
            return [{int(v): types.SimpleNamespace(x=a, y=b) for v, a, b in zip(vertices, x, y)}]
    return []

class FaceMesh:
    def __init__(self, static_image_mode, max_num_faces, refine_landmarks):
        assert static_image_mode and max_num_faces == 2 and refine_landmarks

    def close(self):
        pass

    def process(self, rgb):
        faces = [types.SimpleNamespace(landmark=landmark) for landmark in find(rgb)]
        return types.SimpleNamespace(multi_face_landmarks=faces or None)

class FaceLandmarker:
    @classmethod
    def create_from_options(cls, options):
        assert options["num_faces"] == 2
        return cls()

    def close(self):
        pass

    def detect(self, image):
        return types.SimpleNamespace(face_landmarks=find(image["data"]))

solutions = types.SimpleNamespace(face_mesh=types.SimpleNamespace(FaceMesh=FaceMesh))
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
    """Write the package; known: key -> (12, 3) vertex, x, y as fractions of the sides. Return the PYTHONPATH."""
    (folder / "mediapipe").mkdir(parents=True)
    (folder / "mediapipe" / "__init__.py").write_text(_PACKAGE)
    np.savez(folder / "mediapipe" / "known.npz", order=np.array(MIRRORED), **known)
    return folder


def with_open_eyes(points_px: NDArray) -> NDArray:
    """Append lids to the (8, 2) positions of the face model's points: (12, 2), in the order of VERTICES."""
    lids = []
    for outer, inner in (points_px[[4, 5]], points_px[[7, 6]]):
        half_height = 0.15 * np.array([0, np.linalg.norm(outer - inner)])
        lids += [(outer + inner) / 2 - half_height, (outer + inner) / 2 + half_height]
    return np.vstack([points_px, lids])
