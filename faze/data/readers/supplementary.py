"""FAZE's own annotation: a supplementary HDF5 file whose head poses refer to a 14-point face model.

docs/reference/formats.md describes its arrays. `faze landmarks` adds the attribute label_source and the array `reason`.
"""

import functools
import io
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np

from faze.base.errors import UserError
from faze.base.files import reading, whole_file
from faze.data.readers.person import OUTSIDE, People, Person, camera_matrices, is_inside, unreadable

_REMEDY = "download it again, or create it with `faze landmarks`"


def open_people(raw: Path, names: Iterable[str], read: Callable[[Path], Person], supplementary: Path | None) -> People:
    """Return the people in `raw`, as annotated in `supplementary` (FAZE's file) if given, or else as read by `read`."""
    if supplementary is not None:
        read = functools.partial(_read_both, read=read, supplementary=supplementary)
        with reading(supplementary, _REMEDY), h5py.File(supplementary) as file:
            names = {*names, *file}
    return {name: functools.partial(read_or_explain, read, raw / name) for name in sorted(names)}


def read_or_explain(read: Callable[[Path], Person], folder: Path) -> Person:
    """Read a person's folder; if a file is missing or damaged, return a person whose only row states the reason."""
    try:
        return read(folder)
    except UserError as error:
        return unreadable(folder.name, folder.parent, error)


def _read_both(folder: Path, read: Callable[[Path], Person], supplementary: Path) -> Person:
    """Read a person's frames as annotated by FAZE, with the split, device and reasons from the data set."""
    own, found = read(folder), read_supplementary(supplementary, folder.name, folder.parent)
    listed = dict(zip(own.files, own.reasons, strict=True))
    reasons = [reason or listed.get(file, "") for file, reason in zip(found.files, found.reasons, strict=True)]
    return replace(found, reasons=reasons, split=own.split, device=own.device)


def read_supplementary(path: Path, name: str, folder: Path) -> Person:
    """Read one person's annotation; raise a UserError if an array is missing or has the wrong shape."""
    with reading(path, _REMEDY), h5py.File(path) as file:
        if name not in file:
            return unreadable(name, folder, "not in the supplementary annotation")
        group = file[name]
        files = [file.decode() for file in group["file_name"]]
        reasons = [reason.decode() for reason in group.get("reason", [b""] * len(files))]
        return Person(
            name,
            folder,
            files,
            [reason or OUTSIDE * (not is_inside(file)) for reason, file in zip(reasons, files, strict=True)],
            cameras=camera_matrices(group["camera_parameters"][:].reshape(len(files), 4)),
            distortions=group["distortion_parameters"][:].astype(float),
            poses=group["head_pose"][:].astype(float).reshape(len(files), 6),
            targets_mm=group["3d_gaze_target"][:].astype(float).reshape(len(files), 3),
            source=str(group.attrs.get("label_source", "supplementary")),
        )


def write_supplementary(path: Path, people: Iterable[Person]) -> None:
    """Write people's annotations to a supplementary file, one person after another."""
    content = io.BytesIO()  # HDF5 crashes if it cannot write to the disk
    with h5py.File(content, "w") as file:
        for person in people:
            group = file.create_group(person.name)
            group["file_name"] = np.array([name.encode() for name in person.files])
            group["camera_parameters"] = person.cameras[:, [0, 1, 0, 1], [0, 1, 2, 2]]
            group["distortion_parameters"] = person.distortions
            group["head_pose"] = person.poses
            group["3d_gaze_target"] = person.targets_mm
            group["reason"] = np.array([reason.encode() for reason in person.reasons])
            group.attrs["label_source"] = person.source
    with whole_file(path) as temporary:
        temporary.write_bytes(content.getbuffer())
