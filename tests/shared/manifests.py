"""Write manifests: from a table of cells, from the frames of another reader, or of rendered people."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import raw_data

from faze.config.parameters import RENDERED_LAYOUTS, Synthetic
from faze.data.normalization.pose import INNER_EYE_CORNERS_6_MM
from faze.data.readers import Frame
from faze.data.readers.manifest_columns import INTRINSICS, LENS, POSE, TARGETS
from faze.data.synthetic.layouts import supplementary, write_arrays
from faze.data.synthetic.people import cast, write_person

CAMERA = dict(zip(INTRINSICS, (300, 301, 160, 118), strict=True))
HEAD = dict(zip(POSE, (*raw_data.ROTATION_VECTOR, *raw_data.TRANSLATION_MM), strict=True))
TARGET = dict(zip(TARGETS["mm"], raw_data.TARGET_MM, strict=True))
LINE = {"person": "anna"} | CAMERA | TARGET | HEAD


def lines(count: int = 3, **cells: object) -> list[dict[str, object]]:
    """Return valid lines of one person, with other cells where given; None removes a column."""
    changed = {name: value for name, value in (LINE | cells).items() if value is not None}
    return [{"image": f"img/{i:04d}.jpg"} | changed for i in range(count)]


def write_table(path: Path, rows: Sequence[Mapping[str, object]], delimiter: str = ",") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        table.writeheader()
        table.writerows(rows)
    return path


def write_images(folder: Path, count: int = 3) -> None:
    for i in range(count):
        raw_data.write_file(folder / f"img/{i:04d}.jpg", raw_data.jpeg(i))


def line_of(frame: Frame) -> dict[str, object]:
    """Describe a frame of another reader; repr keeps every bit of a number."""
    fx, fy, cx, cy = frame.camera_matrix[[0, 1, 0, 1], [0, 1, 2, 2]].tolist()
    numbers = dict(zip(INTRINSICS, (fx, fy, cx, cy), strict=True))
    numbers |= dict(zip((*LENS, "k3"), frame.distortion.tolist(), strict=True))
    numbers |= dict(zip(TARGETS["mm"], frame.gaze_target_mm.tolist(), strict=True))
    numbers |= dict(zip(POSE, [*frame.rotation_vector.tolist(), *frame.translation_mm.tolist()], strict=True))
    six = np.array_equal(frame.inner_eye_corners_mm, INNER_EYE_CORNERS_6_MM)
    texts = {"image": frame.file_name, "person": frame.person_id, "split": frame.split or "test"}
    return texts | {"face_model": "mpiigaze" if six else "faze"} | {name: repr(n) for name, n in numbers.items()}


def write_frames(path: Path, frames: Iterable[Frame]) -> Path:
    """Describe frames of another reader in a manifest in its raw folder."""
    return write_table(path, [line_of(frame) for frame in frames])


def write_people(root: Path, synthetic: Synthetic) -> None:
    """Render people into `root`, in both layouts with supplementary annotations, for `write_frames`."""
    people = [write_person(role, synthetic, root / role.layout) for role in cast(synthetic)]
    for layout in RENDERED_LAYOUTS:
        annotation = {p.role.person_id: supplementary(p) for p in people if p.role.layout == layout}
        write_arrays(root / f"{layout}_supplementary.h5", annotation)
