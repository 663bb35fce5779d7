"""Promises 1 and 11: neither kill -9, at any moment, nor an unreachable MLflow costs an ablation any result."""

import json
import random
import re
import time
from pathlib import Path

import pandas as pd
import pytest
import torch
from checkout import Answer, Checkout
from processes import command_line, family, kill, until

from faze.tracking import MlflowClient

pytestmark = pytest.mark.kills

CONFIG = """
name: killed
run: {tiers: [baseline, two_processes], controls: []}
tiers: {two_processes: {train: true}}
synthetic: {laptop_people: 1, phone_train_people: 2, phone_val_people: 1, phone_test_people: 1,
  frames_per_person: 9, phone_train_frames: null}
model: {growth: 2, blocks: 2, image_height_px: 16, image_width_px: 64, decoder_channels: 8}
loss: {chunk_pairs: 4}
train: {pairs: 640, global_batch: 8, log_every_pairs: 8, validate_every_pairs: 320, checkpoint_every_pairs: 8}
fewshot: {learners: [maml, offset], shots: [1, 3], query_entries: 6, meta_query: 3, tasks: 1, outer_steps: 20}
walk: {people: 1, frames: 3}
estimator: {channels: 4, strips: 256, batch: 32}
redirect: {strips: 4}
benchmark: {warmup_steps: 1, warmup_blocks: 3, block_steps: 1, blocks: 2, rounds: 1}
evaluate: {resamples: 100}
"""
TIERS = ("baseline", "two_processes")
COMMAND = ("--cores", "all", "ablation")
NOWHERE = "http://127.0.0.1:1"
TIMED = [f"evaluation/{name}.csv" for name in ("convergence", "performance", "training")]
TIMED += ["report/tiers.csv"]  # tables with times, which no two runs share

# What is killed, up to how many seconds after a file has appeared. Orphans of a killed Snakemake go on.
KILLS = (
    ("raw/.*.writing-*", 1.0, "snakemake"),
    ("data/.work.*", 1.0, "everything"),
    ("baseline/seed0/checkpoint.work/checkpoint.pt", 0.3, "stages"),
    ("two_processes/seed0/checkpoint*", 0.3, "everything"),
    ("*/seed0/redirected_pairs.parquet", 3.0, "snakemake"),
    ("benchmark/.*", 5.0, "everything"),
    ("evaluation/*", 1.0, "everything"),
)


def new_checkout(folder: Path) -> Checkout:
    checkout = Checkout(folder / "faze", "killed.yaml")
    (checkout.folder / checkout.config).write_text(CONFIG, encoding="utf-8")
    return checkout


def root(checkout: Checkout) -> Path:
    return checkout.folder / "results/killed"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkout, Answer]:
    """Run an ablation that nobody kills, while MLflow is unreachable."""
    checkout = new_checkout(tmp_path_factory.mktemp("undisturbed"))
    return checkout, checkout.snakemake(*COMMAND, MLFLOW_TRACKING_URI=NOWHERE)


def curves(checkout: Checkout, tier: str) -> dict[str, list[tuple[int, float]]]:
    """Return the values of a run log by metric, without the speed."""
    found: dict[str, list[tuple[int, float]]] = {}
    lines = (root(checkout) / tier / "seed0/run.jsonl").read_text(encoding="utf-8").splitlines()
    for event in map(json.loads, lines):
        for name, value in event.get("values", {}).items():
            found.setdefault(name, []).append((event["step"], value))
    del found["train/images_per_s"]
    return found


def results(checkout: Checkout) -> dict[str, object]:
    """Return all stores, tables, videos, weights and training curves of an ablation by name."""
    found: dict[str, object] = {tier: curves(checkout, tier) for tier in TIERS}
    for path in root(checkout).rglob("*.*"):
        name = str(path.relative_to(root(checkout)))
        if path.suffix in (".h5", ".csv", ".mp4") and name not in TIMED:
            found[name] = path.read_bytes()
        elif path.suffix == ".parquet":
            found[name] = pd.read_parquet(path).to_csv()
        elif path.name == "checkpoint.pt":
            weights = torch.load(path, weights_only=True)["model"]
            found |= {f"{name}: {part}": weight.numpy().tobytes() for part, weight in weights.items()}
    return found


def victims(what: str, snakemake: int) -> set[int]:
    """Return the processes to kill: Snakemake alone, the running stages alone, or everything that was started."""
    everything = family(snakemake)
    if what == "snakemake":
        return {snakemake}
    if what == "everything":
        return everything
    return {process for process in everything if "faze" in command_line(process)}


def test_kills_at_any_moment_change_no_result(undisturbed: tuple[Checkout, Answer], tmp_path: Path) -> None:
    checkout, started, moments = new_checkout(tmp_path), set(), random.Random(7)
    try:
        for number, (file, seconds, what) in enumerate(KILLS):
            log = tmp_path / f"{number}.log"
            snakemake = checkout.start(*COMMAND, log=log)
            until(lambda: snakemake.poll() is not None or any(root(checkout).glob(file)), file)  # noqa: B023
            time.sleep(moments.uniform(0, seconds))
            started |= family(snakemake.pid)
            assert snakemake.poll() is None, f"nothing is killed: {log.read_text()[-4000:]}"
            kill(victims(what, snakemake.pid))
            assert snakemake.wait() != 0
        answer = checkout.snakemake(*COMMAND)
    finally:
        kill(started)
    assert answer.code == 0, answer.text[-4000:]
    logs = [path.read_text(encoding="utf-8") for path in tmp_path.glob("*.log")]
    assert any("train: resumed after" in log for log in logs)
    found, expected = results(checkout), results(undisturbed[0])
    assert found.keys() == expected.keys()
    assert [name for name, content in expected.items() if found[name] != content] == []


def test_an_unreachable_mlflow_costs_no_result(undisturbed: tuple[Checkout, Answer]) -> None:
    checkout, answer = undisturbed
    assert answer.code == 1 and set(re.findall(r"Error in rule (\w+)", answer.text)) == {"track"}
    assert f"faze track: MLflow store {NOWHERE}: " in answer.text and "run the same command again" in answer.text
    assert (root(checkout) / "report/index.html").exists()
    again = checkout.snakemake(*COMMAND)
    assert (again.code, again.jobs) == (0, {"track": 1}), again.text[-4000:]
    runs = json.loads((root(checkout) / "tracking/tracked.json").read_text(encoding="utf-8"))["runs"]
    client = MlflowClient(f"sqlite:///{checkout.folder}/results/mlflow.db")
    for tier, run in zip(TIERS, runs.values(), strict=True):
        for metric, values in curves(checkout, tier).items():
            assert [(one.step, one.value) for one in client.get_metric_history(run, metric)] == values
