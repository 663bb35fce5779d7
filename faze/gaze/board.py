"""Printed boards that a camera is calibrated with: chessboards, and ChArUco boards of OpenCV 4.6 or later."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.progress import Progress
from faze.gaze.sources import DEFAULT_FPS, Source, frames_of, sources_of

DICTIONARIES = tuple(name for name in dir(cv2.aruco) if name.startswith("DICT_") and name.isupper())
FEWEST_CORNERS = 6  # of a ChArUco board that is partly visible
MOST_EXAMINED = 120  # frames of a video, since a search takes up to some seconds
SQUARE_PX = 200  # in the image to print


class View(NamedTuple):
    """The corners of a board that were found in a frame."""

    board_mm: NDArray[np.float32]  # (n, 3), z = 0
    image_px: NDArray[np.float32]  # (n, 2)


@dataclass(frozen=True)
class Board:
    """A chessboard, or a ChArUco board if `charuco` is given."""

    columns: int  # of squares, not of inner corners; at least 4
    rows: int
    square_mm: float
    charuco: cv2.aruco.CharucoBoard | None = None

    @classmethod
    def with_markers(cls, columns: int, rows: int, square_mm: float, marker_mm: float, dictionary: str) -> "Board":
        """Return a ChArUco board whose markers are in one of DICTIONARIES.

        Raises:
            UserError: the markers do not fit into the squares, or the dictionary contains too few.
        """
        if marker_mm >= square_mm:
            raise UserError(f"--marker-mm {marker_mm:g} must be smaller than --square-mm {square_mm:g}")
        markers = cv2.aruco.getPredefinedDictionary(getattr(cv2.aruco, dictionary))
        count, needed = len(markers.bytesList), columns * rows // 2
        if count < needed:
            raise UserError(f"--dictionary {dictionary} has {count} markers, but the board needs {needed}")
        charuco = cv2.aruco.CharucoBoard((columns, rows), square_mm, marker_mm, markers)
        return cls(columns, rows, square_mm, charuco)

    def __str__(self) -> str:
        kind = "chessboard" if self.charuco is None else "ChArUco board"
        return f"{kind} of {self.columns}x{self.rows} squares"

    def find(self, image: NDArray[np.uint8]) -> View | None:
        """Find the inner corners in a BGR image (H, W, 3); return None if there are too few."""
        inner, gray = (self.columns - 1, self.rows - 1), cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
        board_mm = np.zeros((inner[0] * inner[1], 3), np.float32)
        board_mm[:, :2] = self.square_mm * np.mgrid[: inner[0], : inner[1]].T.reshape(-1, 2)
        if self.charuco is None:
            found, corners = cv2.findChessboardCornersSB(gray, inner, flags=cv2.CALIB_CB_NORMALIZE_IMAGE)
            return View(board_mm, corners.reshape(-1, 2)) if found else None
        corners, ids, *_ = cv2.aruco.CharucoDetector(self.charuco).detectBoard(gray)
        if ids is None or len(ids) < FEWEST_CORNERS or self.charuco.checkCharucoCornersCollinear(ids):
            return None
        return View(board_mm[ids.ravel()], corners.reshape(-1, 2))

    def draw(self) -> NDArray[np.uint8]:
        """Draw the board as a gray image (H, W) with a white margin, to be printed at any scale."""
        width, height, margin = self.columns * SQUARE_PX, self.rows * SQUARE_PX, SQUARE_PX // 2
        if self.charuco is not None:
            return self.charuco.generateImage((width + 2 * margin, height + 2 * margin), marginSize=margin)
        white = np.indices((self.rows, self.columns)).sum(axis=0) % 2
        squares = np.kron(255 * white, np.ones((SQUARE_PX, SQUARE_PX))).astype(np.uint8)
        return np.pad(squares, margin, constant_values=255)


def _stride(source: Source) -> int:
    """Return how many frames of a source lie between examined ones; without a stated number, two in a second are."""
    if source.frames:
        return math.ceil(source.frames / MOST_EXAMINED)
    return max(1, round((source.fps or DEFAULT_FPS) / 2))


def find_views(paths: Sequence[Path], board: Board) -> tuple[list[View], Counter[str], tuple[int, int]]:
    """Find the board in images, folders of images, and about MOST_EXAMINED evenly spaced frames of each video.

    Returns:
        The views; how many examined frames have none, by reason; width and height of the frames in px.

    Raises:
        UserError: no frame can be read, or the frames have different sizes.
    """
    sources = sources_of(paths)
    frames = ((source, number, frame) for source in sources for number, frame in enumerate(frames_of([source])))
    views: list[View] = []
    reasons: Counter[str] = Counter()
    first = size_px = None
    progress = Progress("find the board", stated := max(1, sum(source.frames for source in sources)), "frames")
    for done, (source, number, frame) in enumerate(frames):
        progress(min(done, stated - 1))
        if number % _stride(source):
            continue
        if frame.image is None:
            reasons[frame.reason] += 1
            continue
        height, width = frame.image.shape[:2]
        first, size_px = first or frame.source, size_px or (width, height)
        if size_px != (width, height):
            raise UserError(
                f"{frame.source}: {width} x {height} px, but {first} has {size_px[0]} x {size_px[1]} px: pass frames "
                "of one size, since a calibration is valid for one size only"
            )
        view = board.find(frame.image)
        if view is None:
            reasons["without the board"] += 1
        else:
            views.append(view)
    progress(stated)
    if size_px is None:
        raise UserError(f"{paths[0]}: no frame can be read: {', '.join(reasons)}")
    return views, reasons, size_px
