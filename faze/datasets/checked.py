"""What every data set's annotation must keep to, whoever reads it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from faze.datasets import Frame, Reader, Reject

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
