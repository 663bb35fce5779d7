"""Detect landmarks with MediaPipe, which is not a dependency of faze: see docs/how-to/real-data.md."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.files import reading
from faze.data.landmarks.pose import EYE_LANDMARKS, MIRRORED, VERTICES, face_width_px
from faze.data.normalization.pose import UnusableFrame

NO_FACE = "no face found"
# (H, W, 3) uint8 BGR frame -> for each face, largest first, the positions of VERTICES (12, 2), in px with pixel centres
# at integers, or the reason why the face cannot be used.
FaceDetector = Callable[[NDArray[np.uint8]], list[NDArray | UnusableFrame]]
# RGB image -> positions (12, 2), px, for each face in the image, and for each face in the mirrored image
_Finder = Callable[[NDArray[np.uint8]], tuple[list[NDArray], list[NDArray]]]

# Maximum root mean square distance of the eyes' landmarks from those in the mirrored frame, as a fraction of the face's
# width; see decision 4.
_MAX_MIRROR_ERROR = 0.03
# Width of a face, as a fraction of the frame's longer side, below which MediaPipe's detector (128 x 128 px) is
# inaccurate if it searches the whole frame. Below 0.08, it finds hardly any faces.
_SMALL = 0.1


class _Face(NamedTuple):
    center_px: NDArray  # (2,)
    width_px: float
    landmarks_px: NDArray | UnusableFrame  # (12, 2)


@contextlib.contextmanager
def open_faces(model: Path, most: int) -> Iterator[FaceDetector]:
    """Open a detector that averages the landmarks found in a frame and in its mirror image.

    MediaPipe guesses landmarks that it cannot see, and its guesses for the two images differ. For such a face, the
    detector returns an UnusableFrame. If there are fewer than `most` large faces, it also searches square crops.

    Raise a UserError if MediaPipe is not installed, or if the model, a Face Landmarker task file, cannot be used.
    """
    # Find one face more than needed and use the largest ones: MediaPipe's own choice changes between frames.
    with (
        _open_landmarker(model, most + 1) as find_in,
        _open_landmarker(model, most + 1) as find_beside,
        ThreadPoolExecutor(1) as beside,
    ):

        def find(rgb: NDArray[np.uint8]) -> tuple[list[NDArray], list[NDArray]]:
            """Search an image and, in parallel, its mirror image."""
            mirrored = beside.submit(find_beside, cv2.flip(rgb, 1))
            return find_in(rgb), mirrored.result()

        def detect(image: NDArray[np.uint8]) -> list[NDArray | UnusableFrame]:
            rgb = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
            faces = _search(find, rgb)
            large = [face for face in faces if face.width_px >= _SMALL * max(rgb.shape[:2])]
            if len(large) < most:
                faces = _distinct([*large, *_search_squares(find, rgb), *faces])
            largest = sorted(faces, key=lambda face: face.width_px, reverse=True)[:most]
            return [face.landmarks_px for face in largest]

        yield detect


@contextlib.contextmanager
def _open_landmarker(model: Path, most: int) -> Iterator[Callable[[NDArray[np.uint8]], list[NDArray]]]:
    if not model.is_file():
        raise UserError(
            f"{model}: no such file: run `make landmarker` in a clone of faze to download MediaPipe's Face Landmarker "
            "(3.8 MB); docs/how-to/real-data.md contains its address"
        )
    try:
        import mediapipe  # only frames without head poses need it
        from mediapipe.tasks.python import BaseOptions, vision
    except ImportError as error:
        remedy = "run `make landmarker` in a clone of faze, or `pip install --no-deps mediapipe==1.2.3`"
        raise UserError(f"MediaPipe cannot be imported ({error}): {remedy}") from None
    options = vision.FaceLandmarkerOptions(base_options=BaseOptions(model_asset_path=str(model)), num_faces=most)
    with reading(model, "it must be MediaPipe's Face Landmarker; download it again"):
        landmarker = vision.FaceLandmarker.create_from_options(options)

    def find(rgb: NDArray[np.uint8]) -> list[NDArray]:
        frame = mediapipe.Image(image_format=mediapipe.ImageFormat.SRGB, data=rgb)
        size_px, faces = [rgb.shape[1], rgb.shape[0]], landmarker.detect(frame).face_landmarks
        # MediaPipe's coordinates are fractions of width and height, relative to the frame's corner.
        return [np.array([[face[v].x, face[v].y] for v in VERTICES]) * size_px - 0.5 for face in faces]

    with landmarker:
        yield find


def _search(find: _Finder, rgb: NDArray[np.uint8], corner: tuple[int, int] = (0, 0)) -> list[_Face]:
    """Find faces in a frame, or in a part of it; `corner` is the top left corner of that part."""
    found, mirrored = find(rgb)
    return [_average(face, mirrored, rgb.shape[1], np.array(corner)) for face in found if mirrored]


def _average(face: NDArray, mirrored: Sequence[NDArray], width_px: int, corner: NDArray) -> _Face:
    """Average a face with the nearest face in the mirrored image; see `open_faces`."""
    distances = [abs(width_px - 1 - other[:, 0].mean() - face[:, 0].mean()) for other in mirrored]
    nearest = mirrored[int(np.argmin(distances))]
    unmirrored = nearest[list(MIRRORED)] * [-1, 1] + [width_px - 1, 0]
    error_px = np.sqrt(np.mean(np.sum((unmirrored - face)[EYE_LANDMARKS] ** 2, axis=1)))
    if error_px <= _MAX_MIRROR_ERROR * face_width_px(face):
        landmarks_px = (face + unmirrored) / 2 + corner
    else:
        landmarks_px = UnusableFrame(
            f"eyes are covered or unclear: in the mirrored frame, they were found {error_px:.1f} px away"
        )
    return _Face(face.mean(axis=0) + corner, face_width_px(face), landmarks_px)


def _search_squares(find: _Finder, rgb: NDArray[np.uint8]) -> list[_Face]:
    """Find faces in square crops that overlap by at least half, and sort them by distance from their crop's centre."""
    height, width = rgb.shape[:2]
    side, rest = min(height, width), abs(height - width)
    faces = []
    for start in np.linspace(0, rest, 1 + math.ceil(2 * rest / side)).astype(int).tolist():
        left, top = (start, 0) if width > height else (0, start)
        part = np.ascontiguousarray(rgb[top : top + side, left : left + side])
        middle = np.array([left, top]) + side / 2
        faces += [(np.linalg.norm(face.center_px - middle), face) for face in _search(find, part, (left, top))]
    return [face for _, face in sorted(faces, key=lambda pair: pair[0])]


def _distinct(faces: Sequence[_Face]) -> list[_Face]:
    """Return the faces, omitting any at the same position as an earlier one."""
    found: list[_Face] = []
    for face in faces:
        if all(np.linalg.norm(face.center_px - other.center_px) > other.width_px for other in found):
            found.append(face)
    return found
