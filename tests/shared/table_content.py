"""The content of a few-shot table, without times."""

from pathlib import Path

import pyarrow.parquet as pq


def table_content(path: Path) -> tuple[dict[bytes, bytes], str]:
    """Return a table's metadata without seconds, and its columns (as text, since NaN does not equal NaN)."""
    table = pq.read_table(path)
    about = {key: value for key, value in table.schema.metadata.items() if key != b"seconds"}
    return about, repr(table.to_pydict())
