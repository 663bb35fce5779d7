"""Write manifests from tables of cells; by default, those of `raw_data`."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import raw_data

from faze.data.readers.manifest import INTRINSICS, POSE, TARGETS

CAMERA = dict(zip(INTRINSICS, (300, 301, 160, 118), strict=True))
HEAD = dict(zip(POSE, (*raw_data.ROTATION_VECTOR, *raw_data.TRANSLATION_MM), strict=True))
TARGET = dict(zip(TARGETS["mm"], raw_data.TARGET_MM, strict=True))
LINE = {"person": "anna"} | CAMERA | TARGET | HEAD


def lines(count: int = 3, **cells: object) -> list[dict[str, object]]:
    """Return valid lines of one person, with other cells: a list has one per line, and None removes a column."""
    count = next((len(cell) for cell in cells.values() if isinstance(cell, list)), count)
    columns = {"image": [f"img/{i:04d}.jpg" for i in range(count)]} | LINE | cells
    kept = {name: cell for name, cell in columns.items() if cell is not None}
    return [{name: cell[i] if isinstance(cell, list) else cell for name, cell in kept.items()} for i in range(count)]


def write_table(path: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    return path


def write_images(folder: Path, count: int = 3) -> None:
    for i in range(count):
        raw_data.write_file(folder / f"img/{i:04d}.jpg", raw_data.jpeg(i))
