"""What a table of few-shot learning says, without the time that it took to make."""

from pathlib import Path

import pyarrow.parquet as pq


def table_content(path: Path) -> tuple[dict[bytes, bytes], str]:
    """Its metadata but the seconds, and its columns (as text, since NaN is not NaN)."""
    table = pq.read_table(path)
    about = {key: value for key, value in table.schema.metadata.items() if key != b"seconds"}
    return about, repr(table.to_pydict())
