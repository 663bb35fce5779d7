"""Reads GazeCapture: NNNNN/frames/*.jpg and parallel JSON arrays.

GazeCapture annotates where the dot is, not the head: head pose and camera are FAZE's, or those that `faze landmarks`
estimated. Its own files tell each recording's split and device, and which frames its detectors failed on.
"""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from faze.base.errors import UserError
from faze.data.readers import Frame, Reject
from faze.data.readers.recording import read_recording
from faze.data.readers.supplementary_reader import SupplementaryReader

RECORDING = re.compile(r"\d{5}")  # names of their folders


def list_recordings(raw: Path) -> list[str]:
    """List the folders NNNNN, sorted."""
    return sorted(folder.name for folder in raw.glob("*/") if RECORDING.fullmatch(folder.name))


class GazeCapture(SupplementaryReader):
    """The recordings under the raw folder or in the supplementary annotation; only those in both yield frames."""

    def __init__(self, raw: Path, supplementary: Path | None) -> None:
        """Check that the two belong together.

        Raises:
            UserError: there is no annotation, or the folder holds none of its recordings.
        """
        if supplementary is None:
            raise UserError(
                f"{raw}: raw GazeCapture has no head pose; give the FAZE supplementary HDF5 with it "
                f"(preprocess.gazecapture_supplementary), or what `faze landmarks --raw {raw}` estimates"
            )
        super().__init__(raw, supplementary, split="")  # each recording states its own

    def persons(self) -> list[str]:
        """List the recordings, sorted."""
        return sorted({*super().persons(), *list_recordings(self._raw)})

    def count(self, person: str) -> int:
        """Count the annotated frames; 1 for a recording that is not whole."""
        return super().count(person) if person in self._counts else 1

    def entries(self, person: str) -> Iterator[Frame | Reject]:
        """See Reader; a recording with a broken JSON file is one Reject."""
        if person not in self._counts:
            yield Reject(person, "", "not in the supplementary annotation")
            return
        if not (self._raw / person).is_dir():
            yield Reject(person, "", f"no folder {person}")
            return
        try:
            recording = read_recording(self._raw / person)
        except UserError as error:
            yield Reject(person, "", str(error))
            return
        rows = {PurePosixPath(name).name: row for row, name in reversed(list(enumerate(recording.names)))}
        for entry in self.entries_of(person, recording.split, recording.device, {}):
            row = rows.get(PurePosixPath(entry.file_name).name)
            fault = "not listed in frames.json" if row is None else recording.faults[row]
            if isinstance(entry, Reject):
                yield entry
            elif fault:
                yield Reject(person, entry.file_name, fault)
            else:
                yield dataclasses.replace(entry, on_screen=recording.on_screen[row])
