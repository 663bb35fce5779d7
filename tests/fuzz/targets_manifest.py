"""The target of manifests: the table, its camera and its screen."""

import functools
import io
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from cases import Target
from hostile import TEXTS, Draw, edited_bytes, edited_lines
from targets_data import check_people, in_this_process

from faze.data.manifest_inspection import inspect_manifest
from faze.data.readers.manifest import Manifest, needs_landmarks
from faze.report.manifest_text import describe_manifest

# Spaces separate the words that are edited.
_HEADER = "image , person , split , camera , screen , target_x_px , target_y_px , " + " , ".join(
    ("head_rx", "head_ry", "head_rz", "head_x_mm", "head_y_mm", "head_z_mm")
)
_CSV = "\n".join(
    [_HEADER, *(f"a/{i}.jpg , p00 , test , c.yaml , s.yaml , {i} , 5 , 0 , 0.1 , 0 , 9 , 9 , 600" for i in "123")]
)
_CAMERA = "camera_matrix : [[ 300 , 0 , 160 ], [ 0 , 300 , 120 ], [ 0 , 0 , 1 ]]\ndistCoeffs : [ 0 , 0 , 0 , 0 , 0 ]\n"
_SCREEN = "width_mm : 345\nheight_mm : 194\nwidth_px : 1920\nheight_px : 1080\ntop_left_mm : [ 172.5 , 10 , 0 ]\n"
_WORDS = (*TEXTS, "1e400", "nan", "1_0", "٣", "-", ";", '"', "train", "&a [*a]", "!!opencv-matrix", "fx_px", "hfov_deg")


@functools.cache
def _parquet() -> bytes:
    header, *rows = ([cell.strip() for cell in line.split(",")] for line in _CSV.split("\n"))
    columns = {}
    for name, cells in zip(header, zip(*rows, strict=True), strict=True):
        columns[name] = np.array(cells, np.float64) if name.endswith(("_px", "_mm", "rx", "ry", "rz")) else list(cells)
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


def _write(folder: Path) -> None:
    for name, text in (("given.csv", _CSV), ("c.yaml", _CAMERA), ("s.yaml", _SCREEN)):
        (folder / name).write_text(text)
    (folder / "given.parquet").write_bytes(_parquet())


def _make(draw: Draw, folder: Path) -> None:
    _write(folder)
    name = draw.pick(["given.csv", "given.csv", "c.yaml", "s.yaml", "given.parquet"])
    content = (folder / name).read_bytes()
    edited = edited_bytes(draw, content) if name == "given.parquet" else edited_lines(draw, content.decode(), _WORDS)
    (folder / name).write_bytes(edited)


def _parse(folder: Path) -> None:
    for name in ("given.csv", "given.parquet"):
        if not needs_landmarks(folder / name):
            check_people(Manifest(folder / name, None))
        describe_manifest(inspect_manifest(folder / name))


def _warm() -> None:
    """Read valid files once, so that pyarrow has its memory before it is limited."""
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder))
        _parse(Path(folder))


def _table(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "given.csv").write_text(text)


_CASES = {
    "empty": (_table(""), "given.csv: is empty"),
    "header only": (_table(_HEADER), "given.csv: has a header, but no lines"),
    "wide line": (_table(_CSV + ", 1"), "given.csv: line 4: has 14 cells"),
    "long cell": (_table(_CSV + "\n" + "z" * 200_000), "given.csv: line 5"),
    "open quote": (_table(_CSV.replace("a/1", '"a/1')), "given.csv: line"),
    "absent": (lambda folder: (folder / "given.csv").unlink(), "given.csv: there is no such file"),
    "torn Parquet": (lambda folder: os.truncate(folder / "given.parquet", 700), "given.parquet: the header cannot be"),
}
TARGETS = (Target("manifest", _make, in_this_process(_parse), warm=_warm, valid=_write, hostile=_CASES),)
