"""A data set that was written, with its supplementary annotation: the same edits for both layouts, to plant faults."""

import copy
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from faze.base.errors import UserError
from faze.data.store.supplementary import Supplementary

_HEAD_POSE, _TARGET = slice(15, 21), slice(24, 27)  # columns of MPIIFaceGaze
_SINGLE = ("info", "motion")  # GazeCapture's files that do not hold one entry per frame


@dataclass(frozen=True, eq=False)
class WrittenData:
    """One data set: its folder, and FAZE's annotation of its people, which is still to be written."""

    root: Path
    annotation: dict[str, Supplementary]

    dataset = ""  # as preprocess calls it
    new_person = "{}"  # people that the generator never makes

    @property
    def person(self) -> str:
        """Name the person whose frames are spoilt: the first."""
        return min(self.annotation)

    def name(self, row: int) -> str:
        """Return the file name of a frame of that person, relative to the root."""
        return self.annotation[self.person].file_names[row]

    def set_head_pose(self, row: int, change: Callable[[np.ndarray], ArrayLike]) -> None:
        """Change a frame's (6,) rotation vector and translation in every annotation that has it."""
        self._change("head_pose", row, change)

    def set_target(self, row: int, target_mm: ArrayLike) -> None:
        """Change a frame's (3,) gaze target in every annotation."""
        self._change("gaze_target_mm", row, lambda _: target_mm)

    def rename(self, row: int, name: bytes) -> str:
        """Give a frame another name, which need not be text, in its folder; returns the file name."""
        old = self.root / self.name(row)
        new = old.with_name(os.fsdecode(name))
        old.rename(new)
        self._set_name(row, str(new.relative_to(self.root)))
        return self.name(row)

    def append(self, row: int, file_name: str) -> str:
        """List a frame's annotation again, for the same file or another; returns the file name."""
        entries = self.annotation[self.person]
        rows = [*range(len(entries.file_names)), row]
        self.annotation[self.person] = _take(entries, rows, [*entries.file_names, file_name])
        return file_name

    def add_person(self, number: int, row: int) -> str:
        """Add a person of one frame, one of the first person's; returns who."""
        person, first = self.new_person.format(number), self.annotation[self.person]
        if person in self.annotation:
            raise UserError(f"synthetic.faults: there are so many people that {person} is among them")
        name = first.file_names[row].replace(self.person, person, 1)
        (self.root / name).parent.mkdir(parents=True)
        shutil.copyfile(self.root / first.file_names[row], self.root / name)
        self.annotation[person] = _take(first, [row], [name])
        self._add_own(person, row)
        return person

    def _set_name(self, row: int, file_name: str) -> None:
        self._change("file_names", row, lambda _: file_name)

    def _change(self, field: str, row: int, change: Callable[[object], object]) -> None:
        entries = self.annotation[self.person]
        values = copy.copy(getattr(entries, field))
        values[row] = change(values[row])
        self.annotation[self.person] = replace(entries, **{field: values})

    def _add_own(self, person: str, row: int) -> None:
        """Write the data set's own annotation of an added person."""
        raise NotImplementedError


class WrittenMPIIFaceGaze(WrittenData):
    """MPIIFaceGaze: lines of pXX.txt."""

    dataset = "mpiigaze"
    new_person = "p9{}"

    def set_head_pose(self, row: int, change: Callable[[np.ndarray], ArrayLike]) -> None:
        """See WrittenData."""
        super().set_head_pose(row, change)
        self._change_numbers(row, _HEAD_POSE, change)

    def set_target(self, row: int, target_mm: ArrayLike) -> None:
        """See WrittenData."""
        super().set_target(row, target_mm)
        self._change_numbers(row, _TARGET, lambda _: target_mm)

    def append(self, row: int, file_name: str) -> str:
        """See WrittenData."""
        lines = self._lines()
        self._write([*lines, lines[row]])
        self._change_words(-1, slice(1), [os.fsencode(file_name.removeprefix(f"{self.person}/"))])
        return super().append(row, file_name)

    def _set_name(self, row: int, file_name: str) -> None:
        super()._set_name(row, file_name)
        self._change_words(row, slice(1), [os.fsencode(file_name.removeprefix(f"{self.person}/"))])

    def _add_own(self, person: str, row: int) -> None:
        shutil.copytree(self.root / self.person / "Calibration", self.root / person / "Calibration")
        (self.root / person / f"{person}.txt").write_bytes(self._lines()[row] + b"\n")

    def _change_numbers(self, row: int, columns: slice, change: Callable[[np.ndarray], ArrayLike]) -> None:
        numbers = change(np.array(self._lines()[row].split(b" ")[columns], np.float64))
        self._change_words(row, columns, [b"%.9f" % number for number in numbers])

    def _change_words(self, row: int, columns: slice, words: Sequence[bytes]) -> None:
        lines = self._lines()
        line = lines[row].split(b" ")
        line[columns] = words
        lines[row] = b" ".join(line)
        self._write(lines)

    def _lines(self) -> list[bytes]:
        return (self.root / self.person / f"{self.person}.txt").read_bytes().splitlines()

    def _write(self, lines: Sequence[bytes]) -> None:
        (self.root / self.person / f"{self.person}.txt").write_bytes(b"".join(line + b"\n" for line in lines))


class WrittenGazeCapture(WrittenData):
    """GazeCapture: entries of parallel JSON arrays."""

    dataset = "gazecapture"
    new_person = "5990{}"

    def set_target(self, row: int, target_mm: ArrayLike) -> None:
        """See WrittenData."""
        super().set_target(row, target_mm)
        x, y, _ = np.asarray(target_mm, float) / -10  # right and up as the user sees the screen, cm
        self.set_number("dotInfo", "XCam", row, x)
        self.set_number("dotInfo", "YCam", row, y)

    def append(self, row: int, file_name: str) -> str:
        """See WrittenData."""
        for path in self._parallel(self.person):
            content = _read_json(path)
            for array in [content] if isinstance(content, list) else content.values():
                array.append(array[row])
            _write_json(path, content)
        name = super().append(row, file_name)
        self._set_name(-1, file_name)
        return name

    def set_number(self, file: str, key: str, row: int, number: float) -> None:
        """Change one number of the first person's arrays."""
        path = self.root / self.person / f"{file}.json"
        content = _read_json(path)
        content[key][row] = number
        _write_json(path, content)

    def _parallel(self, person: str) -> list[Path]:
        """List the files that hold one entry per frame."""
        return [path for path in sorted((self.root / person).glob("*.json")) if path.stem not in _SINGLE]

    def _set_name(self, row: int, file_name: str) -> None:
        super()._set_name(row, file_name)
        path = self.root / self.person / "frames.json"
        names = _read_json(path)
        names[row] = file_name.removeprefix(f"{self.person}/frames/")
        _write_json(path, names)

    def _add_own(self, person: str, row: int) -> None:
        for name in _SINGLE:
            shutil.copyfile(self.root / self.person / f"{name}.json", self.root / person / f"{name}.json")
        for path in self._parallel(self.person):
            content = _read_json(path)
            one = [content[row]] if isinstance(content, list) else {k: [array[row]] for k, array in content.items()}
            _write_json(self.root / person / path.name, one)


# A file name that is not text is kept as the bytes that it is.
def _read_json(path: Path) -> list | dict:
    return json.loads(path.read_bytes().decode(errors="surrogateescape"))


def _write_json(path: Path, content: list | dict) -> None:
    path.write_bytes(json.dumps(content, ensure_ascii=False).encode(errors="surrogateescape"))


def _take(entries: Supplementary, rows: list[int], names: list[str]) -> Supplementary:
    arrays = {name: array[rows] for name, array in vars(entries).items() if isinstance(array, np.ndarray)}
    return replace(entries, file_names=names, **arrays)
