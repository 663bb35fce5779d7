"""Read the table of a manifest: CSV as spreadsheets write it, or Parquet.

Lines are counted as a spreadsheet shows them: the header is line 1. Faults of the whole file are errors. A faulty
number only concerns its line, and is returned.
"""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.files import reading
from faze.data.readers.manifest_columns import NUMBERS, TEXTS, Layout, check_header

REMEDY = "save the table again, as CSV in UTF-8 or as Parquet"
_DELIMITERS = ",;\t"
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)", re.ASCII | re.IGNORECASE)
_PARQUET = b"PAR1"
_WORKBOOKS = (".xlsx", ".xls", ".ods")
_BEGINNING_BYTES = 1 << 16  # of a CSV; contains the header


@dataclass(frozen=True, eq=False)
class Table:
    """The N lines of a manifest, by column."""

    path: Path
    layout: Layout
    lines: NDArray[np.int64]  # (N,)
    texts: dict[str, list[str]] = field(default_factory=dict)
    numbers: dict[str, NDArray[np.float64]] = field(default_factory=dict)  # NaN where there is no number
    faults: dict[int, str] = field(default_factory=dict)  # by row, from 0: the first faulty number

    def __len__(self) -> int:
        return len(self.lines)

    def where(self, row: int, column: str = "") -> str:
        """Return file, line and column of a cell, for a message."""
        return f"{self.path}: line {self.lines[row]}" + (f", column {column}" if column else "")

    def array(self, *names: str) -> NDArray[np.float64]:
        """Return several columns of numbers as (N, columns)."""
        return np.stack([self.numbers[name] for name in names], axis=1)


def read_table(path: Path) -> Table:
    """Read the table of a manifest.

    Raises:
        UserError: The file is missing, is not CSV in UTF-8 or Parquet, contains no lines, or its columns are incomplete
            or ambiguous; the message contains file, line, column and remedy.
    """
    _check_kind(path)
    with reading(path, REMEDY):
        return _parse(path.read_bytes(), path)


def read_layout(path: Path) -> Layout:
    """Read only the header of a manifest.

    Raises:
        UserError: As `read_table`.
    """
    _check_kind(path)
    with reading(path, REMEDY), path.open("rb") as file:
        beginning = file.read(_BEGINNING_BYTES)
        if beginning.startswith(_PARQUET):
            return check_header([name.strip().lower() for name in _parquet().read_schema(path).names], f"{path}")
        if len(beginning) == _BEGINNING_BYTES:
            beginning = beginning[: beginning.rfind(b"\n") + 1]
        delimiter, text = _split_off_delimiter(beginning.decode("utf-8-sig"))
        return _check_names(next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), []), path)


def _check_kind(path: Path) -> None:
    if path.suffix.lower() in _WORKBOOKS:
        raise UserError(f"{path}: is a workbook of a spreadsheet: save its sheet as CSV in UTF-8")


def _parse(content: bytes, path: Path) -> Table:
    table = (
        _parse_parquet(content, path) if content.startswith(_PARQUET) else _parse_csv(content.decode("utf-8-sig"), path)
    )
    if not len(table):
        raise UserError(f"{path}: has a header, but no lines: add one line per frame")
    return table


def _split_off_delimiter(text: str) -> tuple[str, str]:
    """Find the delimiter, and remove Excel's first line `sep=;`, which spreadsheets do not show."""
    if found := re.match(r'"?sep=([;,\t])"?\r?\n', text):
        return found[1], text[found.end() :]
    first = text.partition("\n")[0]
    return max(_DELIMITERS, key=first.count), text


def _check_names(names: Sequence[str], path: Path) -> Layout:
    if not any(name.strip() for name in names):
        raise UserError(f"{path}: is empty: line 1 must contain the names of the columns")
    return check_header([name.strip().lower() for name in names], f"{path}: line 1")


def _parse_csv(text: str, path: Path) -> Table:
    delimiter, text = _split_off_delimiter(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        header, *records = list(reader) or [[]]
    except csv.Error as error:
        raise UserError(f"{path}: line {reader.line_num}: {error}: check the quotes in this line") from None
    layout = _check_names(header, path)
    names = [name.strip().lower() for name in header]
    rows = [row for row, record in enumerate(records) if any(record)]  # spreadsheets show empty lines
    table = Table(path, layout, np.array(rows, np.int64) + 2)
    used = [records[row] for row in rows]
    if {len(record) for record in used} - {len(names)}:
        used = [_fit(table, row, record, len(names)) for row, record in enumerate(used)]
    columns: dict[str, Sequence[str]] = {}
    for name, cells in zip(names, zip(*used, strict=True), strict=False):
        columns[name] = cells
        if not name and any(cells):
            row = next(row for row, cell in enumerate(cells) if cell)
            raise UserError(f"{table.where(row)}: a cell is in a column without a name: name the column in line 1")
    points: list[tuple[int, str, str]] = []  # the first number with a decimal point, and the first with a comma
    for name in layout.used if used else ():
        if name in TEXTS:
            table.texts[name] = [cell.strip() for cell in columns[name]]
        else:
            cells = _unify_decimals(table, name, columns[name], delimiter, points)
            table.numbers[name] = _parse_numbers(table, name, cells)
    return table


def _fit(table: Table, row: int, record: list[str], count: int) -> list[str]:
    """Remove empty cells at the end of a line; refuse a line with another number of cells."""
    while len(record) > count and not record[-1].strip():
        record = record[:-1]
    if len(record) != count:
        raise UserError(
            f"{table.where(row)}: has {len(record)} cells, but the header has {count}: check the delimiters and quotes "
            "of this line"
        )
    return record


def _unify_decimals(
    table: Table, name: str, cells: Sequence[str], delimiter: str, points: list[tuple[int, str, str]]
) -> Sequence[str]:
    """Replace decimal commas, as spreadsheets write them in some languages, if the delimiter is not a comma.

    Raises:
        UserError: One file contains both decimal commas and points, so that 1.234 may mean 1234.
    """
    if delimiter == ",":
        return cells
    text = " ".join(cells)
    for mark in ",.":
        if mark in text and mark not in {found[2] for found in points}:
            points.append((next(row for row, cell in enumerate(cells) if mark in cell), name, mark))
    if len(points) > 1:
        (row, column, _), (other, other_column, _) = points
        raise UserError(
            f"{table.where(row, column)} and line {table.lines[other]}, column {other_column}: one has a decimal comma "
            "and the other a point: use one of them, and no thousands separators"
        )
    return [cell.replace(",", ".") for cell in cells] if "," in text else cells


def _parse_numbers(table: Table, name: str, cells: Sequence[str]) -> NDArray[np.float64]:
    """Parse a column; enter cells that are empty, no number or not finite in the table's faults."""
    text = "".join(cells)
    try:
        if not text.isascii() or "_" in text:
            raise ValueError
        values = np.array(list(map(float, cells)), np.float64)
    except ValueError:
        cells = [cell.strip() for cell in cells]
        values = np.array([float(cell) if _NUMBER.fullmatch(cell) else np.nan for cell in cells], np.float64)
    for row in np.flatnonzero(~np.isfinite(values)).tolist():
        cell = cells[row]
        hint = ": write it with a decimal point and without other separators" if "," in cell else ""
        reason = f"is {cell[:40]!r}, which is not a finite number{hint}" if cell else "is empty"
        table.faults.setdefault(row, f"column {name} {reason}")
    values[~np.isfinite(values)] = np.nan
    return values


def _parquet() -> Any:
    try:
        import pyarrow.parquet  # not needed for CSV
    except ImportError:
        raise UserError("a manifest in Parquet needs pyarrow: install it, or save the table as CSV in UTF-8") from None
    return pyarrow.parquet


def _parse_parquet(content: bytes, path: Path) -> Table:
    file = _parquet().ParquetFile(io.BytesIO(content))
    names = {name.strip().lower(): name for name in file.schema_arrow.names}
    layout = check_header([name.strip().lower() for name in file.schema_arrow.names], f"{path}")
    count = file.metadata.num_rows
    found = file.read([names[name] for name in layout.used], use_threads=False)
    table = Table(path, layout, np.arange(count) + 2)
    for name in layout.used:
        values = found[names[name]].to_pylist()
        if name in NUMBERS and all(value is None or type(value) in (int, float) for value in values):
            cells = np.array([np.nan if value is None else value for value in values], np.float64)
            table.numbers[name] = cells
            for row in np.flatnonzero(~np.isfinite(cells)).tolist():
                table.faults.setdefault(row, f"column {name} is empty or not finite")
            continue
        texts = [_as_text(value, f"{path}: column {name}") for value in values]
        if name in TEXTS:
            table.texts[name] = texts
        else:
            table.numbers[name] = _parse_numbers(table, name, texts)
    return table


def _as_text(value: object, where: str) -> str:
    if isinstance(value, float) and (value.is_integer() or value != value):  # pandas converts integers with gaps
        value = int(value) if value == value else None
    if value is not None and not isinstance(value, str | int):
        raise UserError(f"{where}: contains {str(value)[:40]!r}, which is neither text nor a number of a person")
    return "" if value is None else str(value).strip()
