"""Read MPIIFaceGaze (pXX/pXX.txt) and MPIIGaze (Data/Original/pXX/dayYY/annotation.txt).

Both annotate the head pose and the gaze target in the camera frame, with the 6-point face model. pXX/Calibration
contains the laptop's camera and screen.
"""

import functools
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.files import reading
from faze.data.normalization.pose import INNER_EYE_CORNERS_6_MM
from faze.data.readers.camera import read_camera, read_mat
from faze.data.readers.person import OUTSIDE, People, Person, is_inside, lie_on_screen, unreadable
from faze.data.readers.supplementary import supplementary_people, with_supplementary


@dataclass(frozen=True)
class Columns:
    """The columns of an annotation, counted from 0."""

    count: int
    head_pose: slice
    target_mm: slice
    target_px: slice


FACE = Columns(28, head_pose=slice(15, 21), target_mm=slice(24, 27), target_px=slice(1, 3))
ORIGINAL = Columns(41, head_pose=slice(29, 35), target_mm=slice(26, 29), target_px=slice(24, 26))


def open_mpiigaze(raw: Path, supplementary: Path | None) -> People:
    """Open a raw folder, with FAZE's annotation if it is given, otherwise with the data set's own.

    Raises:
        UserError: The folder contains none of its people.
    """
    # The folders of MPIIGaze's people are in the given folder, or deeper in the complete download.
    folder = next((inner for inner in (raw / "Data" / "Original", raw / "Original") if inner.is_dir()), raw)
    names = [path.name for path in folder.glob("p*/") if re.fullmatch(r"p\d+", path.name)]
    if not names:
        raise UserError(
            f"{raw}: contains no folder p00, p01, ...; set the path of this data set to the folder that does"
        )
    if supplementary is None:
        return {name: functools.partial(_read, folder, name) for name in sorted(names)}
    names = sorted({*names, *supplementary_people(supplementary)})
    return {name: functools.partial(_read_annotated, folder, name, supplementary) for name in names}


def _read_annotated(folder: Path, name: str, supplementary: Path) -> Person:
    return with_supplementary(_read(folder, name), supplementary)


def _read(folder: Path, name: str) -> Person:
    try:
        return _read_person(folder, name)
    except UserError as error:
        return unreadable(name, folder, error)


def _read_person(folder: Path, name: str) -> Person:
    person = folder / name
    days = sorted(person.glob("day*/annotation.txt"))
    if days:
        tables, columns = [_read_table(day, ORIGINAL) for day in days], ORIGINAL
        files = [
            f"{day.parent.name}/{line:04d}.jpg"
            for day, table in zip(days, tables, strict=True)
            for line in range(1, len(table) + 1)
        ]
        numbers = np.concatenate(tables).astype(float)
    else:
        table, columns = _read_table(person / f"{name}.txt", FACE), FACE
        files, numbers = table[:, 0].tolist(), np.full(table.shape, np.nan)
        numbers[:, 1:27] = table[:, 1:27]
    matrix, distortion, _ = read_camera(person / "Calibration" / "Camera.mat")
    screen = person / "Calibration" / "screenSize.mat"
    size_px = [float(side) for side in read_mat(screen, "width_pixel", "height_pixel")] if screen.exists() else np.nan
    files = [f"{name}/{file}" for file in files]
    return Person(
        name,
        folder,
        files,
        ["" if is_inside(file) else OUTSIDE for file in files],
        cameras=np.broadcast_to(matrix, (len(files), 3, 3)),
        distortions=np.broadcast_to(distortion, (len(files), len(distortion))),
        poses=numbers[:, columns.head_pose],
        targets_mm=numbers[:, columns.target_mm],
        corners_mm=INNER_EYE_CORNERS_6_MM,
        on_screen=lie_on_screen(numbers[:, columns.target_px], size_px),
    )


def _read_table(path: Path, columns: Columns) -> NDArray:
    """Read the (n, columns) cells of an annotation; empty lines count in MPIIGaze, where line n is image n."""
    with reading(path, f"download it again; it must have {columns.count} columns of numbers, separated by spaces"):
        table = pd.read_csv(path, sep=r"\s+", header=None, skip_blank_lines=columns is FACE)
        if table.shape[1] != columns.count:
            raise ValueError(f"{table.shape[1]} columns")
        table[table.columns[1:27]] = table[table.columns[1:27]].astype(float)
        return table.to_numpy()
