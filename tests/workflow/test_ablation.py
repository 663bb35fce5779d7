"""The smoke ablation, end to end."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from checkout import Answer, Checkout
from data_sets import entries

pytestmark = pytest.mark.workflow

SMOKE = "config/sizes/smoke.yaml"
TIERS = ["baseline", "amp", "ddp"]
PER_RUN = ("train", "encode", "meta_train", "adapt", "redirect")  # of tiers, and of one noise control
RUNS = dict.fromkeys(PER_RUN, len(TIERS) + 1) | {"walk": len(TIERS), "prove": len(TIERS)}
ONCE = dict.fromkeys(("estimator", "benchmark", "evaluate", "report", "track"), 1)


def test_everything_is_made_once(finished: tuple[Checkout, Answer]) -> None:
    assert finished[1].jobs == {"synthesise": 1, "preprocess": 2} | RUNS | ONCE


def test_the_users_data_sets_replace_the_rendered_ones(fresh: Checkout, tmp_path: Path) -> None:
    """Frames without head poses get landmarks; strips are copied."""
    strips, model = tmp_path / "strips.h5", tmp_path / "face.task"
    strips.touch()
    model.touch()
    own = [{"name": "webcam", "layout": "strips", "path": str(strips), "splits": "test"}]
    changed = entries(laptop={"path": str(tmp_path)}, phone={"path": tmp_path})
    listed = json.dumps({"datasets": own + changed}, default=str)
    with fresh.appended(SMOKE, f"\npreprocess: {listed}\nlandmarks: {{model: {model}}}\n"):
        answer = fresh.dry_run("--printshellcmds")
    assert answer.jobs == {"landmarks": 1, "preprocess": 3} | RUNS | ONCE
    assert "python -m faze landmarks" in answer.text and f"--model {model}" in answer.text
    assert "--supplementary results/smoke/raw/phone_landmarks.h5" in answer.text
    stores = " ".join(f"results/smoke/data/{name}.h5" for name in ("webcam", "laptop", "phone"))
    assert f"--data {stores} " in answer.text
    trained = [line for block in answer.blocks("train") for line in block.splitlines() if "input: " in line]
    assert trained and all("data/phone.h5" in line and "webcam" not in line for line in trained)


def test_the_benchmark_takes_every_core_and_a_training_those_of_its_threads(fresh: Checkout) -> None:
    with (
        fresh.edited(SMOKE, "train:\n", "tiers: {ddp: {processes: 4}}\n\ntrain:\n  threads: 2\n"),
        fresh.edited(SMOKE, "global_batch: 8", "global_batch: 16"),
    ):
        answer = fresh.dry_run("ablation", "--cores", "2")
    assert "threads: 2\n" in answer.blocks("benchmark")[0]
    assert all("threads: 2\n" in block for block in answer.blocks("train"))


def test_it_leaves_page_walks_logs_and_mlflow_runs(finished: tuple[Checkout, Answer]) -> None:
    checkout, answer = finished
    results = checkout.folder / "results/smoke"
    assert "report: results/smoke/report/index.html" in answer.text
    page = (results / "report/index.html").read_text(encoding="utf-8")
    assert all(tier in page for tier in TIERS)
    assert pd.read_csv(results / "evaluation/performance.csv")["tier"].tolist() == TIERS
    tracked = json.loads((results / "tracking/tracked.json").read_text())
    assert len(tracked["runs"]) == len(TIERS) + 1
    for tier in TIERS:
        assert list((results / tier / "seed0/walks").glob("*.mp4"))
        assert {path.stem for path in (results / tier / "seed0/logs").iterdir()} == {*PER_RUN, "walk"}


def test_no_stage_leaves_temporary_files(done: Checkout) -> None:
    left = [
        path for path in (done.folder / "results").rglob(".*") if path.suffix not in (".lock", ".snakemake_timestamp")
    ]
    assert [path for path in left if not path.name.startswith(".snakemake") and "mlflow" not in str(path)] == []


def test_the_benchmark_had_the_machine_to_itself(finished: tuple[Checkout, Answer]) -> None:
    """Read from Snakemake's output which jobs started and ended."""
    running: set[str] = set()
    measured = ""
    started = r"^(?:local)?rule (\w+):\n(?:    .*\n)*?    jobid: (\d+)$"
    for rule, job, ended in re.findall(rf"{started}|^Finished jobid: (\d+)", finished[1].text, re.MULTILINE):
        if ended:
            running.discard(ended)
            measured = "" if ended == measured else measured
            continue
        assert not measured, f"{rule} starts beside the benchmark"
        assert rule != "benchmark" or not running, "the benchmark starts beside other jobs"
        running.add(job)
        measured = job if rule == "benchmark" else ""
    assert not running


def test_snakemakes_own_report(done: Checkout) -> None:
    answer = done.snakemake("--report", "report.html")
    assert answer.code == 0, answer.text
    page = (done.folder / "report.html").read_text(encoding="utf-8")
    assert "Latent walks" in page and "Ablation" in page
    assert r"baseline \u2192 " in page and re.search(r"turned from \\u2212\d", page)  # captions, from the configuration
