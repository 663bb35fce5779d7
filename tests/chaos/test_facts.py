"""The comparison in `make chaos` covers everything that must be equal, and ignores everything that may differ."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from damage import candidates
from facts import differences, facts_of

from faze.base.run_log import RunLog

RUN = "baseline/seed0"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Create one file of each kind."""
    folder = tmp_path / "results/smoke"
    for part in ("codes", "fewshot", "logs"):
        (folder / RUN / part).mkdir(parents=True)
    (folder / "evaluation").mkdir()
    torch.save({"model": {"weight": torch.arange(4.0)}, "log_bytes": 7}, folder / RUN / "checkpoint.pt")
    with h5py.File(folder / RUN / "codes/mpiigaze.h5", "w") as file:
        file["p00/z_gaze"] = np.arange(6.0)
        file["p00"].attrs["split"] = "test"
    errors = pa.table({"error_deg": [1.5, 2.5]}).replace_schema_metadata({"seconds": "1", "left_out": "[]"})
    pq.write_table(errors, folder / RUN / "fewshot/maml_errors.parquet")
    (folder / "evaluation/tiers.csv").write_text("tier,mean_deg\nbaseline,3.5\n")
    (folder / "evaluation/performance.csv").write_text("tier,step_ms\nbaseline,12\n")
    (folder / RUN / "logs/train.log").write_text("1 s")
    with RunLog(folder / RUN / "run.jsonl") as log:
        log.metrics(16, {"train/loss": 1.0, "train/images_per_s": 8.0})
    return folder


def rewrite(name: str, old: str, new: str) -> Callable[[Path], object]:
    def change(results: Path) -> None:
        text = (results / name).read_text()
        assert old in text
        (results / name).write_text(text.replace(old, new))

    return change


def another_weight(results: Path) -> None:
    torch.save({"model": {"weight": torch.arange(4.0) + 1e-7}, "log_bytes": 7}, results / RUN / "checkpoint.pt")


def another_split(results: Path) -> None:
    with h5py.File(results / RUN / "codes/mpiigaze.h5", "r+") as file:
        file["p00"].attrs["split"] = "train"


def another_table(**metadata: str) -> Callable[[Path], object]:
    def change(results: Path) -> None:
        table = pa.table({"error_deg": [1.5, 2.5]}).replace_schema_metadata(
            {"seconds": "1", "left_out": "[]"} | metadata
        )
        pq.write_table(table, results / RUN / "fewshot/maml_errors.parquet")

    return change


def resumed_and_reused(results: Path) -> None:
    (results / RUN / "run.jsonl").unlink()
    with RunLog(results / RUN / "run.jsonl") as log:
        log.event("resume", step=8)
        log.event("reused_from", tier="amp")
        log.metrics(16, {"train/loss": 1.0, "train/images_per_s": 8.0})


def torn(results: Path) -> None:
    path = results / RUN / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[:300])


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (another_weight, "checkpoint.pt .model.weight: differs"),
        (another_split, "mpiigaze.h5 p00@split: differs"),
        (another_table(left_out='["p01"]'), "maml_errors.parquet @left_out: differs"),
        (rewrite("evaluation/tiers.csv", "3.5", "3.6"), "tiers.csv mean_deg: differs"),
        (rewrite(f"{RUN}/run.jsonl", '"train/loss": 1.0', '"train/loss": 1.1'), "run.jsonl 0: differs"),
        (torn, "checkpoint.pt cannot be read: is new"),
        (lambda results: (results / "evaluation/tiers.csv").unlink(), "tiers.csv mean_deg: is missing"),
        (lambda results: (results / "evaluation/more.csv").write_text("a\n1\n"), "more.csv a: is new"),
    ],
)
def test_what_must_be_equal(results: Path, change: Callable[[Path], object], difference: str) -> None:
    before = facts_of(results)
    assert differences(facts_of(results), before) == []
    change(results)
    assert any(difference in found for found in differences(facts_of(results), before))


@pytest.mark.parametrize(
    "change",
    [
        another_table(seconds="2"),
        rewrite("evaluation/performance.csv", "12", "13"),
        rewrite(f"{RUN}/run.jsonl", "8.0", "9.0"),
        resumed_and_reused,
        rewrite(f"{RUN}/logs/train.log", "1 s", "2 s"),
        lambda results: (results / RUN / ".checkpoint.pt.lock").touch(),
    ],
)
def test_what_may_differ(results: Path, change: Callable[[Path], object]) -> None:
    before = facts_of(results)
    change(results)
    assert differences(facts_of(results), before) == []


def test_runs_of_mlflow_that_nobody_superseded(results: Path, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        database.executescript(
            """
            CREATE TABLE runs (name, run_uuid); CREATE TABLE tags (key, value, run_uuid);
            CREATE TABLE metrics (key, step, value, run_uuid);
            INSERT INTO runs VALUES ('0-baseline', 'a'), ('0-baseline (superseded)', 'b');
            INSERT INTO tags VALUES ('superseded', 'false', 'a'), ('superseded', 'true', 'b');
            INSERT INTO metrics VALUES ('error/mpiigaze_deg', 0, 3.5, 'a'), ('speed/step_ms', 0, 9, 'a');
            """
        )
        before = facts_of(results, tmp_path / "mlflow.db")
        database.execute("UPDATE metrics SET value = 10 WHERE key = 'speed/step_ms'")
        database.commit()
        assert facts_of(results, tmp_path / "mlflow.db") == before
        database.execute("INSERT INTO metrics VALUES ('error/mpiigaze_deg', 0, 3.5, 'a')")
        database.commit()
    assert differences(facts_of(results, tmp_path / "mlflow.db"), before) == ["MLflow 0-baseline: differs"]


def test_only_finished_files_and_checkpoints_of_killed_stages_are_damaged(results: Path) -> None:
    (results / RUN / "train.work").mkdir()
    for name in ("checkpoint.pt", ".checkpoint.pt.x"):
        (results / RUN / "train.work" / name).write_text("x")
    (results / "mlruns").touch()  # empty
    found = {str(path.relative_to(results)) for paths in candidates(results).values() for path in paths}
    everything = {str(path.relative_to(results)) for path in results.rglob("*") if path.is_file()}
    assert everything - found == {f"{RUN}/logs/train.log", f"{RUN}/train.work/.checkpoint.pt.x", "mlruns"}
