"""Tables in parquet files, which hold the CRC of each of their pages."""

from collections.abc import Collection
from pathlib import Path

import pandas as pd

from faze.base.errors import UserError


def read_rows(path: Path, columns: Collection[str], stage: str) -> pd.DataFrame:
    """Read a table.

    Args:
        path: of the file.
        columns: that it must have.
        stage: which makes it.

    Raises:
        UserError: the file cannot be read, is damaged, or lacks a column.
    """
    remedy = f"delete it and run {stage} again"
    try:
        rows = pd.read_parquet(path, page_checksum_verification=True)
    except (OSError, ValueError, KeyError, TypeError) as error:  # the last two of what pandas notes of a table
        raise UserError(f"{path}: not a readable parquet file, {remedy} ({error})") from None
    if absent := [name for name in columns if name not in rows]:
        raise UserError(f"{path}: has no column {', '.join(absent)}; {remedy}")
    return rows
