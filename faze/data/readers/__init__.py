"""Readers turn the raw files of a data set into one record per annotated frame: a Frame, or a Reject that says why not.

Everything is in the camera frame: x right, y down, z away from the camera, in mm and px, as OpenCV has it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Frame:
    """One annotated camera frame: all that normalisation needs besides the pixels."""

    person_id: str
    image_path: Path
    file_name: str  # relative to the raw folder; kept in the store
    camera_matrix: NDArray  # (3, 3), px
    distortion: NDArray  # (d,), OpenCV's order
    rotation_vector: NDArray  # (3,) head -> camera, rad
    translation_mm: NDArray  # (3,) head -> camera
    gaze_target_mm: NDArray  # (3,)
    inner_eye_corners_mm: NDArray  # (2, 3) in the head's model frame
    split: str  # train | val | test
    frame_index: int = 0  # position in the person's annotation, from 0
    origin: str = "annotated"  # of the labels, one of faze.data.store.layout.ORIGINS
    on_screen: bool | None = None  # whether the gaze target lies on the screen; None where no screen is known
    device: str = ""  # that recorded the frame, as the data set calls it


@dataclass(frozen=True)
class Reject:
    """An annotated frame that is left out, and the reason; without a file name, all frames of the person are."""

    person_id: str
    file_name: str
    reason: str


class Reader(Protocol):
    """A raw data set on disk."""

    def persons(self) -> list[str]:
        """List the people, sorted."""

    def folder(self, person: str) -> Path:
        """Return the folder that holds a person's frames and annotation."""

    def count(self, person: str) -> int:
        """Count the annotated frames of a person: `entries` yields at most as many records.

        It is 1 where none can be read, for the one Reject that says why.
        """

    def entries(self, person: str) -> Iterator[Frame | Reject]:
        """Read a person's records, in the order of the annotation.

        Where the person's files are missing, torn or not of their format: one Reject that names the file.
        """
