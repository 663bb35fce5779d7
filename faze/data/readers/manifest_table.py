"""Read the table of a manifest (docs/how-to/own-frames.md): CSV as spreadsheets write it, or Parquet.

Lines are counted as a spreadsheet shows them: the header is line 1. Faults of the whole file are errors; a fault of a
line is its reason.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from faze.base.errors import UserError
from faze.base.files import reading

INTRINSICS = ("fx_px", "fy_px", "cx_px", "cy_px")
LENS = ("k1", "k2", "p1", "p2")  # k3 may follow
POSE = ("head_rx", "head_ry", "head_rz", "head_x_mm", "head_y_mm", "head_z_mm")
# The camera and the target are each described by exactly one of these groups of columns.
CAMERAS: Mapping[str, Sequence[str]] = {"file": ("camera",), "columns": INTRINSICS, "hfov_deg": ("hfov_deg",)}
TARGETS: Mapping[str, Sequence[str]] = {
    "mm": ("target_x_mm", "target_y_mm", "target_z_mm"),
    "px": ("target_x_px", "target_y_px"),
    "rad": ("gaze_pitch_rad", "gaze_yaw_rad"),
    "deg": ("gaze_pitch_deg", "gaze_yaw_deg"),
}
OPTIONAL = {"split": "test", "session": "", "time_s": "0", "face_model": "faze"}  # texts, with their defaults
NUMBERS = (*INTRINSICS, *LENS, "k3", "hfov_deg", *(name for names in TARGETS.values() for name in names), *POSE)
KNOWN = ("image", "person", "camera", *OPTIONAL, *NUMBERS)


@dataclass(eq=False)
class Table:
    """The N lines of a manifest."""

    path: Path
    cells: pd.DataFrame  # indexed by the number of the line; texts, or float64: NaN where a cell contains no number
    reasons: NDArray[np.object_]  # (N,) why a line cannot be used; "": it can
    camera: str  # key of CAMERAS
    target: str  # key of TARGETS

    @property
    def posed(self) -> bool:
        """Whether the table states head poses."""
        return POSE[0] in self.cells

    def numbers(self, names: Sequence[str]) -> NDArray[np.float64]:
        """Return columns of numbers as (N, columns)."""
        return self.cells[list(names)].to_numpy(np.float64)

    def where(self, row: int, column: str) -> str:
        """Describe a cell."""
        return f"line {self.cells.index[row]}, column {column} is {str(self.cells[column].iloc[row])[:40]!r}"

    def reject(self, rows: ArrayLike, column: str, why: str) -> None:
        """Add a reason to the selected lines, (N,) bool, unless they have one."""
        for row in np.flatnonzero(np.asarray(rows, bool) & (self.reasons == "")):
            self.reasons[row] = f"{self.where(row, column)}: {why}"

    def refuse(self, rows: ArrayLike, column: str, why: str) -> None:
        """Raise a UserError for the first of the selected lines, if there are any."""
        for row in np.flatnonzero(rows):
            raise UserError(f"{self.path}: {self.where(row, column)}: {why}")


def read_table(path: Path, most: int | None = None) -> Table:
    """Read a table, or the first lines of a CSV file; a UserError states file, line, column and remedy."""
    with reading(path, "save the table again, as CSV in UTF-8 or as Parquet"):
        cells = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path, most)
    groups = _check_header(list(cells.columns), f"{path}: line 1")
    cells = cells.loc[:, cells.columns.isin(KNOWN)].astype("string").fillna("")
    cells = cells.apply(lambda column: column.str.strip())
    cells = cells[(cells != "").any(axis=1)].astype(object)
    if cells.empty:
        raise UserError(f"{path}: has a header, but no lines: add one line per frame")
    cells = cells.assign(**{name: text for name, text in OPTIONAL.items() if name not in cells})
    table = Table(path, cells, np.full(len(cells), "", object), *groups)
    numbers = [name for name in cells if name in NUMBERS]
    characters = set("".join(cells[numbers].to_numpy().ravel()))
    decimal = "," if "," in characters and "." not in characters else "."  # a comma in some languages' spreadsheets
    for name in numbers:
        values = pd.to_numeric(cells[name].str.replace(decimal, "."), errors="coerce").to_numpy(float)
        finite = np.isfinite(values)
        table.reject(~finite, name, "not a finite number, with a decimal point and no thousands separator")
        table.cells[name] = np.where(finite, values, np.nan)
    return table


def _read_parquet(path: Path) -> pd.DataFrame:
    """Read cells as `_read_csv` does; a named index of pandas is a column."""
    cells = pd.read_parquet(path).reset_index().rename(columns=lambda name: str(name).strip().lower())
    return cells.set_index(np.arange(len(cells)) + 2)


def _read_csv(path: Path, most: int | None) -> pd.DataFrame:
    """Read cells, indexed by the numbers of their lines; a line with more cells than the first is an error."""
    with path.open(encoding="utf-8-sig") as file:
        first = file.readline()
    skipped = int(first.startswith("sep="))  # by which Excel declares the delimiter, in a line that it does not show
    how = {"dtype": str, "na_filter": False, "skip_blank_lines": False, "encoding": "utf-8-sig"}
    lines = pd.read_csv(path, sep=max(",;\t", key=first.count), header=None, skiprows=skipped, nrows=most, **how)
    lines.index += 1
    return lines[1:].set_axis(lines.iloc[0].str.strip().str.lower(), axis=1)


def _check_header(header: Sequence[str], where: str) -> tuple[str, str]:
    """Check names of columns, in lower case; return the keys of the table's groups in CAMERAS and in TARGETS.

    A UserError says where a column is missing, is unknown or occurs twice.
    """
    for name in header:
        if name in KNOWN and header.count(name) > 1:
            raise UserError(f"{where}: two columns are called {name!r}: rename or remove one of them")
        alike = difflib.get_close_matches(name, set(KNOWN) - set(header), 1, 0.8)
        if name not in KNOWN and alike and alike[0] not in name.split("_"):  # camera_id is no camera
            raise UserError(
                f"{where}: unknown column {name!r}: did you mean {alike[0]!r}? If so, convert the values if necessary, "
                "and rename it; if not, choose another name"
            )
    for name in ("image", "person"):
        if name not in header:
            raise UserError(f"{where}: has no column {name!r}; the columns are {', '.join(header)[:300]}")
    camera = _find_group(header, CAMERAS, "the camera", where)
    target = _find_group(header, TARGETS, "the gaze target", where)
    for names in (CAMERAS[camera], TARGETS[target], LENS, POSE):
        missing = [name for name in names if name not in header]
        if 0 < len(missing) < len(names):
            raise UserError(f"{where}: lacks {', '.join(missing)}: state all of {', '.join(names)}, or none")
    return camera, target


def _find_group(header: Sequence[str], groups: Mapping[str, Sequence[str]], what: str, where: str) -> str:
    """Return the key of the only group that has columns in the header."""
    found = [key for key, names in groups.items() if set(names) & set(header)]
    if len(found) != 1:
        choices = "; or ".join(", ".join(names) for names in groups.values())
        raise UserError(f"{where}: has {len(found)} descriptions of {what}, but needs one of {choices}")
    return found[0]
