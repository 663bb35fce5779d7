"""Read the table of a manifest: CSV as spreadsheets write it, or Parquet.

Lines are counted as a spreadsheet shows them: the header is line 1. Faults of the whole file are errors; a fault of a
line is its reason.
"""

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
        """Give the selected lines, (N,) bool, a reason, unless they have one."""
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
        if path.suffix.lower() == ".parquet":
            cells, decimal = pd.read_parquet(path).rename(columns=lambda name: str(name).strip().lower()), "."
            lines = np.arange(len(cells)) + 2
        else:
            cells, lines, decimal = _read_csv(path, most)
    columns = check_header(list(cells.columns), f"{path}: line 1")
    if not len(cells):
        raise UserError(f"{path}: has a header, but no lines: add one line per frame")
    cells = cells[list(columns.used)].astype("string").fillna("").apply(lambda column: column.str.strip())
    table = Table(path, columns, cells.astype(object), lines, np.full(len(cells), "", object))
    for name in columns.used:
        if name in NUMBERS:
            _convert(table, name, decimal)
    return table


def _read_csv(path: Path, most: int | None) -> tuple[pd.DataFrame, NDArray[np.int64], str]:
    """Return cells, the number of each line, and the decimal mark."""
    with path.open(encoding="utf-8-sig") as file:
        first = file.readline()
    delimiter = max(_DELIMITERS, key=first.count)
    how = {"header": None, "dtype": str, "keep_default_na": False, "skip_blank_lines": False}
    rows = pd.read_csv(path, sep=delimiter, encoding="utf-8-sig", nrows=most, **how).fillna("")
    header, cells = rows.iloc[0].str.strip().str.lower(), rows.iloc[1:]
    cells = cells[(cells != "").any(axis=1)]
    lines = cells.index.to_numpy() + 1
    # Spreadsheets write decimal commas in some languages, and then delimit cells with something else.
    has_commas = delimiter != "," and cells.apply(lambda column: column.str.fullmatch(r"\s*-?\d+,\d+\s*").any()).any()
    return cells.set_axis(header, axis=1).reset_index(drop=True), lines, "," if has_commas else "."


def _convert(table: Table, name: str, decimal: str) -> None:
    """Convert a column to numbers; a cell without a finite number is a fault of its line."""
    texts = table.cells[name]
    values = pd.to_numeric(texts.str.replace(decimal, "."), errors="coerce").to_numpy(float)
    finite = np.isfinite(values)
    if decimal == ",":  # then a point may be one between thousands
        finite &= ~texts.str.contains(".", regex=False).to_numpy(bool)
    table.reject(~finite, name, "not a finite number")
    table.cells[name] = np.where(finite, values, np.nan)
