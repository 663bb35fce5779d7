"""The ablation of somebody's own training: the same rules as far as they apply, and only those."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT, Checkout

pytestmark = pytest.mark.workflow

CLASS = "from tiny_workload import Tiny\n\n\nclass Mine(Tiny):\n    steps = 40\n"  # it imports another module
CONFIG = """
name: tiny
workload: mine:Mine
run: {tiers: [baseline, fused_sgd, ddp], seeds: [0], controls: [seed]}
tiers: {fused_sgd: {on: baseline}, ddp: {on: fused_sgd, train: false}}
benchmark: {warmup_steps: 1, warmup_blocks: 3, block_steps: 1, blocks: 2, rounds: 1}
"""
JOBS = {"prove": 3, "train": 3, "benchmark": 1, "report": 1, "track": 1}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    checkout = Checkout(tmp_path_factory.mktemp("tiny") / "faze", "tiny.yaml")
    (checkout.folder / "tiny.yaml").write_text(CONFIG)
    (checkout.folder / "mine.py").write_text(CLASS)
    shutil.copy(ROOT / "tests/shared/tiny_workload.py", checkout.folder)
    answer = checkout.snakemake("--cores", "all", "ablation")
    assert answer.code == 0, answer.text[-8000:]
    assert answer.jobs == JOBS
    return checkout


def results(checkout: Checkout, path: str) -> Path:
    return checkout.folder / "results/tiny" / path


def test_page_says_which_tiers_are_the_same_experiment(tiny: Checkout) -> None:
    proofs = json.loads(results(tiny, "benchmark/proofs.json").read_text())
    failed = {tier: "failed" in proof for tier, proof in proofs.items()}
    assert failed == {"fused_sgd": False, "ddp": True}  # its BatchNorm sees half a batch
    page = results(tiny, "report/index.html").read_text()
    assert "different experiment from baseline" in page and "accuracy, %" in page
    assert "gaze" not in page and "strips" not in page


def test_scores_are_those_of_the_run_logs_and_in_mlflow(tiny: Checkout) -> None:
    summary = json.loads(results(tiny, "evaluation/summary.json").read_text())
    scores = {(run["tier"], run["seed"]): run["metrics"]["score/final"] for run in summary["runs"]}
    assert scores["baseline", 0] == pytest.approx(scores["fused_sgd", 0]) and ("seed", 0) in scores
    lines = results(tiny, "baseline/seed0/run.jsonl").read_text().splitlines()
    last = [json.loads(line)["values"]["val/score"] for line in lines if "val/score" in line][-1]
    assert scores["baseline", 0] == last > 50
    assert len(json.loads(results(tiny, "tracking/tracked.json").read_text())["runs"]) == 4  # with ddp


def test_a_tier_answers_after_a_change_of_code(tiny: Checkout) -> None:
    """The module that the class imports changes the experiment, so the old baseline's errors are not compared."""
    with tiny.edited("tiny_workload.py", "1.5 * torch.randn", "1.6 * torch.randn"):
        answer = tiny.snakemake("--cores", "all", "tier_fused_sgd", "tier_ddp")
    assert answer.code == 0, answer.text[-8000:]
    jobs = {"prove": 2, "measure": 2, "train": 1, "answer": 2}
    assert answer.jobs == jobs | {"tier_fused_sgd": 1, "tier_ddp": 1}
    page, of_ddp = (results(tiny, f"{tier}/report/index.html").read_text() for tier in ("fused_sgd", "ddp"))
    assert "first steps are not the same, so errors are not compared" in page and page.count("<th>Score</th>") == 1
    assert all("code: tiny_workload.py: not committed" in each for each in (page, of_ddp))
    assert "a different experiment from the baseline" in of_ddp and "Score" not in of_ddp
    measured = json.loads(results(tiny, "benchmark/tier_ddp.json").read_text())
    assert measured["rounds"] == 3 and "change" in measured and "previous_failed" not in measured
    command = [sys.executable, "-m", "faze", "compare", "1-fused_sgd (earlier, unknown)"]
    compared = subprocess.run(command, cwd=tiny.folder, capture_output=True, text=True, check=True).stdout
    assert "fused_sgd of tiny" in compared and "| Score |" in compared
