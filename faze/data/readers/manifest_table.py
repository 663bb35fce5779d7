"""Read the table of a manifest: CSV as spreadsheets write it, or Parquet.

Lines are counted as a spreadsheet shows them: the header is line 1. Faults of the whole file are errors; a fault of a
line is its reason.
"""

import csv
import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from faze.base.errors import UserError
from faze.base.files import reading
from faze.data.readers.columns import NUMBERS, Columns, check_header

SUFFIXES = (".csv", ".tsv", ".parquet")  # of a manifest
_DELIMITERS = ",;\t"


@dataclass(eq=False)
class Table:
    """The N lines of a manifest."""

    path: Path
    columns: Columns
    cells: pd.DataFrame  # texts; float64 where a column contains numbers, and NaN where a cell contains none
    lines: NDArray[np.int64]  # (N,)
    reasons: NDArray[np.object_]  # (N,) why a line cannot be used; "": it can

    def numbers(self, *names: str) -> NDArray[np.float64]:
        """Return columns of numbers as (N, columns)."""
        return self.cells[list(names)].to_numpy(np.float64)

    def texts(self, name: str, default: str = "") -> NDArray[np.object_]:
        """Return a column of texts (N,), which is optional."""
        empty = np.full(len(self.lines), default, object)
        return self.cells[name].to_numpy(object) if name in self.cells else empty

    def where(self, row: int, column: str) -> str:
        """Describe a cell, or a line if the column is ""."""
        shown = f", column {column} is {str(self.cells[column].iloc[row])[:40]!r}" if column else ""
        return f"line {self.lines[row]}{shown}"

    def reject(self, rows: ArrayLike, column: str, why: str) -> None:
        """Add a reason to the selected lines, (N,) bool, unless they have one."""
        for row in np.flatnonzero(np.asarray(rows, bool) & (self.reasons == "")):
            self.reasons[row] = f"{self.where(row, column)}: {why}"

    def refuse(self, rows: ArrayLike, column: str, why: str) -> None:
        """Raise a UserError for the first of the selected lines, if there are any."""
        for row in np.flatnonzero(rows):
            raise UserError(f"{self.path}: {self.where(row, column)}: {why}")


def read_table(path: Path, most: int | None = None) -> Table:
    """Read the table of a manifest, or its first lines.

    Raises:
        UserError: The file is missing, is not CSV in UTF-8 or Parquet, contains no lines, or its columns are incomplete
            or ambiguous; the message contains file, line, column and remedy.
    """
    with reading(path, "save the table again, as CSV in UTF-8 or as Parquet"):
        cells, surplus = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path, most)
    columns = check_header(list(cells.columns), f"{path}: line 1")
    if not len(cells):
        raise UserError(f"{path}: has a header, but no lines: add one line per frame")
    cells = cells[list(columns.used)].astype("string").fillna("").apply(lambda column: column.str.strip())
    table = Table(path, columns, cells.astype(object), cells.index.to_numpy(), np.full(len(cells), "", object))
    table.reject(surplus, "", "has more cells than line 1 has columns")
    numbers = [name for name in columns.used if name in NUMBERS]
    decimal = _decimal_mark(cells[numbers])
    for name in numbers:
        _convert(table, name, decimal)
    return table


def _read_parquet(path: Path) -> tuple[pd.DataFrame, NDArray[np.bool_]]:
    """Read cells as `_read_csv` does; a named index of pandas is a column."""
    cells = pd.read_parquet(path).reset_index().rename(columns=lambda name: str(name).strip().lower())
    return cells.set_index(np.arange(len(cells)) + 2), np.zeros(len(cells), bool)


def _read_csv(path: Path, most: int | None) -> tuple[pd.DataFrame, NDArray[np.bool_]]:
    """Return the cells, indexed by the numbers of their lines, and which lines have more cells than the header."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        first = file.readline()
        if not first.startswith("sep="):  # by which Excel declares the delimiter, in a line that it does not show
            file.seek(0)
        delimiter = max(_DELIMITERS, key=first.count)
        rows = list(itertools.islice(csv.reader(file, delimiter=delimiter, strict=True), most))
    if not rows:
        raise ValueError("it is empty")
    width = len(rows[0])
    lines = {number: row for number, row in enumerate(rows[1:], start=2) if any(map(str.strip, row))}
    cells = [row[:width] + [""] * (width - len(row)) for row in lines.values()]
    header = [name.strip().lower() for name in rows[0]]
    surplus = np.array([any(row[width:]) for row in lines.values()], bool)
    return pd.DataFrame(cells, list(lines), header, dtype=str), surplus


def _decimal_mark(numbers: pd.DataFrame) -> str:
    """Return a comma if numbers contain commas and no points, as spreadsheets write them in some languages."""
    has_commas, has_points = (
        any(numbers[name].str.contains(mark, regex=False).any() for name in numbers) for mark in (",", ".")
    )
    return "," if has_commas and not has_points else "."


def _convert(table: Table, name: str, decimal: str) -> None:
    """Convert a column to numbers; a cell without a finite number is a fault of its line."""
    texts = table.cells[name]
    values = pd.to_numeric(texts.str.replace(decimal, "."), errors="coerce").to_numpy(float)
    finite = np.isfinite(values)
    table.reject(~finite & texts.str.contains(","), name, "write a decimal point, and no thousands separator")
    table.reject(~finite, name, "not a finite number")
    table.cells[name] = np.where(finite, values, np.nan)
