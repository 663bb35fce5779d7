"""Targets for files that stages and the workflow write and anyone may change: logs, tables, pages, records."""

import argparse
import contextlib
import functools
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from cases import Target
from data_sets import DATASETS
from fabricated import Fabricated
from hostile import TEXTS, VALUES, Draw, edited_bytes, edited_json, edited_lines
from targets_data import written
from tracking_tree import start_event, write_log

from faze.base.errors import UserError
from faze.base.logged_run import LoggedRun, read_logged_run
from faze.base.output_cache import output_cache
from faze.base.progress import read_seconds
from faze.base.result_paths import ResultPaths
from faze.base.run_log import read_events
from faze.commands import ledger
from faze.evaluation.diagnostics import coverage
from faze.evaluation.redirected_angles import by_variant, read_pairs
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
from faze.report import results
from faze.report.dataset_page import read_page
from faze.report.media import Embedder, collect_atlas
from faze.report.results import read_evaluation, walk_angles
from faze.tracking.run_record import RunPlace, read_training

TIERS, LEARNERS = ("baseline", "amp"), ("maml", "offset")


@functools.cache
def _results() -> dict[str, bytes]:
    """Return the files of a small ablation, by their paths relative to its folder."""
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary) / "x"
        Fabricated(tiers=TIERS, people=(2, 2), entries=8, query=4).write(root)
        return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def _paths(folder: Path, *names: str) -> ResultPaths:
    """Write the files with these endings that are missing from a case."""
    for name, content in _results().items():
        path = folder / name
        if name.endswith(names) and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return ResultPaths(folder)


def _ablation(paths: ResultPaths) -> Ablation:
    return Ablation(paths, TIERS, (0,), LEARNERS, 4, DATASETS)


# ---- run logs


@functools.cache
def _log() -> str:
    return written(
        lambda path: write_log(path, start_event(path.parent, "amp", 0), steps=3, reused_from="baseline")
    ).decode()


def _make_log(draw: Draw, folder: Path) -> None:
    lines = _log().encode().splitlines()
    kind = draw.pick(["event", "event", "event", "lines", "bytes"])
    if kind == "event":
        at = draw.number(0, len(lines) - 1)
        lines[at] = edited_json(draw, json.loads(lines[at]))
        content = b"\n".join(lines)
    else:
        content = edited_lines(draw, _log(), VALUES) if kind == "lines" else edited_bytes(draw, _log().encode())
    (folder / "run.jsonl").write_bytes(content)


def _parse_log(folder: Path) -> None:
    path = folder / "run.jsonl"
    assert all(isinstance(event, dict) for event in read_events(path))
    run = read_logged_run(path)
    sorted(run.values, key=lambda value: value.step)
    record = read_training(path, RunPlace("amp", 0, "1-amp", "#123456"))
    assert record.identity and all(isinstance(tag, str) for tag in record.tags.values())
    assert all(isinstance(value, str) for value in record.params.values())


# ---- benchmark.json


def _make_benchmark(draw: Draw, folder: Path) -> None:
    (folder / "benchmark").mkdir()
    document = json.loads(_results()["benchmark/benchmark.json"])
    (folder / "benchmark/benchmark.json").write_bytes(edited_json(draw, document))


def _parse_benchmark(folder: Path) -> None:
    ablation = _ablation(ResultPaths(folder))
    benchmark = read_benchmark(ablation)
    training = LoggedRun({}, None, [], [], [])
    refused = None
    for use in (
        lambda: performance(ablation, benchmark, dict.fromkeys(TIERS, training)),
        lambda: other_benchmarks(ablation, benchmark),
    ):
        try:
            use()
        except UserError as error:
            refused = error
    if refused:
        raise refused


def _parse_ledger(folder: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        ledger.main.args[0](argparse.Namespace(benchmark=folder / "benchmark/benchmark.json"))


# ---- parquet


_COLUMNS: tuple[Any, ...] = (
    *(["a"], [None], [b"x"], [1], [1.5], [True], [[1, 2]], [{"a": 1}], [float("nan")], [float("inf")], [2**62], [-1]),
    *(["test"], ["mpiigaze"], ["<script>"], [pd.Timestamp(0)], ["x" * 100_000]),
)


def _edited_table(draw: Draw, content: bytes) -> bytes:
    if draw.number(0, 2) == 0:
        return edited_bytes(draw, content, 6)
    table = pq.read_table(io.BytesIO(content))
    for _ in range(draw.number(1, 3)):
        at = draw.number(0, table.num_columns - 1)
        kind = draw.pick(["column", "column", "drop", "rename", "rows", "metadata", "double"])
        name = table.column_names[at]
        if kind == "column":
            table = table.set_column(at, name, pa.array(draw.pick(_COLUMNS) * table.num_rows))
        elif kind == "drop" and table.num_columns > 1:
            table = table.remove_column(at)
        elif kind == "rename":
            new = draw.pick((*TEXTS[:20], "k", "covered_x", "covered_1e999"))
            table = table.rename_columns([new if column == name else column for column in table.column_names])
        elif kind == "rows":
            table = table.slice(0, draw.pick([0, 1]))
        elif kind == "metadata":
            keys = ["pandas", "left_out", "left_out_of_training", "val_deg", "seconds", "ARROW:schema"]
            value = draw.pick(VALUES).encode("utf-8", "surrogatepass")
            table = table.replace_schema_metadata({draw.pick(keys): value})
        elif kind == "double":
            table = table.append_column(name, table.column(at))
    out = io.BytesIO()
    pq.write_table(table, out, compression="none")
    return out.getvalue()


@functools.cache
def _huge(name: str) -> bytes:
    """Repeat the first row until the table is huge, although the file is small."""
    table = pq.read_table(io.BytesIO(_results()[name])).slice(0, 1)
    columns = {key: pa.repeat(table[key][0], 1_000_000) for key in table.column_names}
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, compression="gzip")
    return out.getvalue()


_ERRORS = "baseline/seed0/fewshot/maml_errors.parquet"
_REDIRECTED = ("baseline/seed0/redirection.parquet", "baseline/seed0/redirected_pairs.parquet")


def _make_errors(draw: Draw, folder: Path) -> None:
    _parquet(draw, folder, _ERRORS)


def _make_redirection(draw: Draw, folder: Path) -> None:
    _parquet(draw, folder, draw.pick(_REDIRECTED))


def _parquet(draw: Draw, folder: Path, name: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_huge(name) if draw.number(0, 40) == 0 else _edited_table(draw, _results()[name]))


def _parse_errors(folder: Path) -> None:
    ablation = _ablation(_paths(folder, "_errors.parquet"))
    read_errors(ablation)
    read_left_out(ablation), read_val_errors(ablation), read_learner_times(ablation), coverage(ablation)


def _parse_redirection(folder: Path) -> None:
    paths = _paths(folder, "redirection.parquet", "redirected_pairs.parquet")
    redirection(_ablation(paths))
    by_variant(read_pairs(paths.redirected_pairs("baseline", 0)))


# ---- what the report reads


@functools.cache
def _dot() -> bytes:
    return cv2.imencode(".png", np.zeros((1, 1, 3), np.uint8))[1].tobytes()


@functools.cache
def _evaluation() -> dict[str, Any]:
    return {
        "tiers": ["baseline"],
        "learners": ["maml"],
        "seeds": [0],
        "paper_width": {},
        "controls": [],
        "checksums": {},
        "largest_k": 9,
    } | {
        "margin_deg": 0.5,
        "learner_margin_deg": 0.5,
        "machine": {"processor": "x", "cores": "2"},
        "training_machine": {},
        "runs": [{"tier": "baseline", "seed": 0, "metrics": {"error/x": 1.0}, "curves": {"mpiigaze_maml": [[0, 1.0]]}}],
    }


def _make_page(draw: Draw, folder: Path) -> None:
    broken = draw.pick(["summary", "table", "inspection", "atlas", "angles"])
    (folder / "evaluation").mkdir()
    summary = edited_json(draw, _evaluation()) if broken == "summary" else json.dumps(_evaluation()).encode()
    (folder / "evaluation/summary.json").write_bytes(summary)
    table = "tier,dataset,learner,k,person\nbaseline,mpiigaze,maml,1,p00\n"
    results.TABLES = ("tiers", "runs")  # all are read alike
    for number, name in enumerate(results.TABLES):
        edited = (
            edited_lines(draw, table, (*TEXTS, "a,b,c,d,e,f,g", '"'))
            if broken == "table" and not number
            else table.encode()
        )
        (folder / f"evaluation/{name}.csv").write_bytes(edited)
    (folder / "inspection/mpiigaze").mkdir(parents=True)
    found = {
        "dataset": "mpiigaze",
        "rejects": {"sidecar": "x.csv", "frames": 1, "share": 0.5, "left_out": {}},
        "splits": [],
        **dict.fromkeys(("label_sources", "validities", "devices"), {"x": 1}),
        **{"strip_px": [256, 64], "unusable_labels": 0, "checksums": None, "digest": "x"},
        "people": 1,
        "strips": 2,
    }
    inspected = edited_json(draw, found) if broken == "inspection" else json.dumps(found).encode()
    (folder / "inspection/mpiigaze/summary.json").write_bytes(inspected)
    (folder / "inspection/mpiigaze/figures").mkdir()
    for name in ("density", "sheet"):
        (folder / f"inspection/mpiigaze/figures/{name}.png").write_bytes(_dot())
    walks = folder / "baseline/seed0/walks"
    walks.mkdir(parents=True)
    for name in ("atlas.json", "angles.csv"):
        content = _results()[f"baseline/seed0/walks/{name}"]
        if broken == "atlas" and name == "atlas.json":
            content = edited_json(draw, json.loads(content))
        if broken == "angles" and name == "angles.csv":
            content = edited_lines(draw, content.decode(), (*TEXTS, ",", '"'))
        (walks / name).write_bytes(content)


def _parse_page(folder: Path) -> None:
    paths = _paths(folder, ".webp")
    read_evaluation(paths)
    read_page(paths.inspection("mpiigaze"), paths.root, Embedder())
    walk_angles(paths, TIERS[:1], 0)
    collect_atlas(paths, TIERS[:1], 0)


# ---- marks that others can write


def _make_marks(draw: Draw, folder: Path) -> None:
    record = [{"a.txt": "0" * 64}, {"../b.txt": "1" * 64}]
    (folder / "output_cache").mkdir()
    (folder / "output_cache/x.json").write_bytes(edited_json(draw, record))
    table = "s\th:m:s\tmax_rss\n1.5\t0:00:01\t12\n"
    (folder / "job.tsv").write_bytes(edited_lines(draw, table, (*TEXTS, "\t", '"')))


def _parse_marks(folder: Path) -> None:
    seconds = read_seconds(folder / "job.tsv")
    assert seconds is None or isinstance(seconds, float)
    with output_cache(folder / "output_cache", "x", [folder / "made"]) as taken:
        if not taken:
            (folder / "made").write_text("new")


TARGETS = (
    Target("run_log", _make_log, _parse_log),
    Target("benchmark", _make_benchmark, _parse_benchmark),
    Target("ledger", _make_benchmark, _parse_ledger),
    Target("errors", _make_errors, _parse_errors, warm=lambda: _huge(_ERRORS)),
    Target("redirection", _make_redirection, _parse_redirection, warm=lambda: [_huge(name) for name in _REDIRECTED]),
    Target("report", _make_page, _parse_page),
    Target("marks", _make_marks, _parse_marks),
)
