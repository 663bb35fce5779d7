"""Tables and measurements that somebody changed, or that unpack to more than they are.

Each was red before: a traceback, or gigabytes.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fabricated import Fabricated

from faze.base.errors import UserError
from faze.base.logged_run import LoggedRun
from faze.base.result_paths import ResultPaths
from faze.evaluation.coverage import coverage
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
from faze.evaluation.tables import measured_besides, performance

TIERS, LEARNERS = ("baseline", "amp"), ("maml", "offset")


@pytest.fixture
def paths(tmp_path: Path) -> ResultPaths:
    return Fabricated(tiers=TIERS, people=(2, 2), entries=8, query=4).write(tmp_path / "x")


def ablation(paths: ResultPaths) -> Ablation:
    return Ablation(paths, TIERS, (0,), LEARNERS, 4)


@pytest.mark.parametrize(
    ("column", "values", "sentence"),
    [
        ("error_deg", ["a"], "column error_deg holds .*, not number in every row; delete it and run adapt again"),
        ("k", [1.5], "column k holds double, not whole number in every row"),
        ("k", [None], "column k holds null, not whole number"),
        ("person", [b"x"], "column person holds binary, not text"),
        ("person", [None], "column person holds null, not text"),
        ("dataset", ["<script>"], "is about a data set <script>"),
        ("error_deg", [float("inf")], "holds an error that is not a number"),
        ("steps", [[1, 2]], "column steps holds list.*, not whole number"),
    ],
)
def test_a_column_of_another_kind_is_one_sentence(column: str, values: list, sentence: str, paths: ResultPaths) -> None:
    path = paths.errors("baseline", 0, "maml")
    table = pq.read_table(path)
    at = table.column_names.index(column)
    pq.write_table(table.set_column(at, column, pa.array(values * table.num_rows)), path)
    with pytest.raises(UserError, match=f"maml_errors.parquet: .*{sentence}"):
        read_errors(ablation(paths))


def test_a_small_file_of_many_rows_is_not_read(tmp_path: Path) -> None:
    table = pa.table({"a": pa.repeat(pa.scalar(1.0), 2**23), "b": pa.repeat(pa.scalar("x"), 2**23)})
    pq.write_table(table, tmp_path / "x.parquet", compression="gzip")
    assert (tmp_path / "x.parquet").stat().st_size < 100_000
    with pytest.raises(UserError, match="x.parquet: not a readable parquet file, again .*cells in a file of"):
        read_table(tmp_path / "x.parquet", {"a": NUMBER, "b": TEXT}, "again")


def test_kinds_and_order_are_those_that_are_asked_for(tmp_path: Path) -> None:
    frame = pd.DataFrame({"n": [1, 2], "t": ["a", "b"], "f": [0.5, None], "none": [None, None]})
    frame.to_parquet(tmp_path / "x.parquet")
    found = read_table(tmp_path / "x.parquet", {"t": TEXT, "n": WHOLE, "f": NUMBER, "none": NUMBER}, "again")
    assert list(found) == ["t", "n", "f", "none"] and found["none"].dtype == float and found["n"].dtype == int


@pytest.mark.parametrize("value", [b"[" * 100_000, b"3", b'"x"', b'{"x": "y"}', b"[1]", b"\xff"])
def test_what_a_table_says_of_itself_may_be_anything(value: bytes, paths: ResultPaths) -> None:
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
            assert "maml_errors.parquet: is not as faze wrote it" in str(error)


def test_columns_that_only_begin_like_a_coverage_are_none(paths: ResultPaths) -> None:
    path = paths.errors("baseline", 0, "maml")
    table = pq.read_table(path)
    pq.write_table(table.append_column("covered_most", pa.array([0.5] * table.num_rows)), path)
    assert "covered_most" in read_metadata(path, "again")[0]
    assert len(coverage(ablation(paths))) == 0


def test_redirection_is_numbers_of_each_pair_once(paths: ResultPaths) -> None:
    path = paths.redirected_pairs("baseline", 0)
    pairs = read_pairs(path)
    pd.concat([pairs, pairs[:1]]).to_parquet(path, index=False)
    with pytest.raises(UserError, match="holds a pair of a person twice"):
        read_pairs(path)
    path = paths.redirection("amp", 0)
    pd.read_parquet(path).assign(l1=float("inf")).to_parquet(path, index=False)
    with pytest.raises(UserError, match="holds what is not a number"):
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
        put("x", "speed_interval"),
    ],
)
def test_a_benchmark_that_somebody_changed_is_one_sentence(change: Callable[[dict], None], paths: ResultPaths) -> None:
    measured = json.loads(paths.benchmark.read_text())
    change(measured)
    paths.benchmark.write_text(json.dumps(measured))
    training = LoggedRun({}, None, [], [], [])
    with pytest.raises(UserError, match="benchmark.json: .*delete it and run benchmark again"):
        benchmark = read_benchmark(ablation(paths))
        performance(ablation(paths), benchmark, dict.fromkeys(TIERS, training))
        measured_besides(ablation(paths), benchmark)
