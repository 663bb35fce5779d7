"""Detect landmarks with MediaPipe's face mesh, in a separate environment (envs/landmarks.yaml) with its own cv2.

Vertices of the mesh of 468 that correspond to points of the face model: the bridge of the nose 168, 197, 5 and its tip
4; below the nose 98, 97, 2, 326, 327; the eye corners 33, 133, 362, 263, from the image's left to right. It is not
tested here that the mesh is found on the faces of GazeCapture, because faze contains no real face.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.data.readers.head_pose import Detector

VERTICES = (168, 197, 5, 4, 98, 97, 2, 326, 327, 33, 133, 362, 263)


def open_detector(model: Path | None) -> Detector:
    """Create a detector.

    Args:
        model: Face Landmarker task file; None: the face mesh in the package.

    Raises:
        UserError: MediaPipe is not installed, or has no such model; contains the remedy.
    """
    try:
        import mediapipe  # only this environment has it
    except ImportError as error:
        raise UserError(
            f"MediaPipe cannot be imported ({error}): run `faze landmarks` with the python of the environment "
            "envs/landmarks.yaml, which landmarks.python names"
        ) from None
    if model is not None:
        return _open_task(mediapipe, model)
    if not hasattr(mediapipe, "solutions"):
        raise UserError(
            f"MediaPipe {mediapipe.__version__} contains no face mesh: install the version of envs/landmarks.yaml, or "
            "give a Face Landmarker file (landmarks.model)"
        )
    mesh = mediapipe.solutions.face_mesh.FaceMesh(static_image_mode=True, max_num_faces=1)

    def detect(image: NDArray[np.uint8]) -> NDArray | None:
        found = mesh.process(_rgb(image)).multi_face_landmarks or ()
        return _in_px([face.landmark for face in found], image)

    return detect


def _open_task(mediapipe: object, model: Path) -> Detector:
    from mediapipe.tasks.python import BaseOptions, vision

    if not model.is_file():
        raise UserError(f"{model}: no such file; landmarks.model is a MediaPipe Face Landmarker file")
    options = vision.FaceLandmarkerOptions(base_options=BaseOptions(model_asset_path=str(model)))
    try:
        landmarker = vision.FaceLandmarker.create_from_options(options)
    except (RuntimeError, ValueError) as error:
        raise UserError(f"{model}: not a MediaPipe Face Landmarker file ({error})") from None

    def detect(image: NDArray[np.uint8]) -> NDArray | None:
        rgb = mediapipe.Image(image_format=mediapipe.ImageFormat.SRGB, data=_rgb(image))
        return _in_px(landmarker.detect(rgb).face_landmarks, image)

    return detect


def _rgb(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(image[:, :, ::-1])


def _in_px(faces: Sequence, image: NDArray[np.uint8]) -> NDArray | None:
    """Compute (13, 2) px of the first face, relative to the first pixel's centre; None: there is no face.

    MediaPipe's coordinates are fractions of the sides, relative to the frame's corner.
    """
    if not faces:
        return None
    shares = np.array([[faces[0][vertex].x, faces[0][vertex].y] for vertex in VERTICES])
    return shares * [image.shape[1], image.shape[0]] - 0.5
