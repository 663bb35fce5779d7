"""Damaged and manipulated tables and benchmarks: one sentence with file, column and remedy.

Regression for each: a traceback, gigabytes of memory, or a flipped bit that was read as a number.
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from damaged import cut, flip
from data_sets import DATASETS
from fabricated import Fabricated

from faze.base.errors import UserError
from faze.base.logged_run import LoggedRun
from faze.base.result_paths import ResultPaths
from faze.evaluation.diagnostics import coverage
from faze.evaluation.parquet_file import NUMBER, TEXT, WHOLE, read_metadata, read_table
from faze.evaluation.redirected_angles import read_pairs
from faze.evaluation.redirection_tables import redirection
from faze.evaluation.runs import (
    Ablation,
    read_benchmark,
    read_errors,
    read_learner_times,
    read_left_out,
    read_val_errors,
)
from faze.evaluation.tables import other_benchmarks, performance
from faze.fewshot.result_tables import write_tables

TIERS, LEARNERS = ("baseline", "amp"), ("maml", "offset")
ERRORS = np.random.default_rng(0).normal(size=500)


@pytest.fixture
def paths(tmp_path: Path) -> ResultPaths:
    return Fabricated(tiers=TIERS, people=(2, 2), entries=8, query=4).write(tmp_path / "x")


def ablation(paths: ResultPaths) -> Ablation:
    return Ablation(paths, TIERS, (0,), LEARNERS, 4, DATASETS)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    write_tables([pa.table({"person": ["p00"] * 500, "error_deg": ERRORS})], tmp_path / "errors.parquet", {})
    return tmp_path / "errors.parquet"


def test_rows_are_read_as_written(table: Path) -> None:
    np.testing.assert_array_equal(read_table(table, {"error_deg": NUMBER}, "again")["error_deg"], ERRORS)
    with pytest.raises(UserError, match="errors.parquet.* k; again"):
        read_table(table, {"person": TEXT, "k": WHOLE}, "again")


@pytest.mark.parametrize("damage", [lambda path: flip(path, ERRORS[:20].tobytes()), lambda path: cut(path, 1000)])
def test_a_flipped_bit_or_a_lost_end_is_found(damage: Callable[[Path], None], table: Path) -> None:
    damage(table)
    with pytest.raises(UserError, match="errors.parquet.*readable parquet.*again"):
        read_table(table, {"error_deg": NUMBER}, "again")


def test_text_must_be_utf_8(tmp_path: Path) -> None:
    """Regression: pandas failed when it sorted the invalid text."""
    text = pa.array(["p00"]).buffers()
    person = pa.StringArray.from_buffers(1, text[1], pa.py_buffer(b"p\xdc0"))
    write_tables([pa.table({"person": person})], tmp_path / "errors.parquet", {})
    with pytest.raises(UserError, match="errors.parquet.*Invalid UTF8"):
        read_table(tmp_path / "errors.parquet", {"person": TEXT}, "again")


@pytest.mark.parametrize(("column", "values", "expected"), [
    ("error_deg", ["a"], "error_deg .*number.*; delete it and run adapt again"),
    ("k", [1.5], "k .*double.*whole number"),
    ("k", [None], "k .*null.*whole number"),
    ("person", [b"x"], "person .*binary.*text"),
    ("person", [None], "person .*null.*text"),
    ("dataset", ["<script>"], "data set.* <script>"),
    ("error_deg", [float("inf")], "error .*nan"),
    ("steps", [[1, 2]], "steps .*list.*whole number"),
])  # fmt: skip
def test_a_column_of_another_kind_is_one_sentence(column: str, values: list, expected: str, paths: ResultPaths) -> None:
    path = paths.errors("baseline", 0, "maml")
    table = pq.read_table(path)
    at = table.column_names.index(column)
    pq.write_table(table.set_column(at, column, pa.array(values * table.num_rows)), path)
    with pytest.raises(UserError, match=f"maml_errors.parquet: .*{expected}"):
        read_errors(ablation(paths))


def test_a_small_file_of_many_rows_is_not_read(tmp_path: Path) -> None:
    table = pa.table({"a": pa.repeat(pa.scalar(1.0), 2**23), "b": pa.repeat(pa.scalar("x"), 2**23)})
    pq.write_table(table, tmp_path / "x.parquet", compression="gzip")
    assert (tmp_path / "x.parquet").stat().st_size < 100_000
    with pytest.raises(UserError, match="x.parquet: .*cells in a file of.*again"):
        read_table(tmp_path / "x.parquet", {"a": NUMBER, "b": TEXT}, "again")


def test_columns_have_the_expected_kinds_and_order(tmp_path: Path) -> None:
    frame = pd.DataFrame({"n": [1, 2], "t": ["a", "b"], "f": [0.5, None], "none": [None, None]})
    frame.to_parquet(tmp_path / "x.parquet")
    found = read_table(tmp_path / "x.parquet", {"t": TEXT, "n": WHOLE, "f": NUMBER, "none": NUMBER}, "again")
    assert list(found) == ["t", "n", "f", "none"] and found["none"].dtype == float and found["n"].dtype == int
    assert found["t"].tolist() == ["a", "b"] and found["n"].tolist() == [1, 2] and found["f"][0] == 0.5


@pytest.mark.parametrize("value", [b"[" * 100_000, b"3", b'"x"', b'{"x": "y"}', b"[1]", b"\xff"])
def test_metadata_may_contain_anything(value: bytes, paths: ResultPaths) -> None:
    path = paths.errors("baseline", 0, "maml")
    keys = (b"left_out", b"left_out_of_training", b"val_deg", b"seconds", b"pandas")
    pq.write_table(pq.read_table(path).replace_schema_metadata(dict.fromkeys(keys, value)), path)
    read_errors(ablation(paths))
    assert all(isinstance(sentence, str) for sentence in read_left_out(ablation(paths)))
    assert isinstance(read_metadata(path, "again")[1], dict)
    for read in (read_val_errors, read_learner_times):
        try:
            read(ablation(paths))
        except UserError as error:
            assert "maml_errors.parquet" in str(error)


@pytest.mark.parametrize("column", ["covered_most", "covered_68_of_all", "covered_", "uncovered_68"])
def test_columns_with_the_prefix_of_a_coverage_are_ignored(column: str, paths: ResultPaths) -> None:
    path = paths.errors("baseline", 0, "maml")
    table = pq.read_table(path)
    pq.write_table(table.append_column(column, pa.array([0.5] * table.num_rows)), path)
    assert column in read_metadata(path, "again")[0]
    assert len(coverage(ablation(paths))) == 0


def test_redirection_has_finite_numbers_and_each_pair_once(paths: ResultPaths) -> None:
    path = paths.redirected_pairs("baseline", 0)
    pairs = read_pairs(path)
    pd.concat([pairs, pairs[:1]]).to_parquet(path, index=False)
    with pytest.raises(UserError, match="redirected_pairs.parquet.*twice"):
        read_pairs(path)
    path = paths.redirection("amp", 0)
    pd.read_parquet(path).assign(l1=float("inf")).to_parquet(path, index=False)
    with pytest.raises(UserError, match="redirection.parquet: .*number"):
        redirection(ablation(paths))


def without(*keys: str) -> Callable[[dict], None]:
    def change(measured: dict) -> None:
        for key in keys[:-1]:
            measured = measured[key]
        del measured[keys[-1]]

    return change


def put(value: object, *keys: str) -> Callable[[dict], None]:
    def change(measured: dict) -> None:
        for key in keys[:-1]:
            measured = measured[key]
        measured[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        *(without("tiers", "amp", "speedup"), put("<script>", "tiers", "amp", "step_ms"), put([1], "tiers", "amp")),
        *(put(None, "tiers", "amp", "phases_ms"), put("x", "tiers", "amp", "peak_gib_low"), put([], "tiers")),
        *(without("leave_one_out", "full"), put({"tiers": {}}, "paper_width"), put(3, "leave_one_out", "left_out")),
        *(put("x", "speed_interval"), put(3, "tiers")),
    ],
)
def test_a_manipulated_benchmark_is_one_sentence(change: Callable[[dict], None], paths: ResultPaths) -> None:
    measured = json.loads(paths.benchmark.read_text())
    change(measured)
    paths.benchmark.write_text(json.dumps(measured))
    training = LoggedRun({}, None, [], [], [])
    with pytest.raises(UserError, match="benchmark.json.*delete it and run benchmark again"):
        benchmark = read_benchmark(ablation(paths))
        performance(ablation(paths), benchmark, dict.fromkeys(TIERS, training))
        other_benchmarks(ablation(paths), benchmark)
