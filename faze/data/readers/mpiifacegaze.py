"""Reads MPIIFaceGaze (pXX/pXX.txt) and MPIIGaze (Data/Original/pXX/dayYY/annotation.txt).

Both annotate 3-D head pose and target in the camera frame with the 6-point face model, and have the laptop's intrinsics
and screen in pXX/Calibration. All people are test people.
"""

import functools
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.files import read_plain, reason_of
from faze.data.normalization.pose import INNER_EYE_CORNERS_6_MM
from faze.data.readers import Frame, Reader, Reject
from faze.data.readers.annotation_checks import OUTSIDE, is_inside, lie_on_screen
from faze.data.readers.calibration import read_camera, read_screen_px, unknown_screens
from faze.data.readers.supplementary_reader import SupplementaryReader

SPLIT = "test"


def open_mpiifacegaze(raw: Path, supplementary: Path | None) -> Reader:
    """Choose the reader of a raw folder: by FAZE's annotation where it is given, else by the data set's own.

    Raises:
        UserError: the folder holds none of its people.
    """
    # MPIIGaze's people lie in the folder that is given, or within the whole download.
    original = next((folder for folder in (raw / "Data" / "Original", raw / "Original") if folder.is_dir()), raw)
    is_original = next(original.glob("p*/day*/annotation.txt"), None) is not None
    reader, people = (MPIIGaze, original) if is_original else (MPIIFaceGaze, raw)
    if supplementary:
        return SupplementaryReader(people, supplementary, SPLIT, functools.partial(_on_screen, reader, people))
    return reader(raw, people)


@dataclass(frozen=True)
class Columns:
    """Which columns of an annotation hold what, counted from 0."""

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
        """List the people, and say whose screen is not known.

        Args:
            raw: folder to which file names are relative.
            people: folder in which the people's folders lie.

        Raises:
            UserError: there are none.
        """
        self._raw, self._people = raw, people
        if not self.persons():
            raise UserError(f"{raw}: holds no folder p00, p01, ...; preprocess.mpiifacegaze is the one that does")
        if note := unknown_screens([self.folder(person) for person in self.persons()]):
            print(f"{raw}: {note}", file=sys.stderr)

    def persons(self) -> list[str]:
        """List the folders pXX, sorted."""
        return sorted(folder.name for folder in self._people.glob("p*/") if re.fullmatch(r"p\d+", folder.name))

    def folder(self, person: str) -> Path:
        """See Reader."""
        return self._people / person

    def count(self, person: str) -> int:
        """Count the annotated frames; 1 for a person whose files are broken."""
        try:
            return len(self.read_annotation(self.folder(person))[0]) + len(self._gaps(person))
        except UserError:
            return 1

    def entries(self, person: str) -> Iterator[Frame | Reject]:
        """See Reader."""
        folder = self.folder(person)
        try:
            camera_matrix, distortion = read_camera(folder)
            names, numbers = self.read_annotation(folder)
            on_screen = lie_on_screen(numbers[:, self.columns.target_px], read_screen_px(folder))
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
        yield from self._gaps(person)

    def _gaps(self, person: str) -> list[Reject]:
        """List what lacks its annotation: nothing here, as one file annotates all days."""
        return []

    @classmethod
    def read_annotation(cls, folder: Path) -> tuple[list[str], NDArray]:
        """Read image paths within the person's folder, and (N, columns) numbers."""
        texts, numbers = read_columns(folder / f"{folder.name}.txt", cls.columns)
        return [words[0] for words in texts], numbers


class MPIIGaze(MPIIFaceGaze):
    """The original layout: line n of a day's annotation belongs to the day's image n, counted from 1."""

    columns = ORIGINAL

    def _gaps(self, person: str) -> list[Reject]:
        """List the days without annotation.txt, as a download that was interrupted leaves them."""
        days = sorted(self.folder(person).glob("day*/"))
        return [
            Reject(person, str(day.relative_to(self._raw)), "the day has no annotation.txt")
            for day in days
            if not (day / "annotation.txt").exists()
        ]

    @classmethod
    def read_annotation(cls, folder: Path) -> tuple[list[str], NDArray]:
        """Read image paths within the person's folder, and (N, columns) numbers, day by day."""
        names, numbers = [], []
        for path in sorted(folder.glob("day*/annotation.txt")):
            rows = read_columns(path, cls.columns)[1]
            names += [f"{path.parent.name}/{line:04d}.jpg" for line in range(1, len(rows) + 1)]
            numbers.append(rows)
        if not numbers:
            raise UserError(f"{folder}: has no dayYY/annotation.txt; fetch person {folder.name} again")
        return names, np.concatenate(numbers)


def _on_screen(reader: type[MPIIFaceGaze], people: Path, person: str) -> dict[str, bool | None]:
    """Tell by file name whether targets lie on the screen, by the data set's own annotation; {} if it is unreadable."""
    folder = people / person
    try:
        names, numbers = reader.read_annotation(folder)
        on_screen = lie_on_screen(numbers[:, reader.columns.target_px], read_screen_px(folder))
    except UserError:
        return {}
    return {f"{folder.name}/{name}": is_on for name, is_on in zip(names, on_screen, strict=True)}


def read_columns(path: Path, columns: Columns) -> tuple[list[list[str]], NDArray]:
    """Read the texts of each line, and (N, columns) numbers that are NaN in the place of a text.

    Bytes that are not UTF-8 stay what they are in file names, as with os.fsdecode.

    Raises:
        UserError: the file is missing or not of its format; names it, and the line.
    """
    person = path.parent.name if columns.texts else path.parent.parent.name
    try:
        content = read_plain(path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; fetch the annotation of person {person} again") from None
    except OSError as error:
        raise UserError(f"{path}: {reason_of(error)}") from None
    if b"\0" in content:
        raise UserError(f"{path}: is not text; fetch the annotation of person {person} again")
    texts, numbers = [], []
    for number, line in enumerate(content.decode(errors="surrogateescape").rstrip().splitlines(), start=1):
        words = line.split()
        if not words and columns.texts:  # where lines name no image, they are counted: none may be missing
            continue
        if len(words) != columns.count:
            raise UserError(f"{path}:{number}: {len(words)} columns, not the {columns.count} of {columns.name}")
        try:
            values = [np.nan if column in columns.texts else float(word) for column, word in enumerate(words)]
        except ValueError as error:
            raise UserError(f"{path}:{number}: {error}, where {columns.name} has numbers") from None
        texts.append([words[column] for column in columns.texts])
        numbers.append(values)
    return texts, np.array(numbers, np.float64).reshape(len(numbers), columns.count)
