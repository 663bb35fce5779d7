"""Read the raw files of a data set into one record per annotated frame: a Frame, or a Reject with the reason.

All coordinates are OpenCV's, in the camera frame: x right, y down, z away from the camera, in mm and px.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from numpy.typing import NDArray

RENDERED_MARK = "rendered_by_faze.txt"  # a file in a raw folder that `faze synthesise` wrote


@dataclass(frozen=True, eq=False)
class Frame:
    """One annotated camera frame: everything that normalisation needs except the pixels."""

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
    label_source: str = "annotated"  # one of faze.data.store.layout.LABEL_SOURCES
    on_screen: bool | None = None  # whether the gaze target is on the screen; None if the screen is unknown
    device: str = ""  # the data set's name of the device that recorded the frame


@dataclass(frozen=True)
class Reject:
    """An annotated frame that is left out, and the reason; without a file name, all of the person's frames are."""

    person_id: str
    file_name: str
    reason: str


class Reader(Protocol):
    """A raw data set on disk."""

    layout: str  # name of the data set whose folders and files these are

    def persons(self) -> list[str]:
        """List the people, sorted."""

    def folder(self, person: str) -> Path:
        """Return the folder of a person's frames and annotation."""

    def count(self, person: str) -> int:
        """Count the annotated frames of a person: `entries` yields at most as many records.

        Return 1 if none can be read, for the one Reject with the reason.
        """

    def entries(self, person: str) -> Iterator[Frame | Reject]:
        """Read a person's records, in the order of the annotation.

        If the person's files are missing, damaged or not of their format, yield one Reject that names the file.
        """
