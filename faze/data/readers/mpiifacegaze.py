"""Read MPIIFaceGaze (pXX/pXX.txt) and MPIIGaze (Data/Original/pXX/dayYY/annotation.txt).

Both annotate the 3-D head pose and gaze target in the camera frame, using the 6-point face model. pXX/Calibration
contains the laptop's intrinsics and screen.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.files import reading
from faze.data.normalization.pose import INNER_EYE_CORNERS_6_MM
from faze.data.readers import OUTSIDE, Frame, Reader, Reject, is_inside, lie_on_screen
from faze.data.readers.calibration import CAMERA, SCREEN, read_camera, read_screen_px
from faze.data.readers.supplementary_reader import SupplementaryReader

SPLIT = ""  # the data set states none


def open_mpiifacegaze(raw: Path, supplementary: Path | None) -> Reader:
    """Open a raw folder with FAZE's annotation if it is given, otherwise with the data set's own.

    Raises:
        UserError: The folder contains none of its people.
    """
    # The folders of MPIIGaze's people are in the given folder, or deeper in the complete download.
    original = next((folder for folder in (raw / "Data" / "Original", raw / "Original") if folder.is_dir()), raw)
    is_original = next(original.glob("p*/day*/annotation.txt"), None) is not None
    reader, people = (MPIIGaze, original) if is_original else (MPIIFaceGaze, raw)
    own = reader(raw, people)
    if supplementary:
        return SupplementaryReader(people, supplementary, SPLIT, reader.columns.name, own.on_screen)
    own.check_people()
    return own


@dataclass(frozen=True)
class Columns:
    """The columns of an annotation, counted from 0."""

    name: str  # of the data set
    count: int
    texts: tuple[int, ...]  # columns that are no numbers
    head_pose: slice
    target_mm: slice
    target_px: slice


FACE = Columns("MPIIFaceGaze", 28, (0, 27), head_pose=slice(15, 21), target_mm=slice(24, 27), target_px=slice(1, 3))
ORIGINAL = Columns("MPIIGaze", 41, (), head_pose=slice(29, 35), target_mm=slice(26, 29), target_px=slice(24, 26))


class MPIIFaceGaze:
    """The data set's own annotation, with its 6-point face model."""

    columns = FACE

    def __init__(self, raw: Path, people: Path) -> None:
        """Open the folders.

        Args:
            raw: Folder to which file names are relative.
            people: Folder that contains the people's folders.
        """
        self._raw, self._people, self.layout = raw, people, self.columns.name

    def check_people(self) -> None:
        """Refuse a folder without people.

        Raises:
            UserError: There are no people.
        """
        if not self.persons():
            raise UserError(
                f"{self._raw}: contains no folder p00, p01, ...; set the path of this data set to the folder that does"
            )

    def persons(self) -> list[str]:
        """List the folders pXX, sorted."""
        return sorted(folder.name for folder in self._people.glob("p*/") if re.fullmatch(r"p\d+", folder.name))

    def count(self, person: str) -> int:
        """Count the annotated frames; 1 for a person whose files are damaged."""
        try:
            return len(self.read_annotation(self._people / person)[0])
        except UserError:
            return 1

    def entries(self, person: str) -> Iterator[Frame | Reject]:
        """See Reader."""
        folder = self._people / person
        try:
            camera_matrix, distortion = read_camera(folder / CAMERA)
            names, numbers = self.read_annotation(folder)
            on_screen = lie_on_screen(numbers[:, self.columns.target_px], read_screen_px(folder / SCREEN))
        except UserError as error:
            yield Reject(person, "", str(error))
            return
        for row, (name, values) in enumerate(zip(names, numbers, strict=True)):
            file_name = f"{folder.relative_to(self._raw)}/{name}"
            if not is_inside(name):
                yield Reject(person, file_name, OUTSIDE)
                continue
            pose = values[self.columns.head_pose]
            yield Frame(
                person_id=person,
                image_path=folder / name,
                file_name=file_name,
                camera_matrix=camera_matrix,
                distortion=distortion,
                rotation_vector=pose[:3],
                translation_mm=pose[3:],
                gaze_target_mm=values[self.columns.target_mm],
                inner_eye_corners_mm=INNER_EYE_CORNERS_6_MM,
                split=SPLIT,
                frame_index=row,
                on_screen=on_screen[row],
            )

    def on_screen(self, person: str) -> dict[str, bool | None]:
        """Map each file name to whether its target is on the screen; {} if the annotation is unreadable."""
        folder = self._people / person
        try:
            names, numbers = self.read_annotation(folder)
            on_screen = lie_on_screen(numbers[:, self.columns.target_px], read_screen_px(folder / SCREEN))
        except UserError:
            return {}
        return {f"{person}/{name}": is_on for name, is_on in zip(names, on_screen, strict=True)}

    @classmethod
    def read_annotation(cls, folder: Path) -> tuple[list[str], NDArray]:
        """Read image paths relative to the person's folder, and an (N, columns) array of numbers."""
        texts, numbers = read_columns(folder / f"{folder.name}.txt", cls.columns)
        return [words[0] for words in texts], numbers


class MPIIGaze(MPIIFaceGaze):
    """The original layout: line n of a day's annotation describes the day's image n, counted from 1."""

    columns = ORIGINAL

    @classmethod
    def read_annotation(cls, folder: Path) -> tuple[list[str], NDArray]:
        """Read image paths relative to the person's folder, and an (N, columns) array of numbers, day by day."""
        names, numbers = [], []
        for path in sorted(folder.glob("day*/annotation.txt")):
            rows = read_columns(path, cls.columns)[1]
            names += [f"{path.parent.name}/{line:04d}.jpg" for line in range(1, len(rows) + 1)]
            numbers.append(rows)
        if not numbers:
            raise UserError(f"{folder}: has no dayYY/annotation.txt; download person {folder.name} again")
        return names, np.concatenate(numbers)


def read_columns(path: Path, columns: Columns) -> tuple[list[list[str]], NDArray]:
    """Read the text columns of each line, and an (N, columns) array of numbers with NaN in place of text.

    Bytes in file names that are not valid UTF-8 are preserved, as by os.fsdecode.

    Raises:
        UserError: The file is missing or in the wrong format; the message names file and line.
    """
    person = path.parent.name if columns.texts else path.parent.parent.name
    remedy = f"download the annotation of person {person} again"
    with reading(path, remedy):
        return _parse_columns(path.read_text(encoding="utf-8-sig", errors="surrogateescape"), path, columns)


def _parse_columns(text: str, path: Path, columns: Columns) -> tuple[list[list[str]], NDArray]:
    texts, numbers = [], []
    for number, line in enumerate(text.rstrip().splitlines(), start=1):
        words = line.split()
        if not words and columns.texts:  # if lines name no image, they are counted, so none may be missing
            continue
        if len(words) != columns.count:
            raise UserError(f"{path}:{number}: {len(words)} columns, not the {columns.count} of {columns.name}")
        try:
            values = [np.nan if column in columns.texts else float(word) for column, word in enumerate(words)]
        except ValueError as error:
            raise UserError(f"{path}:{number}: {error}; expected numbers in {columns.name}") from None
        texts.append([words[column] for column in columns.texts])
        numbers.append(values)
    return texts, np.array(numbers, np.float64).reshape(len(numbers), columns.count)
