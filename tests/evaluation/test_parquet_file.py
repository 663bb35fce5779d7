"""Tables of errors hold checksums of their pages, which are compared. Seen red: without, the flipped number is read."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from damaged import cut, flip

from faze.base.errors import UserError
from faze.evaluation.parquet_file import NUMBER, TEXT, WHOLE, read_table
from faze.fewshot.result_tables import write_tables

AGAIN = "delete it and run adapt again"
ERRORS = np.random.default_rng(0).normal(size=500)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_tables([pa.table({"person": ["p00"] * 500, "error_deg": ERRORS})], tmp_path / "errors.parquet", {})
    return tmp_path / "errors.parquet"


def test_rows_are_read_as_written(path: Path) -> None:
    np.testing.assert_array_equal(read_table(path, {"error_deg": NUMBER}, AGAIN)["error_deg"], ERRORS)
    with pytest.raises(UserError, match="has no column k; delete it and run adapt again"):
        read_table(path, {"person": TEXT, "k": WHOLE}, AGAIN)


def test_a_flipped_bit_and_a_lost_end(path: Path) -> None:
    flip(path, ERRORS[:20].tobytes())
    with pytest.raises(UserError, match=r"errors.parquet: not a readable parquet file, delete it and run adapt again"):
        read_table(path, {"error_deg": NUMBER}, AGAIN)
    cut(path, 1000)
    with pytest.raises(UserError, match=r"errors.parquet: not a readable parquet file"):
        read_table(path, {"error_deg": NUMBER}, AGAIN)


def test_text_that_is_none(tmp_path: Path) -> None:
    """Seen red: pandas met the bytes where it sorted them."""
    text = pa.array(["p00"]).buffers()
    person = pa.StringArray.from_buffers(1, text[1], pa.py_buffer(b"p\xdc0"))
    write_tables([pa.table({"person": person})], tmp_path / "errors.parquet", {})
    with pytest.raises(UserError, match=r"errors.parquet: not a readable parquet file, .*Invalid UTF8"):
        read_table(tmp_path / "errors.parquet", {"person": TEXT}, AGAIN)
