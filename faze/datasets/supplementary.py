"""Reader of raw frames by FAZE's own annotation, the supplementary HDF5, with its 14-point face model."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from faze.datasets import Frame, Reject, check_distortion, is_inside
from faze.normalization import INNER_EYE_CORNERS_14_MM
from faze.store import read_supplementary, supplementary_persons


class SupplementaryReader:
    """People of a supplementary file; where their frames are not under the raw folder, one Reject each says so."""

    def __init__(self, raw: Path, supplementary: Path, split: str) -> None:
        """Check that the two belong together.

        Args:
            raw: folder that the file names of the annotation are relative to.
            supplementary: HDF5 of FAZE's annotation.
            split: of every person: train, val or test.

        Raises:
            ValueError: the file is not readable, or the folder holds none of its people.
        """
        self._raw, self._supplementary, self._split = raw, supplementary, split
        self._counts = supplementary_persons(supplementary)
        if not any((raw / person).is_dir() for person in self._counts):
            raise ValueError(
                f"{raw}: holds no folder of a person in {supplementary}, such as {min(self._counts, default='')}"
            )

    def persons(self) -> list[str]:
        """People of the annotation, sorted."""
        return list(self._counts)

    def count(self, person: str) -> int:
        """Number of annotated frames, or 1 for a person whose folder is missing."""
        return self._counts[person] if (self._raw / person).is_dir() else 1

    def entries(self, person: str) -> Iterator[Frame | Reject]:
        """Records in the order of the annotation; see Reader."""
        return self.entries_of_split(person, self._split)

    def entries_of_split(self, person: str, split: str) -> Iterator[Frame | Reject]:
        """`entries` for a person whose split is known."""
        if not (self._raw / person).is_dir():
            yield Reject(person, "", f"no folder {person}")
            return
        entries = read_supplementary(self._supplementary, person)
        check_distortion(entries.distortion_parameters.shape[1], f"{self._supplementary}: person {person}")
        for row, file_name in enumerate(entries.file_names):
            if not is_inside(file_name):
                yield Reject(person, file_name, "path leads out of the data folder")
                continue
            fx, fy, cx, cy = entries.camera_parameters[row]
            yield Frame(
                person_id=person,
                image_path=self._raw / file_name,
                file_name=file_name,
                camera_matrix=np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]]),
                distortion=entries.distortion_parameters[row],
                rotation_vector=entries.head_pose[row, :3],
                translation_mm=entries.head_pose[row, 3:],
                gaze_target_mm=entries.gaze_target_mm[row],
                inner_eye_corners_mm=INNER_EYE_CORNERS_14_MM,
                split=split,
            )
