"""Facts that must be equal, to the bit, in every run of the smoke ablation, each under the name of its file.

Times, memory and everything that depends on them are left out: `benchmark.json` except for its tiers, the columns
NOT_EQUAL of tables, `train/images_per_s` and times in run logs, `seconds` of learners, the text of the page. Files of
the workflow (logs, benchmarks, locks, records) and of MLflow are left out too; in MLflow's runs, only the values of
errors, curves and validation must be equal.
"""

import csv
import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as pq
import torch

from faze.base.run_log import read_events

MARKS = ("logs", "benchmarks", "output_cache", "tracking", "report")  # compared by their names alone, or not at all
NOT_EQUAL = {  # columns of evaluation/*.csv that are of times and memory
    "performance.csv": lambda column: column not in ("tier", "seed", "same_as"),
    "training.csv": lambda column: "seconds" in column or "time" in column,
    "convergence.csv": lambda column: "seconds" in column or column in ("reached", "rate_ratio"),
}
TIMES = ("log_bytes", "seconds", "identity")  # of torch files and of the metadata of parquet files
OF_THE_MOMENT = ("time", "machine", "seconds", "checksum", "fingerprint")  # of events
# Whether a run resumes, and which of two identical training runs reuses the other, depends on the moment of a fault.
NOT_EVENTS = ("resume", "reused_from")
OF_RESULTS = ("error/", "curve/", "val/", "train/loss")  # of MLflow's metrics


def facts_of(results: Path, database: Path | None = None) -> dict[str, str]:
    """Gather the facts of results/<name>, and of the runs in MLflow's database."""
    found = {}
    for path in sorted(file for file in results.rglob("*") if file.is_file()):
        relative = path.relative_to(results)
        if is_final(relative):
            found |= {f"{relative} {key}".strip(): digest(value) for key, value in _of_file(path)}
    if database is not None:
        try:
            found |= {f"MLflow {key}": digest(value) for key, value in _of_database(database)}
        except sqlite3.Error as error:
            found["MLflow cannot be read"] = digest(error)
    return found


def is_final(relative: Path) -> bool:
    """Return whether a file of results/<name> is a result: it is neither hidden nor a file of the workflow."""
    hidden = any(part.startswith(".") for part in relative.parts)
    return not hidden and not set(MARKS) & set(relative.parts)


def digest(value: object) -> str:
    data = value if isinstance(value, bytes) else repr(value).encode()
    return hashlib.sha256(data).hexdigest()[:16]


def differences(found: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """List each fact that is missing, new or different."""
    lost = [f"{key}: is missing" for key in wanted if key not in found]
    new = [f"{key}: is new" for key in found if key not in wanted]
    return lost + new + [f"{key}: differs" for key in wanted if key in found and found[key] != wanted[key]]


def _of_file(path: Path) -> Iterator[tuple[str, object]]:
    """Split a file into facts; an unreadable file is a fact in itself."""
    take = TAKEN_APART.get(path.name) or TAKEN_APART.get(path.suffix) or (lambda file: [("", file.read_bytes())])
    try:
        yield from list(take(path))
    except Exception as error:  # whatever a damaged file leads its reader to
        yield "cannot be read", repr(error)


def _of_torch(path: Path) -> Iterator[tuple[str, object]]:
    def within(value: Any, key: str) -> Iterator[tuple[str, object]]:
        if isinstance(value, Mapping):
            for name, part in value.items():
                if name not in TIMES:
                    yield from within(part, f"{key}.{name}")
        elif isinstance(value, torch.Tensor):
            yield key, (str(value.dtype), tuple(value.shape), digest(value.contiguous().view(-1).numpy().tobytes()))
        elif isinstance(value, list | tuple):
            for number, part in enumerate(value):
                yield from within(part, f"{key}.{number}")
        else:
            yield key, value

    yield from within(torch.load(path, weights_only=True), "")


def _of_hdf5(path: Path) -> Iterator[tuple[str, object]]:
    with h5py.File(path, "r") as file:
        names: list[str] = []
        file.visit(names.append)
        for name in ["/", *names]:
            for attribute, value in file[name].attrs.items():
                yield f"{name}@{attribute}", np.asarray(value).tolist()
            if isinstance(file[name], h5py.Dataset):
                array = file[name][()]
                yield name, (str(array.dtype), array.shape, digest(array.tobytes()))


def _of_parquet(path: Path) -> Iterator[tuple[str, object]]:
    table = pq.read_table(path)
    for name in table.column_names:
        yield name, table[name].to_pylist()
    for key, value in (table.schema.metadata or {}).items():
        if key.decode() not in TIMES:
            yield f"@{key.decode()}", value


def _of_table(path: Path) -> Iterator[tuple[str, object]]:
    left_out: Callable[[str], bool] = NOT_EQUAL.get(path.name, lambda column: False)
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = list(csv.reader(file))
    yield "columns", header
    for column, values in zip(header, zip(*rows, strict=True), strict=False):
        if not left_out(column):
            yield column, values


def _of_run_log(path: Path) -> Iterator[tuple[str, object]]:
    events = [event for event in read_events(path) if event["event"] not in NOT_EVENTS]
    yield "events", [event["event"] for event in events]
    for position, event in enumerate(events):
        told = {key: value for key, value in event.items() if key not in OF_THE_MOMENT}
        if event["event"] == "metrics":
            told["values"] = {key: value for key, value in told["values"].items() if key != "train/images_per_s"}
        yield str(position), told


def _of_summary(path: Path) -> Iterator[tuple[str, object]]:
    summary = json.loads(path.read_text(encoding="utf-8"))
    if "runs" not in summary:  # of a data set
        yield "", path.read_bytes()
        return
    yield "keys", sorted(set(summary) - {"checksum"})
    for run in summary["runs"]:
        metrics = {key: value for key, value in run["metrics"].items() if key.startswith(("error/", "redirection/"))}
        yield f"{run['tier']} {run['seed']}", (metrics, run["curves"])


def _of_benchmark(path: Path) -> Iterator[tuple[str, object]]:
    yield "tiers", list(json.loads(path.read_text(encoding="utf-8"))["tiers"])


def _of_database(path: Path) -> Iterator[tuple[str, object]]:
    """Yield the runs that are not superseded, and their values; each run and value must occur once."""
    current = "SELECT run_uuid FROM tags WHERE key = 'superseded' AND value = 'false'"
    with sqlite3.connect(path) as database:
        runs = database.execute(f"SELECT name, run_uuid FROM runs WHERE run_uuid IN ({current})").fetchall()
        yield "runs", sorted(name for name, _ in runs)
        for name, run in runs:
            rows = database.execute("SELECT key, step, value FROM metrics WHERE run_uuid = ?", (run,)).fetchall()
            yield name, sorted(row for row in rows if row[0].startswith(OF_RESULTS))


TAKEN_APART: dict[str, Callable[[Path], Iterator[tuple[str, object]]]] = {
    ".pt": _of_torch,
    ".h5": _of_hdf5,
    ".parquet": _of_parquet,
    ".csv": _of_table,
    "run.jsonl": _of_run_log,
    "summary.json": _of_summary,
    "benchmark.json": _of_benchmark,
}
