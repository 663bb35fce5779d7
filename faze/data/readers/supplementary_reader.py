"""Reader of raw frames by FAZE's own annotation, the supplementary HDF5, with its 14-point face model."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from faze.base.errors import UserError
from faze.data.normalization.pose import INNER_EYE_CORNERS_14_MM
from faze.data.readers import Frame, Reject, check_distortion, is_inside
from faze.data.store.supplementary import Supplementary, read_supplementary, supplementary_persons


class SupplementaryReader:
    """People of a supplementary file; where their frames are not under the raw folder, one Reject each says so."""

    def __init__(
        self,
        raw: Path,
        supplementary: Path,
        split: str,
        on_screen: Callable[[str], Mapping[str, bool | None]] | None = None,
    ) -> None:
        """Check that the two belong together.

        Args:
            raw: folder that the file names of the annotation are relative to.
            supplementary: HDF5 of FAZE's annotation.
            split: of every person: train, val or test.
            on_screen: whether a person's targets lie on the screen, by file name; for that the file does not say.

        Raises:
            UserError: the file is not readable, or the folder holds none of its people.
        """
        self._raw, self._supplementary, self._split, self._on_screen = raw, supplementary, split, on_screen
        self._counts = supplementary_persons(supplementary)
        if not any((raw / person).is_dir() for person in self._counts):
            raise UserError(
                f"{raw}: holds no folder of a person in {supplementary}, such as {min(self._counts, default='')}"
            )

    def persons(self) -> list[str]:
        """People of the annotation, sorted."""
        return list(self._counts)

    def folder(self, person: str) -> Path:
        """See Reader."""
        return self._raw / person

    def count(self, person: str) -> int:
        """Number of annotated frames, or 1 for a person whose folder is missing."""
        return max(self._counts[person], 1) if (self._raw / person).is_dir() else 1

    def entries(self, person: str) -> Iterator[Frame | Reject]:
        """Records in the order of the annotation; see Reader."""
        on_screen = self._on_screen(person) if self._on_screen else {}
        for entry in self.entries_of(person, self._split):
            if isinstance(entry, Frame):
                yield dataclasses.replace(entry, on_screen=on_screen.get(entry.file_name))
            else:
                yield entry

    def entries_of(self, person: str, split: str, device: str = "") -> Iterator[Frame | Reject]:
        """`entries` for a person whose split and device are known."""
        if not (self._raw / person).is_dir():
            yield Reject(person, "", f"no folder {person}")
            return
        try:
            entries = read_supplementary(self._supplementary, person)
            check_distortion(entries.distortion_parameters.shape[1], f"{self._supplementary}: person {person}")
        except ValueError as error:
            yield Reject(person, "", str(error))
            return
        for row, file_name in enumerate(entries.file_names):
            if entries.reasons and entries.reasons[row]:
                yield Reject(person, file_name, entries.reasons[row])
            elif not is_inside(file_name):
                yield Reject(person, file_name, "path leads out of the data folder")
            else:
                yield self._frame(person, entries, row, split, device)

    def _frame(self, person: str, entries: Supplementary, row: int, split: str, device: str) -> Frame:
        fx, fy, cx, cy = entries.camera_parameters[row]
        return Frame(
            person_id=person,
            image_path=self._raw / entries.file_names[row],
            file_name=entries.file_names[row],
            camera_matrix=np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]]),
            distortion=entries.distortion_parameters[row],
            rotation_vector=entries.head_pose[row, :3],
            translation_mm=entries.head_pose[row, 3:],
            gaze_target_mm=entries.gaze_target_mm[row],
            inner_eye_corners_mm=INNER_EYE_CORNERS_14_MM,
            split=split,
            frame_index=row,
            origin=entries.origin,
            device=device,
        )
