"""Detect landmarks with MediaPipe, which is not among faze's dependencies: see docs/how-to/real-data.md."""

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
from faze.data.landmarks.pose import EYE_LANDMARKS, MIRRORED, VERTICES, face_width_px
from faze.data.normalization.pose import UnusableFrame

# (H, W, 3) uint8 BGR frame -> (12, 2) px of VERTICES, pixel centres at integers; None: no face. It may raise
# UnusableFrame.
Detector = Callable[[NDArray[np.uint8]], NDArray | None]
# The same for several faces, the largest first. For a face that cannot be used, the list contains an UnusableFrame.
FaceDetector = Callable[[NDArray[np.uint8]], list[NDArray | UnusableFrame]]
_Finder = Callable[[NDArray[np.uint8]], list[NDArray]]  # RGB frame -> (12, 2) px of each face
# Largest root mean square distance of the eyes' landmarks from those in the mirrored frame, as a fraction of the face's
# width; see decision 4.
_MAX_MIRROR_ERROR = 0.03
# Width of a face as a fraction of the frame's longer side, below which MediaPipe's detector, whose input has 128 x 128
# px, finds it in the whole frame inaccurately (below 0.08, hardly ever).
_SMALL = 0.1


ENVIRONMENT = (
    "run `faze landmarks` with the Python of the environment envs/landmarks.yaml (set landmarks.python to its path), "
    "or set landmarks.model to a Face Landmarker file"
)


@contextlib.contextmanager
def open_detector(model: Path | None) -> Iterator[Detector]:
    """Open a detector of one face, the largest, which uses one thread; see `open_faces`."""
    with open_faces(model, 1, ENVIRONMENT, threads=1) as detect_all:

        def detect(image: NDArray[np.uint8]) -> NDArray | None:
            found = next(iter(detect_all(image)), None)
            if isinstance(found, UnusableFrame):
                raise found
            return found

        yield detect


@contextlib.contextmanager
def open_faces(model: Path | None, most: int, remedy: str, threads: int = 2) -> Iterator[FaceDetector]:
    """Open a detector, which averages the landmarks of a frame and of the mirrored frame.

    MediaPipe guesses landmarks that it cannot see, and its guesses differ between the two. The detector refuses such
    faces with UnusableFrame. If the frame has too few large faces, it also searches square parts of the frame.

    Args:
        model: Face Landmarker task file; None: the face mesh in the package.
        most: largest number of faces.
        remedy: what to do if MediaPipe is missing or does not work.
        threads: 1, or 2 to process a frame and its mirror image at the same time.

    Raises:
        UserError: MediaPipe is not installed, does not work, or lacks the model; the message contains the remedy.
    """
    with contextlib.ExitStack() as stack:
        try:
            opened = [
                # One more than wanted, of which the largest are used: MediaPipe's own choice changes between frames.
                _open_mesh(stack, most + 1, remedy) if model is None else _open_task(model, stack, most + 1, remedy)
                for _ in range(threads)
            ]
            for find in opened:
                find(np.zeros((64, 64, 3), np.uint8))  # some errors occur only at the first frame
        except (UserError, MemoryError):
            raise
        except Exception as error:  # with other versions of protobuf or numpy, MediaPipe may raise any error
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            raise UserError(f"MediaPipe cannot be used in this environment ({reason}): {remedy}") from None
        beside = stack.enter_context(ThreadPoolExecutor(threads))

        def search(rgb: NDArray[np.uint8], corner: tuple[int, int] = (0, 0)) -> list[_Face]:
            found, mirrored = beside.map(lambda find, frame: find(frame), (opened * 2)[:2], (rgb, cv2.flip(rgb, 1)))
            return [_average(face, mirrored, rgb.shape[1], np.array(corner)) for face in found if mirrored]

        def detect(image: NDArray[np.uint8]) -> list[NDArray | UnusableFrame]:
            rgb = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
            faces = search(rgb)
            large = [face for face in faces if face.width_px >= _SMALL * max(rgb.shape[:2])]
            if len(large) < most:
                faces = _distinct([*large, *_search_squares(search, rgb), *faces])
            largest = sorted(faces, key=lambda face: face.width_px, reverse=True)[:most]
            return [face.landmarks_px for face in largest]

        yield detect


class _Face(NamedTuple):
    center_px: NDArray  # (2,)
    width_px: float
    landmarks_px: NDArray | UnusableFrame  # (12, 2)


def _search_squares(
    search: Callable[[NDArray[np.uint8], tuple[int, int]], list[_Face]], rgb: NDArray[np.uint8]
) -> list[_Face]:
    """Search square parts of a frame, which overlap by half or more; sort the faces by the distance from the middle."""
    height, width = rgb.shape[:2]
    side, rest = min(height, width), abs(height - width)
    faces = []
    for start in np.linspace(0, rest, 1 + math.ceil(2 * rest / side)).astype(int).tolist() if rest else ():
        left, top = (start, 0) if width > height else (0, start)
        part = np.ascontiguousarray(rgb[top : top + side, left : left + side])
        middle = np.array([left, top]) + side / 2
        faces += [(np.linalg.norm(face.center_px - middle), face) for face in search(part, (left, top))]
    return [face for _, face in sorted(faces, key=lambda pair: pair[0])]


def _distinct(faces: Sequence[_Face]) -> list[_Face]:
    """Return the first of all faces at the same place."""
    found: list[_Face] = []
    for face in faces:
        if all(np.linalg.norm(face.center_px - other.center_px) > other.width_px for other in found):
            found.append(face)
    return found


def _average(face: NDArray, mirrored: Sequence[NDArray], width_px: int, corner: NDArray) -> _Face:
    """Average a face with the nearest face of the mirrored part of a frame, whose top left corner is given."""
    centers = [width_px - 1 - other[:, 0].mean() for other in mirrored]
    nearest = int(np.argmin(np.abs(np.array(centers) - face[:, 0].mean())))
    try:
        landmarks_px = average_mirrored(face, mirrored[nearest], width_px) + corner
    except UnusableFrame as unusable:
        landmarks_px = unusable
    return _Face(face.mean(axis=0) + corner, face_width_px(face), landmarks_px)


def average_mirrored(landmarks_px: NDArray, mirrored_px: NDArray, width_px: int) -> NDArray:
    """Average the (12, 2) landmarks of a frame and of its mirror image.

    Raises:
        UnusableFrame: Those of the eyes disagree.
    """
    unmirrored = mirrored_px[list(MIRRORED)] * [-1, 1] + [width_px - 1, 0]
    differences = (unmirrored - landmarks_px)[EYE_LANDMARKS]
    error_px = np.sqrt(np.mean(np.sum(differences**2, axis=1)))
    if not error_px <= _MAX_MIRROR_ERROR * face_width_px(landmarks_px):
        raise UnusableFrame(
            f"eyes are covered or unclear: in the mirrored frame, they are found {error_px:.1f} px away"
        )
    return (landmarks_px + unmirrored) / 2


def _open_mesh(stack: contextlib.ExitStack, most: int, remedy: str) -> _Finder:
    import mediapipe  # only this command needs it

    if not hasattr(mediapipe, "solutions"):
        raise UserError(f"MediaPipe {mediapipe.__version__} contains no face mesh: {remedy}")
    # The refined mesh locates the eye corners about twice as precisely, and is the one of the Face Landmarker.
    mesh = mediapipe.solutions.face_mesh.FaceMesh(static_image_mode=True, max_num_faces=most, refine_landmarks=True)
    stack.callback(mesh.close)

    def find(rgb: NDArray[np.uint8]) -> list[NDArray]:
        found = mesh.process(rgb).multi_face_landmarks or ()
        return _in_px([face.landmark for face in found], rgb)

    return find


def _open_task(model: Path, stack: contextlib.ExitStack, most: int, remedy: str) -> _Finder:
    import mediapipe
    from mediapipe.tasks.python import BaseOptions, vision

    if not model.is_file():
        raise UserError(f"{model}: there is no such Face Landmarker file: {remedy}")
    options = vision.FaceLandmarkerOptions(base_options=BaseOptions(model_asset_path=str(model)), num_faces=most)
    try:
        landmarker = vision.FaceLandmarker.create_from_options(options)
    except (RuntimeError, ValueError) as error:
        raise UserError(f"{model}: not a MediaPipe Face Landmarker file ({error})") from None
    stack.callback(landmarker.close)

    def find(rgb: NDArray[np.uint8]) -> list[NDArray]:
        frame = mediapipe.Image(image_format=mediapipe.ImageFormat.SRGB, data=rgb)
        return _in_px(landmarker.detect(frame).face_landmarks, rgb)

    return find


def _in_px(faces: Sequence, image: NDArray[np.uint8]) -> list[NDArray]:
    """Compute the landmarks of each face, (12, 2) px from the centre of the first pixel.

    MediaPipe's coordinates are fractions of width and height, relative to the frame's corner.
    """
    size = [image.shape[1], image.shape[0]]
    return [np.array([[face[vertex].x, face[vertex].y] for vertex in VERTICES]) * size - 0.5 for face in faces]
