"""A fake package `mediapipe` that knows the landmarks of some frames, for stages in separate processes."""

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_PACKAGE = """
import hashlib, pathlib, types
import numpy as np

__version__ = "0"
known = np.load(pathlib.Path(__file__).with_name("known.npz"))

class FaceMesh:
    def __init__(self, static_image_mode, max_num_faces):
        assert static_image_mode and max_num_faces == 1

    def process(self, rgb):
        key = hashlib.sha1(rgb.tobytes()).hexdigest()
        if key not in known:
            return types.SimpleNamespace(multi_face_landmarks=None)
        landmark = {int(vertex): types.SimpleNamespace(x=x, y=y) for vertex, x, y in known[key]}
        return types.SimpleNamespace(multi_face_landmarks=[types.SimpleNamespace(landmark=landmark)])

solutions = types.SimpleNamespace(face_mesh=types.SimpleNamespace(FaceMesh=FaceMesh))
"""


def key_of(image: NDArray[np.uint8]) -> str:
    """Return the key of a BGR frame."""
    return hashlib.sha1(np.ascontiguousarray(image[:, :, ::-1]).tobytes()).hexdigest()


def install(folder: Path, known: dict[str, NDArray]) -> Path:
    """Write the package; known: key -> (n, 3) vertex, x, y as fractions of the sides. Return the PYTHONPATH."""
    (folder / "mediapipe").mkdir(parents=True)
    (folder / "mediapipe" / "__init__.py").write_text(_PACKAGE)
    np.savez(folder / "mediapipe" / "known.npz", **known)
    return folder
