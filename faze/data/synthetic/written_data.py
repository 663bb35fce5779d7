"""A written data set with its supplementary annotation, where faults are planted: the same edits for both layouts."""

import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from faze.base.errors import UserError
from faze.data.store.supplementary import Supplementary

_HEAD_POSE, _TARGET = slice(15, 21), slice(24, 27)  # columns of MPIIFaceGaze


@dataclass(frozen=True, eq=False)
class WrittenData:
    """One data set: its folder, and FAZE's annotation of its people, which is still to be written."""

    root: Path
    annotation: dict[str, Supplementary]

    dataset = ""  # as preprocess calls it
    new_person = "{}"  # people that the generator never makes

    @property
    def person(self) -> str:
        """The one whose frames are spoilt: the first."""
        return min(self.annotation)

    def name(self, row: int) -> str:
        """File name of a frame of that person, relative to the root."""
        return self.annotation[self.person].file_names[row]

    def set_head_pose(self, row: int, change: Callable[[np.ndarray], ArrayLike]) -> None:
        """Change a frame's (6,) rotation vector and translation in every annotation that has it."""
        self._change_supplementary("head_pose", row, change)

    def set_target(self, row: int, target_mm: ArrayLike) -> None:
        """Change a frame's (3,) gaze target in every annotation."""
        self._change_supplementary("gaze_target_mm", row, lambda _: target_mm)

    def rename(self, row: int, name: bytes) -> str:
        """Give a frame another name, which need not be text, in its folder; returns the file name."""
        old = self.root / self.name(row)
        new = old.with_name(os.fsdecode(name))
        old.rename(new)
        self._set_name(row, str(new.relative_to(self.root)))
        return self.name(row)

    def append(self, row: int, file_name: str | None = None) -> str:
        """List a frame's annotation again, for the same file or another; returns the file name."""
        entries = self.annotation[self.person]
        names = [*entries.file_names, file_name or entries.file_names[row]]
        self.annotation[self.person] = _take(entries, [*range(len(entries.file_names)), row], names)
        return names[-1]

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
        names = list(self.annotation[self.person].file_names)
        names[row] = file_name
        self.annotation[self.person] = dataclasses.replace(self.annotation[self.person], file_names=names)

    def _change_supplementary(self, array: str, row: int, change: Callable[[np.ndarray], ArrayLike]) -> None:
        entries = self.annotation[self.person]
        values = getattr(entries, array).copy()
        values[row] = change(values[row])
        self.annotation[self.person] = dataclasses.replace(entries, **{array: values})

    def _add_own(self, person: str, row: int) -> None:
        raise NotImplementedError


class WrittenMPIIFaceGaze(WrittenData):
    """MPIIFaceGaze: lines of pXX.txt."""

    dataset = "mpiigaze"
    new_person = "p9{}"

    def set_head_pose(self, row: int, change: Callable[[np.ndarray], ArrayLike]) -> None:
        """See Site."""
        super().set_head_pose(row, change)
        self._change_line(row, _HEAD_POSE, change)

    def set_target(self, row: int, target_mm: ArrayLike) -> None:
        """See Site."""
        super().set_target(row, target_mm)
        self._change_line(row, _TARGET, lambda _: target_mm)

    def append(self, row: int, file_name: str | None = None) -> str:
        """See Site."""
        name = super().append(row, file_name)
        words = self._lines()[row].split(b" ")
        words[0] = os.fsencode(name.removeprefix(f"{self.person}/"))
        self._write([*self._lines(), b" ".join(words)])
        return name

    def _set_name(self, row: int, file_name: str) -> None:
        super()._set_name(row, file_name)
        lines = self._lines()
        lines[row] = b" ".join([os.fsencode(file_name.removeprefix(f"{self.person}/")), *lines[row].split(b" ")[1:]])
        self._write(lines)

    def _add_own(self, person: str, row: int) -> None:
        shutil.copytree(self.root / self.person / "Calibration", self.root / person / "Calibration")
        (self.root / person / f"{person}.txt").write_bytes(self._lines()[row] + b"\n")

    def _change_line(self, row: int, columns: slice, change: Callable[[np.ndarray], ArrayLike]) -> None:
        lines = self._lines()
        words = lines[row].split(b" ")
        words[columns] = [b"%.9f" % number for number in change(np.array(words[columns], np.float64))]
        lines[row] = b" ".join(words)
        self._write(lines)

    def _lines(self) -> list[bytes]:
        return (self.root / self.person / f"{self.person}.txt").read_bytes().splitlines()

    def _write(self, lines: list[bytes]) -> None:
        (self.root / self.person / f"{self.person}.txt").write_bytes(b"".join(line + b"\n" for line in lines))


class WrittenGazeCapture(WrittenData):
    """GazeCapture: entries of parallel JSON arrays."""

    dataset = "gazecapture"
    new_person = "5990{}"

    def set_target(self, row: int, target_mm: ArrayLike) -> None:
        """See Site."""
        super().set_target(row, target_mm)
        x, y, _ = np.asarray(target_mm, float) / -10  # right and up as the user sees the screen, cm
        self.set_number("dotInfo", "XCam", row, x)
        self.set_number("dotInfo", "YCam", row, y)

    def append(self, row: int, file_name: str | None = None) -> str:
        """See Site."""
        name = super().append(row, file_name)
        for path, content in self.arrays(self.person):
            for array in [content] if isinstance(content, list) else content.values():
                array.append(array[row])
            if path.stem == "frames":
                content[-1] = name.removeprefix(f"{self.person}/frames/")
            _write_json(path, content)
        return name

    def set_number(self, file: str, key: str, row: int, number: float) -> None:
        """Change one number of the first person's arrays."""
        path = self.root / self.person / f"{file}.json"
        content = json.loads(path.read_bytes())
        content[key][row] = number
        _write_json(path, content)

    def arrays(self, person: str) -> Iterator[tuple[Path, list | dict]]:
        """Files that hold one entry per frame, and what they hold."""
        for path in sorted((self.root / person).glob("*.json")):
            if path.stem not in ("info", "motion"):
                yield path, json.loads(path.read_bytes().decode(errors="surrogateescape"))

    def _set_name(self, row: int, file_name: str) -> None:
        super()._set_name(row, file_name)
        path = self.root / self.person / "frames.json"
        names = json.loads(path.read_bytes().decode(errors="surrogateescape"))
        names[row] = file_name.removeprefix(f"{self.person}/frames/")
        _write_json(path, names)

    def _add_own(self, person: str, row: int) -> None:
        for path in (self.root / self.person).glob("*.json"):
            shutil.copyfile(path, self.root / person / path.name)
        for path, content in self.arrays(person):
            one = [content[row]] if isinstance(content, list) else {k: [array[row]] for k, array in content.items()}
            _write_json(path, one)


def _write_json(path: Path, content: list | dict) -> None:
    # A file name that is not text is written as the bytes that it is.
    path.write_bytes(json.dumps(content, ensure_ascii=False).encode(errors="surrogateescape"))


def _take(entries: Supplementary, rows: list[int], names: list[str]) -> Supplementary:
    return Supplementary(
        file_names=names,
        camera_parameters=entries.camera_parameters[rows],
        distortion_parameters=entries.distortion_parameters[rows],
        head_pose=entries.head_pose[rows],
        gaze_target_mm=entries.gaze_target_mm[rows],
    )
