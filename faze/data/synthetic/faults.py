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
from faze.config.data_parameters import Synthetic
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


def check_frames(synthetic: Synthetic) -> None:
    """Refuse faults that would not have a frame each of a data set's first person: of GazeCapture's, who trains."""
    frames = {"frames_per_person": synthetic.frames_per_person}
    if synthetic.gazecapture_train_frames is not None:
        frames["gazecapture_train_frames"] = synthetic.gazecapture_train_frames
    few = [key for key, count in frames.items() if count <= len(_FRAME_FAULTS)]
    if synthetic.faults and few:
        raise UserError(f"synthetic.faults: need more than {len(_FRAME_FAULTS)} synthetic.{few[0]}, one for each fault")


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


def _truncate_jpeg(written: WrittenData, row: int) -> None:
    path = written.root / written.name(row)
    os.truncate(path, path.stat().st_size // 2)


def _rotate_by_exif(written: WrittenData, row: int) -> None:
    """Lay the pixels on their side and say so by EXIF's orientation 6: turned upright, the frame is as it was."""
    path = written.root / written.name(row)
    data = _jpeg(cv2.rotate(cv2.imread(str(path)), cv2.ROTATE_90_COUNTERCLOCKWISE))
    entry = struct.pack(">HHIHH", 0x0112, 3, 1, 6, 0)  # orientation, one short
    header = b"Exif\0\0MM\0*" + struct.pack(">IH", 8, 1) + entry + struct.pack(">I", 0)
    path.write_bytes(data[:2] + b"\xff\xe1" + struct.pack(">H", len(header) + 2) + header + data[2:])


def _halve(written: WrittenData, row: int) -> str:
    """Halve the size, as of a thumbnail; the intrinsics are those of the whole."""
    path = written.root / written.name(row)
    small = cv2.resize(cv2.imread(str(path)), None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
    path.write_bytes(_jpeg(small))
    return f"the {small.shape[1]} x {small.shape[0]} frame is not its camera's"


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
    "truncated_jpeg": (_truncate_jpeg, "JPEG cut short"),
    "zero_bytes": (lambda written, row: os.truncate(written.root / written.name(row), 0), "empty file"),
    "missing_file": (
        lambda written, row: (written.root / written.name(row)).unlink(),
        "cannot read the file: No such file or directory",
    ),
    "exif_rotated": (_rotate_by_exif, ""),
    "wrong_size": (_halve, "the frame is not its camera's"),
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
        "gaze target is (0, 0, 0), the mark of a missing one",
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
    "unknown_device": ("estimated", _rename_device, f"the camera of device '{UNKNOWN_DEVICE}' is not known"),
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
