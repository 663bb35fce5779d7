"""Faults of real data, planted into synthetic data sets after rendering, and what must come of each.

A fault of a frame spoils one frame of each data set's first person, always the same; a fault of a person adds one.
"""

import csv
import dataclasses
import json
import os
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from faze.base.errors import UserError
from faze.data.store.supplementary import Supplementary
from faze.data.synthetic.written_data import WrittenData, WrittenGazeCapture, WrittenMPIIFaceGaze

UNKNOWN_DEVICE = "iPhone 99"


@dataclass(frozen=True)
class Planted:
    """What comes of one fault. Many a reason says more: the listed one contains this."""

    fault: str
    dataset: str
    annotation: str  # by which the frames must be read for it to matter: any | own | supplementary | estimated
    person: str
    file_name: str  # "": all of the person's
    consequence: str  # reject: listed once, with the reason | fatal: the run ends with it | none: the frame is good
    reason: str


Plant = Callable[[WrittenData, int], tuple[str, str, str]]  # data set, row -> file name, consequence, reason


def plant(
    faults: Sequence[str], roots: dict[str, Path], annotation: dict[str, dict[str, Supplementary]]
) -> list[Planted]:
    """Plant all faults that lie in the raw folders and in the annotation that is still to be written.

    Args:
        faults: their names, of `faze.config.data_parameters.PlantedFault`.
        roots: the folders written, by name: mpiifacegaze, gazecapture.
        annotation: of each, by person; changed here.

    Returns:
        In the order of data set and fault.

    Raises:
        UserError: there are too few frames for faults of their own.
    """
    planted = []
    for written in (
        WrittenMPIIFaceGaze(roots["mpiifacegaze"], annotation["mpiifacegaze"]),
        WrittenGazeCapture(roots["gazecapture"], annotation["gazecapture"]),
    ):
        if faults and len(written.annotation[written.person].file_names) <= len(_FRAME_FAULTS):
            raise UserError(
                f"synthetic.faults: need more than {len(_FRAME_FAULTS)} synthetic.frames_per_person, one for each fault"
            )
        for row, (fault, plant_one) in enumerate(_FRAME_FAULTS.items()):
            if fault in faults and (isinstance(written, WrittenGazeCapture) or fault not in _DEVICE_FAULTS):
                file_name, consequence, reason = plant_one(written, row)
                only_annotated = isinstance(written, WrittenGazeCapture) and fault in _ANNOTATED_FAULTS
                kind = "supplementary" if only_annotated else "any"
                planted.append(Planted(fault, written.dataset, kind, written.person, file_name, consequence, reason))
        for number, (fault, plant_person) in enumerate(_PERSON_FAULTS.items()):
            if fault in faults:
                planted += plant_person(written, number)
    return planted


def truncate(paths: Iterable[tuple[str, Path]]) -> Iterator[Planted]:
    """Plant truncated_hdf5: cut the supplementary files of data sets in the middle."""
    for dataset, path in paths:
        os.truncate(path, path.stat().st_size // 2)
        yield Planted(
            "truncated_hdf5", dataset, "supplementary", "", "", "fatal", f"{path.name}: not a readable HDF5 file"
        )


def write_list(path: Path, planted: Iterable[Planted]) -> None:
    """Write what was planted as a csv; file names that are not text are written as the bytes that they are."""
    with path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(field.name for field in dataclasses.fields(Planted))
        rows.writerows(dataclasses.astuple(one) for one in planted)


def _truncated_jpeg(written: WrittenData, row: int) -> tuple[str, str, str]:
    path = written.root / written.name(row)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return written.name(row), "reject", "JPEG cut short"


def _zero_bytes(written: WrittenData, row: int) -> tuple[str, str, str]:
    (written.root / written.name(row)).write_bytes(b"")
    return written.name(row), "reject", "empty file"


def _missing_file(written: WrittenData, row: int) -> tuple[str, str, str]:
    (written.root / written.name(row)).unlink()
    return written.name(row), "reject", "cannot read the file: No such file or directory"


def _exif_rotated(written: WrittenData, row: int) -> tuple[str, str, str]:
    """The pixels lie on their side and EXIF's orientation 6 says so: turned upright, the frame is as it was."""
    path = written.root / written.name(row)
    turned = cv2.rotate(cv2.imread(str(path)), cv2.ROTATE_90_COUNTERCLOCKWISE)
    entry = struct.pack(">HHIHH", 0x0112, 3, 1, 6, 0)  # orientation, one short
    header = b"Exif\0\0MM\0*" + struct.pack(">IH", 8, 1) + entry + struct.pack(">I", 0)
    data = _jpeg(turned)
    path.write_bytes(data[:2] + b"\xff\xe1" + struct.pack(">H", len(header) + 2) + header + data[2:])
    return written.name(row), "none", ""


def _wrong_size(written: WrittenData, row: int) -> tuple[str, str, str]:
    """Half the size, as of a thumbnail; the intrinsics are those of the whole."""
    path = written.root / written.name(row)
    small = cv2.resize(cv2.imread(str(path)), None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
    path.write_bytes(_jpeg(small))
    return written.name(row), "reject", f"the {small.shape[1]} x {small.shape[0]} frame is not its camera's"


def _nan_pose(written: WrittenData, row: int) -> tuple[str, str, str]:
    written.set_head_pose(row, lambda pose: np.full(6, np.nan))
    return written.name(row), "reject", "head pose is not finite"


def _pose_behind_camera(written: WrittenData, row: int) -> tuple[str, str, str]:
    written.set_head_pose(row, lambda pose: pose * [1, 1, 1, 1, 1, -1])
    return written.name(row), "reject", "head pose is behind the camera"


def _target_at_origin(written: WrittenData, row: int) -> tuple[str, str, str]:
    written.set_target(row, np.zeros(3))
    return written.name(row), "reject", "gaze target is (0, 0, 0), the mark of a missing one"


def _is_valid_0(written: WrittenData, row: int) -> tuple[str, str, str]:
    assert isinstance(written, WrittenGazeCapture)
    written.set_number("appleLeftEye", "IsValid", row, 0)
    return written.name(row), "reject", "IsValid 0 in appleLeftEye"


def _orientation_9(written: WrittenData, row: int) -> tuple[str, str, str]:
    assert isinstance(written, WrittenGazeCapture)
    written.set_number("screen", "Orientation", row, 9)
    return written.name(row), "reject", "screen.json: Orientation is 9, not one of 1 to 4"


def _duplicate_frame(written: WrittenData, row: int) -> tuple[str, str, str]:
    return written.append(row), "reject", "listed twice"


def _non_utf8_name(written: WrittenData, row: int) -> tuple[str, str, str]:
    return written.rename(row, b"\xff\xe9%04d.jpg" % row), "none", ""


def _path_outside(written: WrittenData, row: int) -> tuple[str, str, str]:
    folder = Path(written.name(row)).parent
    return written.append(row, f"{folder}/../../../outside.jpg"), "reject", "path leads out of the data folder"


def _unequal_json(written: WrittenData, number: int) -> list[Planted]:
    if not isinstance(written, WrittenGazeCapture):
        return []
    person = written.add_person(number, len(_FRAME_FAULTS))
    path = written.root / person / "appleFace.json"
    content = json.loads(path.read_bytes())
    path.write_text(json.dumps(content | {"IsValid": content["IsValid"] * 2}))
    reason = "appleFace.json: IsValid is not a list of 1 flags, one per frame"
    return [Planted("unequal_json", written.dataset, "any", person, "", "reject", reason)]


def _unknown_device(written: WrittenData, number: int) -> list[Planted]:
    """It matters only where the camera's intrinsics are estimated from the device's name."""
    if not isinstance(written, WrittenGazeCapture):
        return []
    person = written.add_person(number, len(_FRAME_FAULTS))
    path = written.root / person / "info.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"DeviceName": UNKNOWN_DEVICE}))
    reason = f"the camera of device '{UNKNOWN_DEVICE}' is not known"
    return [Planted("unknown_device", written.dataset, "estimated", person, "", "reject", reason)]


def _absent_person(written: WrittenData, number: int) -> list[Planted]:
    person = written.add_person(number, len(_FRAME_FAULTS))
    shutil.rmtree(written.root / person)
    return [
        Planted("absent_person", written.dataset, "supplementary", person, "", "reject", f"no folder {person}"),
    ]


def _person_with_one_sample(written: WrittenData, number: int) -> list[Planted]:
    """No fault of the frame: the person is stored, and left out by data.min_entries and fewshot.min_entries."""
    person = written.add_person(number, len(_FRAME_FAULTS))
    name = written.annotation[person].file_names[0]
    return [Planted("person_with_one_sample", written.dataset, "any", person, name, "none", "")]


def _wrong_shape_hdf5(written: WrittenData, number: int) -> list[Planted]:
    person = written.add_person(number, len(_FRAME_FAULTS))
    entries = written.annotation[person]
    written.annotation[person] = dataclasses.replace(entries, head_pose=entries.head_pose[:, :5])
    reason = f"head_pose of person {person} has shape (1, 5), not (1, 6)"
    return [Planted("wrong_shape_hdf5", written.dataset, "supplementary", person, "", "reject", reason)]


def _jpeg(image: np.ndarray) -> bytes:
    return cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 95])[1].tobytes()


# The place of a fault is its row in the first person's annotation, whichever others are planted.
_FRAME_FAULTS: dict[str, Plant] = {
    "truncated_jpeg": _truncated_jpeg,
    "zero_bytes": _zero_bytes,
    "missing_file": _missing_file,
    "exif_rotated": _exif_rotated,
    "wrong_size": _wrong_size,
    "nan_pose": _nan_pose,
    "pose_behind_camera": _pose_behind_camera,
    "target_at_origin": _target_at_origin,
    "is_valid_0": _is_valid_0,
    "orientation_9": _orientation_9,
    "duplicate_frame": _duplicate_frame,
    "non_utf8_name": _non_utf8_name,
    "path_outside": _path_outside,
}
_DEVICE_FAULTS = ("is_valid_0", "orientation_9")  # of GazeCapture's own files
_ANNOTATED_FAULTS = ("wrong_size", "nan_pose", "pose_behind_camera")  # against what GazeCapture's own files lack
_PERSON_FAULTS: dict[str, Callable[[WrittenData, int], list[Planted]]] = {
    "unequal_json": _unequal_json,
    "unknown_device": _unknown_device,
    "absent_person": _absent_person,
    "person_with_one_sample": _person_with_one_sample,
    "wrong_shape_hdf5": _wrong_shape_hdf5,
}
