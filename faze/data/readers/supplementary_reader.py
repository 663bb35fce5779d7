"""Read raw frames with FAZE's own annotation, the supplementary HDF5 file, and its 14-point face model."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from faze.base.errors import DamagedFile, UserError
from faze.data.normalization.pose import INNER_EYE_CORNERS_14_MM
from faze.data.readers import OUTSIDE, Frame, Reject, check_distortion, is_inside
from faze.data.store.supplementary import Supplementary, read_supplementary, supplementary_persons


class SupplementaryReader:
    """The people of a supplementary file; a person whose frames are not in the raw folder yields one Reject."""

    def __init__(
        self,
        raw: Path,
        supplementary: Path,
        split: str,
        layout: str,
        on_screen: Callable[[str], Mapping[str, bool | None]] | None = None,
    ) -> None:
        """Check that the folder and the annotation belong together.

        Args:
            raw: Folder to which the file names of the annotation are relative.
            supplementary: HDF5 file with FAZE's annotation.
            split: Split of all people: train, val or test; "" if it is unknown.
            layout: Name of the raw data set.
            on_screen: Maps a person's file names to whether the targets are on the screen, since the HDF5 file does not
                contain this.

        Raises:
            UserError: The file cannot be read, or the folder contains none of its people.
        """
        self._raw, self._supplementary, self._split, self._on_screen = raw, supplementary, split, on_screen
        self.layout = layout
        self._counts = supplementary_persons(supplementary)
        if not any((raw / person).is_dir() for person in self._counts):
            raise UserError(
                f"{raw}: contains no folder of any person in {supplementary}, such as {min(self._counts, default='')}"
            )

    def persons(self) -> list[str]:
        """List the people of the annotation, sorted."""
        return list(self._counts)

    def count(self, person: str) -> int:
        """Count the annotated frames; 1 for a person whose folder is missing."""
        return max(self._counts[person], 1) if (self._raw / person).is_dir() else 1

    def entries(self, person: str) -> Iterator[Frame | Reject]:
        """See Reader."""
        return self.entries_of(person, self._split, "", self._on_screen(person) if self._on_screen else {})

    def entries_of(
        self, person: str, split: str, device: str, on_screen: Mapping[str, bool | None]
    ) -> Iterator[Frame | Reject]:
        """Read a person's records, as `entries` does, adding facts that the HDF5 file lacks; see Frame."""
        if not (self._raw / person).is_dir():
            yield Reject(person, "", f"no folder {person}")
            return
        try:
            entries = read_supplementary(self._supplementary, person)
            check_distortion(entries.distortion_parameters.shape[1], f"{self._supplementary}: person {person}")
        except DamagedFile:
            raise
        except UserError as error:
            yield Reject(person, "", str(error))
            return
        for row, file_name in enumerate(entries.file_names):
            reason = entries.reasons[row] if entries.reasons else ""
            if reason or not is_inside(file_name):
                yield Reject(person, file_name, reason or OUTSIDE)
                continue
            about = {"person_id": person, "split": split, "device": device, "on_screen": on_screen.get(file_name)}
            yield frame_of(entries, row, self._raw / file_name, frame_index=row, **about)


def frame_of(entries: Supplementary, row: int, image_path: Path, **about: Any) -> Frame:
    """Return the record of an entry; `about` contains the fields of Frame that the annotation lacks."""
    fx, fy, cx, cy = entries.camera_parameters[row]
    return Frame(
        image_path=image_path,
        file_name=entries.file_names[row],
        camera_matrix=np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]]),
        distortion=entries.distortion_parameters[row],
        rotation_vector=entries.head_pose[row, :3],
        translation_mm=entries.head_pose[row, 3:],
        gaze_target_mm=entries.gaze_target_mm[row],
        inner_eye_corners_mm=INNER_EYE_CORNERS_14_MM,
        label_source=entries.label_source,
        **about,
    )
