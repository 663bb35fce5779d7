"""Faults of real data, planted into synthetic data sets after rendering, and what must come of each.

A fault of a frame spoils one frame of each data set's first person, always the same; a fault of a person adds one.
"""

import csv
import json
import os
import shutil
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path

import cv2
import numpy as np

from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.data.store.supplementary import Supplementary
from faze.data.synthetic.written_data import WrittenData, WrittenGazeCapture, WrittenMPIIFaceGaze

UNKNOWN_DEVICE = "iPhone 99"


@dataclass(frozen=True)
class Planted:
    """What comes of one fault. Many a reason says more: the listed one contains this."""

    fault: str
    dataset: str
    annotation: str  # with which annotation the fault matters: any | own | supplementary | estimated
    person: str
    file_name: str  # "": all of the person's
    consequence: str  # reject: listed once, with the reason | fatal: the run ends with it | none: the frame is good
    reason: str


def plant(
    faults: Sequence[str], roots: Mapping[str, Path], annotation: Mapping[str, dict[str, Supplementary]]
) -> list[Planted]:
    """Plant all faults that lie in the raw folders and in the annotation that is still to be written.

    Args:
        faults: their names, of `faze.config.data_parameters.PlantedFault`.
        roots: the folders written, by data set.
        annotation: of each data set, by person; changed here.

    Returns:
        In the order of data set and fault.

    Raises:
        UserError: there are too few frames for faults of their own.
    """
    planted = []
    for kind in (WrittenMPIIFaceGaze, WrittenGazeCapture):
        written = kind(roots[kind.dataset], annotation[kind.dataset])
        if faults and len(written.annotation[written.person].file_names) <= len(_FRAME_FAULTS):
            raise UserError(
                f"synthetic.faults: need more than {len(_FRAME_FAULTS)} synthetic.frames_per_person, one for each fault"
            )
        here = [fault for fault in faults if kind is WrittenGazeCapture or fault not in _GAZECAPTURE_FAULTS]
        for row, (fault, plant_one) in enumerate(_FRAME_FAULTS.items()):
            if fault in here:
                file_name, reason = plant_one(written, row)
                only_annotated = kind is WrittenGazeCapture and fault in _ANNOTATED_FAULTS
                by = "supplementary" if only_annotated else "any"
                planted.append(_planted(fault, written, by, written.person, file_name, reason))
        for number, (fault, (by, plant_person)) in enumerate(_PERSON_FAULTS.items()):
            if fault in here:
                person = written.add_person(number, len(_FRAME_FAULTS))
                file_name = written.annotation[person].file_names[0]
                reason = plant_person(written, person)
                planted.append(_planted(fault, written, by, person, "" if reason else file_name, reason))
    return planted


def _planted(fault: str, written: WrittenData, by: str, person: str, file_name: str, reason: str) -> Planted:
    return Planted(fault, written.dataset, by, person, file_name, "reject" if reason else "none", reason)


def truncate(files: Mapping[str, Path]) -> list[Planted]:
    """Plant truncated_hdf5: cut the supplementary files of data sets in the middle."""
    for path in files.values():
        os.truncate(path, path.stat().st_size // 2)
    return [
        Planted("truncated_hdf5", dataset, "supplementary", "", "", "fatal", f"{path.name}: not a readable HDF5 file")
        for dataset, path in files.items()
    ]


def write_list(path: Path, planted: Sequence[Planted]) -> None:
    """Write what was planted, and what must come of it, as a csv; no file where nothing was planted."""
    if not planted:
        path.unlink(missing_ok=True)
        return
    # File names that are not text are written as the bytes that they are.
    how = {"newline": "", "encoding": "utf-8", "errors": "surrogateescape"}
    with whole_file(path) as temporary, temporary.open("w", **how) as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(field.name for field in fields(Planted))
        rows.writerows(map(astuple, planted))


def _truncated_jpeg(written: WrittenData, row: int) -> tuple[str, str]:
    path = written.root / written.name(row)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return written.name(row), "JPEG cut short"


def _zero_bytes(written: WrittenData, row: int) -> tuple[str, str]:
    (written.root / written.name(row)).write_bytes(b"")
    return written.name(row), "empty file"


def _missing_file(written: WrittenData, row: int) -> tuple[str, str]:
    (written.root / written.name(row)).unlink()
    return written.name(row), "cannot read the file: No such file or directory"


def _exif_rotated(written: WrittenData, row: int) -> tuple[str, str]:
    """Lay the pixels on their side and say so by EXIF's orientation 6: turned upright, the frame is as it was."""
    path = written.root / written.name(row)
    data = _jpeg(cv2.rotate(cv2.imread(str(path)), cv2.ROTATE_90_COUNTERCLOCKWISE))
    entry = struct.pack(">HHIHH", 0x0112, 3, 1, 6, 0)  # orientation, one short
    header = b"Exif\0\0MM\0*" + struct.pack(">IH", 8, 1) + entry + struct.pack(">I", 0)
    path.write_bytes(data[:2] + b"\xff\xe1" + struct.pack(">H", len(header) + 2) + header + data[2:])
    return written.name(row), ""


def _wrong_size(written: WrittenData, row: int) -> tuple[str, str]:
    """Halve the size, as of a thumbnail; the intrinsics are those of the whole."""
    path = written.root / written.name(row)
    small = cv2.resize(cv2.imread(str(path)), None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
    path.write_bytes(_jpeg(small))
    return written.name(row), f"the {small.shape[1]} x {small.shape[0]} frame is not its camera's"


def _nan_pose(written: WrittenData, row: int) -> tuple[str, str]:
    written.set_head_pose(row, lambda pose: np.full(6, np.nan))
    return written.name(row), "head pose is not finite"


def _pose_behind_camera(written: WrittenData, row: int) -> tuple[str, str]:
    written.set_head_pose(row, lambda pose: pose * [1, 1, 1, 1, 1, -1])
    return written.name(row), "head pose is behind the camera"


def _target_at_origin(written: WrittenData, row: int) -> tuple[str, str]:
    written.set_target(row, np.zeros(3))
    return written.name(row), "gaze target is (0, 0, 0), the mark of a missing one"


def _is_valid_0(written: WrittenGazeCapture, row: int) -> tuple[str, str]:
    written.set_number("appleLeftEye", "IsValid", row, 0)
    return written.name(row), "IsValid 0 in appleLeftEye"


def _orientation_9(written: WrittenGazeCapture, row: int) -> tuple[str, str]:
    written.set_number("screen", "Orientation", row, 9)
    return written.name(row), "screen.json: Orientation is 9, not one of 1 to 4"


def _duplicate_frame(written: WrittenData, row: int) -> tuple[str, str]:
    return written.append(row, written.name(row)), "listed twice"


def _non_utf8_name(written: WrittenData, row: int) -> tuple[str, str]:
    return written.rename(row, b"\xff\xe9%04d.jpg" % row), ""


def _path_outside(written: WrittenData, row: int) -> tuple[str, str]:
    folder = Path(written.name(row)).parent
    return written.append(row, f"{folder}/../../../outside.jpg"), "path leads out of the data folder"


def _unequal_json(written: WrittenGazeCapture, person: str) -> str:
    path = written.root / person / "appleFace.json"
    content = json.loads(path.read_bytes())
    path.write_text(json.dumps(content | {"IsValid": content["IsValid"] * 2}))
    return "appleFace.json: IsValid is not a list of 1 flags, one per frame"


def _unknown_device(written: WrittenGazeCapture, person: str) -> str:
    path = written.root / person / "info.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"DeviceName": UNKNOWN_DEVICE}))
    return f"the camera of device '{UNKNOWN_DEVICE}' is not known"


def _absent_person(written: WrittenData, person: str) -> str:
    shutil.rmtree(written.root / person)
    return f"no folder {person}"


def _person_with_one_sample(written: WrittenData, person: str) -> str:
    """Change nothing: the person is stored, and left out by data.min_entries and fewshot.min_entries."""
    return ""


def _wrong_shape_hdf5(written: WrittenData, person: str) -> str:
    entries = written.annotation[person]
    written.annotation[person] = replace(entries, head_pose=entries.head_pose[:, :5])
    return f"head_pose of person {person} has shape (1, 5), not (1, 6)"


def _jpeg(image: np.ndarray) -> bytes:
    return cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 95])[1].tobytes()


# Each plants its fault at a row of the first person's annotation, the same whichever others are planted, and returns
# the frame's file name and the reason to reject it; "" where the frame is good.
_FRAME_FAULTS: dict[str, Callable[..., tuple[str, str]]] = {
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
_ANNOTATED_FAULTS = ("wrong_size", "nan_pose", "pose_behind_camera")  # against what GazeCapture's own files lack
# By which annotation the fault matters (a device's name, where intrinsics are estimated from it), and what plants it
# into an added person: returns the reason to reject all of the person; "" where the person is good.
_PERSON_FAULTS: dict[str, tuple[str, Callable[..., str]]] = {
    "unequal_json": ("any", _unequal_json),
    "unknown_device": ("estimated", _unknown_device),
    "absent_person": ("supplementary", _absent_person),
    "person_with_one_sample": ("any", _person_with_one_sample),
    "wrong_shape_hdf5": ("supplementary", _wrong_shape_hdf5),
}
_GAZECAPTURE_FAULTS = ("is_valid_0", "orientation_9", "unequal_json", "unknown_device")  # of GazeCapture's own files
