"""The layouts of FAZE's own annotation, as it was published, and of the synthetic generator's truth."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import ArrayLike, NDArray

from faze.files import whole_file
from faze.store.layout import decoded, encoded, group_of, open_file

# Published names and widths (None: any) of the arrays of Supplementary, in its order.
_SUPPLEMENTARY = {"camera_parameters": 4, "distortion_parameters": None, "head_pose": 6, "3d_gaze_target": 3}


@dataclass(frozen=True, eq=False)
class Supplementary:
    """FAZE's own annotation of one person's N frames, in the camera frame and mm."""

    file_names: list[str]
    camera_parameters: NDArray  # (N, 4) fx fy cx cy, px
    distortion_parameters: NDArray  # (N, d), OpenCV's order
    head_pose: NDArray  # (N, 6) rotation vector (rad), translation (mm)
    gaze_target_mm: NDArray  # (N, 3)


def write_supplementary(path: Path | str, persons: Iterable[tuple[str, Supplementary]]) -> None:
    """Write FAZE's annotation in its published layout, person by person as they come."""
    write_truth(path, ((person, _published(entries)) for person, entries in persons))


def _published(entries: Supplementary) -> dict[str, NDArray]:
    arrays = (entries.camera_parameters, entries.distortion_parameters, entries.head_pose, entries.gaze_target_mm)
    return {"file_name": encoded(entries.file_names), **dict(zip(_SUPPLEMENTARY, arrays, strict=True))}


def supplementary_persons(path: Path | str) -> dict[str, int]:
    """People in a supplementary file, sorted, each with its number of entries."""
    with open_file(path) as file:
        return {p: len(group_of(file, path, p, ("file_name",))["file_name"]) for p in sorted(file)}


def read_supplementary(path: Path | str, person: str) -> Supplementary:
    """Read one person's annotation.

    Raises:
        ValueError: the file is missing or torn, or the person or one of its datasets is, or their shapes disagree.
    """
    with open_file(path) as file:
        group = group_of(file, path, person, ("file_name", *_SUPPLEMENTARY))
        file_names = decoded(group["file_name"])
        arrays = {name: group[name][:].astype(np.float64) for name in _SUPPLEMENTARY}
    for name, width in _SUPPLEMENTARY.items():
        shape = arrays[name].shape
        if shape != (wanted := (len(file_names), width or shape[-1])):
            raise ValueError(f"{path}: {name} of person {person} has shape {shape}, not {wanted}")
    return Supplementary(file_names, *arrays.values())


def write_truth(path: Path | str, persons: Iterable[tuple[str, Mapping[str, ArrayLike]]]) -> None:
    """Write arrays by person and name."""
    with whole_file(path) as temporary, h5py.File(temporary, "w") as file:
        for person, arrays in persons:
            group = file.create_group(person)
            for name, array in arrays.items():
                group.create_dataset(name, data=np.asarray(array))


def read_truth(path: Path | str) -> dict[str, dict[str, NDArray]]:
    """All arrays by person and name."""
    with open_file(path) as file:
        return {p: {name: array[()] for name, array in file[p].items()} for p in sorted(file)}
