"""Faults found in real data, planted in rendered data sets, and the expected consequence of each.

A frame fault damages a fixed frame of each data set's first person; a person fault adds a person.
"""

import copy
import json
import os
import shutil
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from data_sets import LAYOUTS

from faze.data.store.supplementary import (
    Supplementary,
    read_supplementary,
    supplementary_persons,
    write_supplementary,
)

_COLUMNS = {"head_pose": slice(15, 21), "gaze_target_mm": slice(24, 27)}  # of MPIIFaceGaze
_SINGLE = ("info", "motion")  # GazeCapture's files that do not hold one entry per frame


@dataclass(frozen=True, eq=False)
class WrittenData:
    """One data set: its folder, and FAZE's annotation of its people, which is not written yet."""

    root: Path
    annotation: dict[str, Supplementary]

    dataset = ""  # as preprocess calls it
    new_person = "{}"  # people that the generator never makes

    @property
    def person(self) -> str:
        """Return the person whose frames are damaged: the first."""
        return min(self.annotation)

    def name(self, row: int) -> str:
        """Return the file name of a frame of that person, relative to the root."""
        return self.annotation[self.person].file_names[row]

    def change(self, field: str, row: int, change: Callable[[Any], object]) -> None:
        """Change one field of a frame's `Supplementary` in every annotation."""
        entries = self.annotation[self.person]
        values = copy.copy(getattr(entries, field))
        values[row] = change(values[row])
        self.annotation[self.person] = replace(entries, **{field: values})

    def rename(self, row: int, name: bytes) -> None:
        """Rename a frame within its folder; the name need not be valid text."""
        old = self.root / self.name(row)
        new = old.rename(old.with_name(os.fsdecode(name)))
        self.change("file_names", row, lambda _: str(new.relative_to(self.root)))

    def append(self, row: int, file_name: str) -> None:
        """Append a copy of a frame's annotation, for the same file or another one."""
        entries = self.annotation[self.person]
        rows = [*range(len(entries.file_names)), row]
        self.annotation[self.person] = _take(entries, rows, [*entries.file_names, file_name])
        self.change("file_names", -1, lambda _: file_name)

    def add_person(self, number: int, row: int) -> str:
        """Add a person whose only frame is copied from the first person; return the new person's name."""
        person, first = self.new_person.format(number), self.annotation[self.person]
        if person in self.annotation:
            raise ValueError(f"there are so many people that {person} is one of them")
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
        """See WrittenData; the data set's own files contain no head pose."""
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
        """Change one number in the first person's arrays."""
        path = self.root / self.person / f"{file}.json"
        content = _read_json(path)
        content[key][row] = number
        _write_json(path, content)

    def _parallel(self) -> list[Path]:
        """List the files that contain one entry per frame."""
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


UNKNOWN_DEVICE = "iPhone 99"


@dataclass(frozen=True)
class Planted:
    """A fault and its consequence; the listed reason contains `reason`."""

    fault: str
    dataset: str
    annotation: str  # the annotation for which the fault matters: any | own | supplementary | estimated
    person: str
    file_name: str  # "": all frames of the person
    consequence: str  # reject: listed once, with the reason | fatal: the run fails with it | none: the frame is good
    reason: str


def damage(folder: Path, faults: Sequence[str]) -> list[Planted]:
    """Plant faults in the output folder of the rule `synthesise`: data sets and their supplementary files."""
    roots = {dataset: folder / layout for dataset, layout in LAYOUTS.items()}
    files = {dataset: folder / f"{layout}_supplementary.h5" for dataset, layout in LAYOUTS.items()}
    annotation = {
        dataset: {person: read_supplementary(path, person) for person in supplementary_persons(path)}
        for dataset, path in files.items()
    }
    planted = plant(faults, roots, annotation)
    for dataset, path in files.items():
        write_supplementary(path, annotation[dataset].items())
    return planted + (truncate(files) if "truncated_hdf5" in faults else [])


def plant(
    faults: Sequence[str], roots: Mapping[str, Path], annotation: Mapping[str, dict[str, Supplementary]]
) -> list[Planted]:
    """Plant the faults that damage raw folders and annotation.

    Args:
        faults: their names, from FAULTS.
        roots: folder of each data set.
        annotation: of each data set and person; changed in place.

    Returns:
        The planted faults, ordered by data set and fault.
    """
    planted = []
    for kind in (WrittenMPIIFaceGaze, WrittenGazeCapture):
        if kind.dataset not in roots:
            continue
        written = kind(roots[kind.dataset], annotation[kind.dataset])
        here = [fault for fault in faults if kind is WrittenGazeCapture or fault not in _GAZECAPTURE_FAULTS]
        for row, (fault, (plant_one, reason)) in enumerate(_FRAME_FAULTS.items()):
            if fault in here:
                reason = plant_one(written, row) or reason
                by = "supplementary" if kind is WrittenGazeCapture and fault in _ANNOTATED_FAULTS else "any"
                file_name = written.name(-1 if fault in _APPENDED_FAULTS else row)
                planted.append(_planted(fault, written, by, written.person, file_name, reason))
        for number, (fault, (by, plant_one, reason)) in enumerate(_PERSON_FAULTS.items()):
            if fault in here:
                person = written.add_person(number, len(_FRAME_FAULTS))
                file_name = "" if reason else written.annotation[person].file_names[0]
                plant_one(written, person)
                planted.append(_planted(fault, written, by, person, file_name, reason.format(person=person)))
    return planted


def _planted(fault: str, written: WrittenData, by: str, person: str, file_name: str, reason: str) -> Planted:
    return Planted(fault, written.dataset, by, person, file_name, "reject" if reason else "none", reason)


def truncate(files: Mapping[str, Path]) -> list[Planted]:
    """Plant truncated_hdf5: truncate the supplementary file of each data set."""
    for path in files.values():
        os.truncate(path, path.stat().st_size // 2)
    return [
        Planted("truncated_hdf5", dataset, "supplementary", "", "", "fatal", f"{path.name}: not a readable HDF5 file")
        for dataset, path in files.items()
    ]


def _truncate_jpeg(written: WrittenData, row: int) -> None:
    path = written.root / written.name(row)
    os.truncate(path, path.stat().st_size // 2)


def _rotate_by_exif(written: WrittenData, row: int) -> None:
    """Turn the pixels on their side and record EXIF orientation 6, which turns them back to the original frame."""
    path = written.root / written.name(row)
    data = _jpeg(cv2.rotate(cv2.imread(str(path)), cv2.ROTATE_90_COUNTERCLOCKWISE))
    entry = struct.pack(">HHIHH", 0x0112, 3, 1, 6, 0)  # orientation, one short
    header = b"Exif\0\0MM\0*" + struct.pack(">IH", 8, 1) + entry + struct.pack(">I", 0)
    path.write_bytes(data[:2] + b"\xff\xe1" + struct.pack(">H", len(header) + 2) + header + data[2:])


def _halve(written: WrittenData, row: int) -> str:
    """Halve a frame's size, as in a thumbnail; the intrinsics remain those of the full frame."""
    path = written.root / written.name(row)
    small = cv2.resize(cv2.imread(str(path)), None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
    path.write_bytes(_jpeg(small))
    return f"the {small.shape[1]} x {small.shape[0]} frame does not match its camera"


def _repeat_flags(written: WrittenGazeCapture, person: str) -> None:
    path = written.root / person / "appleFace.json"
    content = json.loads(path.read_bytes())
    path.write_text(json.dumps(content | {"IsValid": content["IsValid"] * 2}))


def _rename_device(written: WrittenGazeCapture, person: str) -> None:
    path = written.root / person / "info.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"DeviceName": UNKNOWN_DEVICE}))


def _cut_head_pose(written: WrittenData, person: str) -> None:
    entries = written.annotation[person]
    written.annotation[person] = replace(entries, head_pose=entries.head_pose[:, :5])


def _jpeg(image: np.ndarray) -> bytes:
    return cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 95])[1].tobytes()


# What plants a fault at a row of the first person's annotation, the same whichever others are planted, and the reason
# to reject that frame, unless the planting returns a fuller one; "" where the frame is good.
_FRAME_FAULTS: dict[str, tuple[Callable[..., str | None], str]] = {
    "truncated_jpeg": (_truncate_jpeg, "truncated JPEG"),
    "zero_bytes": (lambda written, row: os.truncate(written.root / written.name(row), 0), "empty file"),
    "missing_file": (
        lambda written, row: (written.root / written.name(row)).unlink(),
        "cannot read the file: No such file or directory",
    ),
    "exif_rotated": (_rotate_by_exif, ""),
    "wrong_size": (_halve, "the frame does not match its camera"),
    "nan_pose": (
        lambda written, row: written.change("head_pose", row, lambda pose: np.full(6, np.nan)),
        "head pose is not finite",
    ),
    "pose_behind_camera": (
        lambda written, row: written.change("head_pose", row, lambda pose: pose * [1, 1, 1, 1, 1, -1]),
        "head pose is behind the camera",
    ),
    "target_at_origin": (
        lambda written, row: written.change("gaze_target_mm", row, lambda target: np.zeros(3)),
        "gaze target is (0, 0, 0), which marks a missing one",
    ),
    "is_valid_0": (
        lambda written, row: written.set_number("appleLeftEye", "IsValid", row, 0),
        "IsValid 0 in appleLeftEye",
    ),
    "orientation_9": (
        lambda written, row: written.set_number("screen", "Orientation", row, 9),
        "screen.json: Orientation is 9, not one of 1 to 4",
    ),
    "duplicate_frame": (lambda written, row: written.append(row, written.name(row)), "listed twice"),
    "non_utf8_name": (lambda written, row: written.rename(row, b"\xff\xe9%04d.jpg" % row), ""),
    "path_outside": (
        lambda written, row: written.append(row, f"{Path(written.name(row)).parent}/../../../outside.jpg"),
        "path leads out of the data folder",
    ),
}
_APPENDED_FAULTS = ("duplicate_frame", "path_outside")  # in an entry of their own
_ANNOTATED_FAULTS = ("wrong_size", "nan_pose", "pose_behind_camera")  # against what GazeCapture's own files lack
# By which annotation the fault matters (a device's name, where intrinsics are estimated from it), what plants it into
# an added person, and the reason to reject all of the person; "" where the person is good.
_PERSON_FAULTS: dict[str, tuple[str, Callable[..., None], str]] = {
    "unequal_json": ("any", _repeat_flags, "appleFace.json: IsValid is not a list of 1 flags, one per frame"),
    "unknown_device": ("estimated", _rename_device, f"the camera of device '{UNKNOWN_DEVICE}' is unknown"),
    "absent_person": (
        "supplementary",
        lambda written, person: shutil.rmtree(written.root / person),
        "no folder {person}",
    ),
    # Nothing is changed: the person is stored, and left out by data.min_entries and fewshot.min_entries.
    "person_with_one_sample": ("any", lambda written, person: None, ""),
    "wrong_shape_hdf5": (
        "supplementary",
        _cut_head_pose,
        "head_pose of person {person} has shape (1, 5), not (1, 6)",
    ),
}
_GAZECAPTURE_FAULTS = ("is_valid_0", "orientation_9", "unequal_json", "unknown_device")  # of GazeCapture's own files
FAULTS = (*_FRAME_FAULTS, *_PERSON_FAULTS, "truncated_hdf5")
