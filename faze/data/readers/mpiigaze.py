"""Read MPIIFaceGaze (pXX/pXX.txt) and MPIIGaze (Data/Original/pXX/dayYY/annotation.txt).

Both annotate the head pose and the gaze target in the camera frame, using the 6-point face model.
pXX/Calibration describes the laptop's camera.
"""

import functools
import re
from pathlib import Path

import numpy as np
import pandas as pd

from faze.base.errors import UserError
from faze.base.files import reading
from faze.data.normalization.pose import INNER_EYE_CORNERS_6_MM
from faze.data.readers.camera import read_camera
from faze.data.readers.person import OUTSIDE, People, Person, is_inside
from faze.data.readers.supplementary import open_people, read_or_explain

# The columns of head pose and target in mm, counted from 0.
FACE = slice(15, 21), slice(24, 27)
ORIGINAL = slice(29, 35), slice(26, 29)


def open_mpiigaze(raw: Path, supplementary: Path | None) -> People:
    """Open a raw folder with FAZE's annotation or the data set's own; raise a UserError if the folder has no people."""
    # The folders of MPIIGaze's people are in the given folder or, in the complete download, in a subfolder.
    folder = next((inner for inner in (raw / "Data" / "Original", raw / "Original") if inner.is_dir()), raw)
    names = [path.name for path in folder.glob("p*/") if re.fullmatch(r"p\d+", path.name)]
    if not names:
        raise UserError(f"{raw}: contains no folders p00, p01, ...; set the data set's path to their parent folder")
    read = functools.partial(read_or_explain, _read_person)  # FAZE's annotation needs only the images
    return open_people(folder, names, read, supplementary)


def _read_person(folder: Path) -> Person:
    days = sorted(folder.glob("day*/annotation.txt"))
    if days:
        columns, tables, files = ORIGINAL, [_read_table(day, 41, range(41), False) for day in days], []
        for day, table in zip(days, tables, strict=True):
            files += [f"{folder.name}/{day.parent.name}/{line:04d}.jpg" for line in range(1, len(table) + 1)]
        table = pd.concat(tables)
    else:
        columns, table = FACE, _read_table(folder / f"{folder.name}.txt", 28, range(1, 27), True)
        files = [f"{folder.name}/{file}" for file in table[0]]
    matrix, distortion, _ = read_camera(folder / "Calibration" / "Camera.mat")
    pose, target = (table.iloc[:, which].to_numpy(float) for which in columns)
    return Person(
        folder.name,
        folder.parent,
        files,
        ["" if is_inside(file) else OUTSIDE for file in files],
        cameras=np.broadcast_to(matrix, (len(files), 3, 3)),
        distortions=np.broadcast_to(distortion, (len(files), len(distortion))),
        poses=pose,
        targets_mm=target,
        corners_mm=INNER_EYE_CORNERS_6_MM,
    )


def _read_table(path: Path, count: int, numbers: range, skip_blank_lines: bool) -> pd.DataFrame:
    """Read an annotation with `count` columns. In MPIIGaze, line n describes image n, so empty lines count."""
    with reading(path, f"download it again; it must have {count} columns of numbers, separated by spaces"):
        table = pd.read_csv(path, sep=r"\s+", header=None, skip_blank_lines=skip_blank_lines)
        if table.shape[1] != count:
            raise ValueError(f"{table.shape[1]} columns")
        return table.astype(dict.fromkeys(numbers, float))
