"""Readers of MPIIFaceGaze: pXX/pXX.txt, and of MPIIGaze: Data/Original/pXX/dayYY/annotation.txt (DESIGN section 3).

Both annotate 3-D head pose and target in the camera frame with the 6-point face model, and have the laptop's intrinsics
and screen in pXX/Calibration. All people are test people.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.files import is_of_the_file
from faze.data.normalization.pose import INNER_EYE_CORNERS_6_MM
from faze.data.readers import Frame, Reader, Reject, is_inside
from faze.data.readers.calibration import read_camera
from faze.data.readers.screen import OnScreen, lie_on_screen, read_screen_px, unknown_screens
from faze.data.readers.supplementary_reader import SupplementaryReader

SPLIT = "test"


def open_mpiifacegaze(raw: Path, supplementary: Path | None) -> Reader:
    """Reader of a raw folder by FAZE's annotation where it is given, else by the data set's own.

    Raises:
        UserError: the folder holds none of its people.
    """
    own = MPIIGaze if next(_original(raw).glob("p*/day*/annotation.txt"), None) else MPIIFaceGaze
    if supplementary:
        return SupplementaryReader(raw, supplementary, SPLIT, OnScreenByName(raw) if own is MPIIFaceGaze else None)
    return own(raw)


@dataclass(frozen=True)
class Columns:
    """Which columns of an annotation's numbers hold what; the numbers stand at their column (0-based)."""

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

    def __init__(self, raw: Path) -> None:
        """List the people; say where a screen is not known.

        Raises:
            UserError: there are none.
        """
        self._raw, self._folder = raw, self._people_folder(raw)
        if not self.persons():
            raise UserError(f"{raw}: holds no folder p00, p01, ...; preprocess.mpiifacegaze is the one that does")
        if note := unknown_screens([self._folder / person for person in self.persons()]):
            print(f"{raw}: {note}", file=sys.stderr)

    def persons(self) -> list[str]:
        """Folders pXX, sorted."""
        return sorted(folder.name for folder in self._folder.glob("p*/") if re.fullmatch(r"p\d+", folder.name))

    def folder(self, person: str) -> Path:
        """See Reader."""
        return self._folder / person

    def count(self, person: str) -> int:
        """Number of annotated frames; 1 for a person whose files are broken."""
        try:
            return len(self._read_annotation(person)[0]) + len(self._gaps(person))
        except ValueError:
            return 1

    def entries(self, person: str) -> Iterator[Frame | Reject]:
        """Records in the order of the annotation; see Reader."""
        folder = self._folder / person
        try:
            camera_matrix, distortion = read_camera(folder)
            names, numbers = self._read_annotation(person)
            on_screen = lie_on_screen(numbers[:, self.columns.target_px], read_screen_px(folder))
        except ValueError as error:
            yield Reject(person, "", str(error))
            return
        for row, (name, values) in enumerate(zip(names, numbers, strict=True)):
            path = folder / name
            file_name = f"{folder.relative_to(self._raw)}/{name}"
            if not is_inside(name):
                yield Reject(person, file_name, "path leads out of the data folder")
                continue
            pose = values[self.columns.head_pose]
            yield Frame(
                person_id=person,
                image_path=path,
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

    def _people_folder(self, raw: Path) -> Path:
        return raw

    def _gaps(self, person: str) -> list[Reject]:
        """What lacks its annotation."""
        return []

    def _read_annotation(self, person: str) -> tuple[list[str], NDArray]:
        """Image paths within the person's folder, and (N, columns) numbers."""
        texts, numbers = read_columns(self._folder / person / f"{person}.txt", self.columns)
        return [words[0] for words in texts], numbers


class MPIIGaze(MPIIFaceGaze):
    """The original layout: line n of a day's annotation belongs to the day's image n, counted from 1."""

    columns = ORIGINAL

    def _people_folder(self, raw: Path) -> Path:
        return _original(raw)

    def _gaps(self, person: str) -> list[Reject]:
        """Days without annotation.txt, as of a download that was interrupted."""
        days = sorted((self._folder / person).glob("day*/"))
        lost = [day.relative_to(self._raw) for day in days if not (day / "annotation.txt").exists()]
        return [Reject(person, str(day), "the day has no annotation.txt") for day in lost]

    def _read_annotation(self, person: str) -> tuple[list[str], NDArray]:
        """Image paths within the person's folder, and (N, columns) numbers, day by day."""
        names, numbers = [], []
        for path in sorted((self._folder / person).glob("day*/annotation.txt")):
            rows = read_columns(path, self.columns)[1]
            names += [f"{path.parent.name}/{line:04d}.jpg" for line in range(1, len(rows) + 1)]
            numbers.append(rows)
        if not numbers:
            raise UserError(f"{self._folder / person}: has no dayYY/annotation.txt; fetch person {person} again")
        return names, np.concatenate(numbers)


class OnScreenByName:
    """Whether targets lie on the screen, by the data set's own annotation; where that is not readable, none is said."""

    def __init__(self, raw: Path) -> None:
        self._raw = raw

    def __call__(self, person: str) -> dict[str, bool | None]:
        """By file name relative to the raw folder."""
        folder = self._raw / person
        try:
            texts, numbers = read_columns(folder / f"{person}.txt", FACE)
            judged: OnScreen = lie_on_screen(numbers[:, FACE.target_px], read_screen_px(folder))
        except ValueError:
            return {}
        return {f"{person}/{words[0]}": on_screen for words, on_screen in zip(texts, judged, strict=True)}


def read_columns(path: Path, columns: Columns) -> tuple[list[list[str]], NDArray]:
    """Texts of each line, and (N, columns) numbers in which the texts' places are NaN.

    Bytes that are not UTF-8 stay what they are in file names, as os.fsdecode has it.

    Raises:
        UserError: the file is missing or not of its format; names it, and the line.
    """
    person = path.parent.name if columns.texts else path.parent.parent.name
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; fetch the annotation of person {person} again") from None
    except OSError as error:
        if not is_of_the_file(error):
            raise
        raise UserError(f"{path}: {error.strerror}") from None
    if b"\0" in content:
        raise UserError(f"{path}: is not text; fetch the annotation of person {person} again")
    texts, numbers = [], []
    for number, line in enumerate(content.decode(errors="surrogateescape").splitlines(), start=1):
        words = line.split()
        if not words:
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


def _original(raw: Path) -> Path:
    """The folder of MPIIGaze's people: the one given, or that within the whole download."""
    candidates = (raw / "Data" / "Original", raw / "Original")
    return next((folder for folder in candidates if folder.is_dir()), raw)
