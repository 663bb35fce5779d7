"""What every data set's annotation must keep to, whoever reads it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from faze.data.normalization.pose import UnusableFrame
from faze.data.readers import Frame, Reader, Reject

_PRINCIPAL_SHARE = 0.15  # of a side: how far from the frame's middle a principal point may lie

OffScreen = Literal["keep", "exclude"]


@dataclass(frozen=True)
class Checked:
    """A reader whose frames are listed once each and, where `off_screen` is exclude, have their target on the screen.

    A target is off the screen only where the screen is known.
    """

    reader: Reader
    off_screen: OffScreen

    def persons(self) -> list[str]:
        """See Reader."""
        return self.reader.persons()

    def folder(self, person: str) -> Path:
        """See Reader."""
        return self.reader.folder(person)

    def count(self, person: str) -> int:
        """See Reader."""
        return self.reader.count(person)

    def entries(self, person: str) -> Iterator[Frame | Reject]:
        """See Reader."""
        seen: set[str] = set()
        for entry in self.reader.entries(person):
            if entry.file_name and entry.file_name in seen:
                yield Reject(person, entry.file_name, "listed twice")
                continue
            seen.add(entry.file_name)
            if self.off_screen == "exclude" and isinstance(entry, Frame) and entry.on_screen is False:
                yield Reject(person, entry.file_name, "gaze target off the screen")
                continue
            yield entry


def check_size(frame: Frame, width_px: int, height_px: int) -> None:
    """Refuse an image that its annotated camera cannot have taken: scaled, cropped or turned since.

    The annotations state no frame size, so the rule depends on image and intrinsics alone: the principal point lies
    near the middle. An image of half or twice the size misses that by a quarter of its sides or more, one of 4:3 turned
    by a quarter by about a sixth: just enough, unless its camera is far off the middle itself.

    Raises:
        UnusableFrame: says the size.
    """
    for axis, (side_px, name) in enumerate(((width_px, "x"), (height_px, "y"))):
        principal_px = float(frame.camera_matrix[axis, 2])
        if not abs(principal_px / side_px - 0.5) <= _PRINCIPAL_SHARE:
            raise UnusableFrame(
                f"the {width_px} x {height_px} frame is not its camera's: principal point {name} = {principal_px:.0f}"
            )
