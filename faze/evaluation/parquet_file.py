"""Read the parquet tables of other stages, and check their columns."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from faze.base.errors import UserError
from faze.base.files import parse_json

TEXT, NUMBER, WHOLE = "text", "number", "whole number"
# Limits of the number of cells, absolute and per byte of the file: runs of equal values take almost no space.
_CELLS, _CELLS_PER_BYTE = 2**22, 100


def read_table(path: Path, columns: Mapping[str, str], remedy: str) -> pd.DataFrame:
    """Read some columns of a table.

    Args:
        path: path of the file.
        columns: name -> TEXT, NUMBER or WHOLE.
        remedy: how to recreate the file, for the error message.

    Raises:
        UserError: the file cannot be read, is damaged, lacks a column, or has a column of the wrong kind.
    """
    with _opened(path, remedy) as source, pq.ParquetFile(source, page_checksum_verification=True) as file:
        absent = [name for name in columns if name not in file.schema_arrow.names]
        if absent:
            raise UserError(f"{path}: has no column {', '.join(absent)}; {remedy}")
        cells = file.metadata.num_rows * len(columns)
        if cells > _CELLS + _CELLS_PER_BYTE * path.stat().st_size:
            raise ValueError(f"{cells} cells in a file of {path.stat().st_size} bytes")
        table = file.read(list(columns), use_threads=False)
        table.validate(full=True)  # finds text that is not UTF-8
        for name, kind in columns.items():
            if not _has_kind(table[name], kind):
                raise UserError(f"{path}: column {name} ({table[name].type}) is not {kind} in every row; {remedy}")
            if pa.types.is_null(table[name].type):
                table = table.set_column(table.column_names.index(name), name, table[name].cast(pa.float64()))
        return table.replace_schema_metadata(None).to_pandas(use_threads=False)


def read_metadata(path: Path, remedy: str) -> tuple[list[str], dict[bytes, Any]]:
    """Read a table's column names and its JSON metadata; other metadata values are ignored.

    Raises:
        UserError: the file cannot be read.
    """
    with _opened(path, remedy) as source:
        schema = pq.read_schema(source)
        found = {}
        for key, value in (schema.metadata or {}).items():
            with contextlib.suppress(ValueError):
                found[key] = parse_json(value)
        return schema.names, found


def _has_kind(column: pa.ChunkedArray, kind: str) -> bool:
    types = pa.types
    if kind == NUMBER:
        return types.is_floating(column.type) or types.is_integer(column.type) or types.is_null(column.type)
    is_kind = types.is_integer if kind == WHOLE else lambda of: types.is_string(of) or types.is_large_string(of)
    return is_kind(column.type) and not column.null_count


@contextlib.contextmanager
def _opened(path: Path, remedy: str) -> Iterator[IO[bytes]]:
    try:
        with path.open("rb") as file:  # pyarrow itself opens only names in UTF-8
            yield file
    except (FileNotFoundError, UserError):
        raise
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: not a readable parquet file ({reason}); {remedy}") from None
