"""A data set that was written, with its supplementary annotation: the same edits for both layouts, to plant faults."""

import copy
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from faze.base.errors import UserError
from faze.data.store.supplementary import Supplementary

_COLUMNS = {"head_pose": slice(15, 21), "gaze_target_mm": slice(24, 27)}  # of MPIIFaceGaze
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

    def change(self, field: str, row: int, change: Callable[[Any], object]) -> None:
        """Change what every annotation says of a frame in one field of `Supplementary`."""
        entries = self.annotation[self.person]
        values = copy.copy(getattr(entries, field))
        values[row] = change(values[row])
        self.annotation[self.person] = replace(entries, **{field: values})

    def rename(self, row: int, name: bytes) -> None:
        """Give a frame another name, which need not be text, in its folder."""
        old = self.root / self.name(row)
        new = old.rename(old.with_name(os.fsdecode(name)))
        self.change("file_names", row, lambda _: str(new.relative_to(self.root)))

    def append(self, row: int, file_name: str) -> None:
        """List a frame's annotation again, at the end, for the same file or another."""
        entries = self.annotation[self.person]
        rows = [*range(len(entries.file_names)), row]
        self.annotation[self.person] = _take(entries, rows, [*entries.file_names, file_name])
        self.change("file_names", -1, lambda _: file_name)

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

    def _add_own(self, person: str, row: int) -> None:
        """Write the data set's own annotation of an added person."""
        raise NotImplementedError


class WrittenMPIIFaceGaze(WrittenData):
    """MPIIFaceGaze: lines of pXX.txt."""

    dataset = "mpiigaze"
    new_person = "p9{}"

    def change(self, field: str, row: int, change: Callable[[Any], object]) -> None:
        """See WrittenData."""
        super().change(field, row, change)
        lines = self._lines()
        words = lines[row].split(b" ")
        if field == "file_names":
            words[0] = os.fsencode(self.name(row).removeprefix(f"{self.person}/"))
        else:
            numbers = np.array(words[_COLUMNS[field]], np.float64)
            words[_COLUMNS[field]] = [b"%.9f" % number for number in change(numbers)]
        lines[row] = b" ".join(words)
        self._write(lines)

    def append(self, row: int, file_name: str) -> None:
        """See WrittenData."""
        lines = self._lines()
        self._write([*lines, lines[row]])
        super().append(row, file_name)

    def _add_own(self, person: str, row: int) -> None:
        shutil.copytree(self.root / self.person / "Calibration", self.root / person / "Calibration")
        (self.root / person / f"{person}.txt").write_bytes(self._lines()[row] + b"\n")

    def _lines(self) -> list[bytes]:
        return (self.root / self.person / f"{self.person}.txt").read_bytes().splitlines()

    def _write(self, lines: Sequence[bytes]) -> None:
        (self.root / self.person / f"{self.person}.txt").write_bytes(b"".join(line + b"\n" for line in lines))


class WrittenGazeCapture(WrittenData):
    """GazeCapture: entries of parallel JSON arrays."""

    dataset = "gazecapture"
    new_person = "5990{}"

    def change(self, field: str, row: int, change: Callable[[Any], object]) -> None:
        """See WrittenData; the data set's own files know no head pose."""
        super().change(field, row, change)
        if field == "file_names":
            path = self.root / self.person / "frames.json"
            names = _read_json(path)
            names[row] = self.name(row).removeprefix(f"{self.person}/frames/")
            _write_json(path, names)
        elif field == "gaze_target_mm":
            x, y, _ = self.annotation[self.person].gaze_target_mm[row] / -10  # right and up as the user sees it, cm
            self.set_number("dotInfo", "XCam", row, x)
            self.set_number("dotInfo", "YCam", row, y)

    def append(self, row: int, file_name: str) -> None:
        """See WrittenData."""
        for path in self._parallel():
            content = _read_json(path)
            for array in [content] if isinstance(content, list) else content.values():
                array.append(array[row])
            _write_json(path, content)
        super().append(row, file_name)

    def set_number(self, file: str, key: str, row: int, number: float) -> None:
        """Change one number of the first person's arrays."""
        path = self.root / self.person / f"{file}.json"
        content = _read_json(path)
        content[key][row] = number
        _write_json(path, content)

    def _parallel(self) -> list[Path]:
        """List the files that hold one entry per frame."""
        return [path for path in sorted((self.root / self.person).glob("*.json")) if path.stem not in _SINGLE]

    def _add_own(self, person: str, row: int) -> None:
        for name in _SINGLE:
            shutil.copyfile(self.root / self.person / f"{name}.json", self.root / person / f"{name}.json")
        for path in self._parallel():
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
