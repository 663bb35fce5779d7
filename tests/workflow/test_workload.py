"""The ablation of somebody's own training: the same rules as far as they apply, and only those."""

import json
import shutil
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
AFTER = {"benchmark": 1, "report": 1, "track": 1}
JOBS = {"prove": 3, "train": 3} | AFTER


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
    assert len(json.loads(results(tiny, "tracking/tracked.json").read_text())["runs"]) == 3


@pytest.mark.parametrize(
    ("path", "old", "new", "jobs"),
    [
        ("tiny_workload.py", "1.5 * torch.randn", "1.6 * torch.randn", JOBS),
        ("tiny.yaml", "rounds: 1", "rounds: 2", AFTER),
    ],
    ids=["imported module", "value"],
)
def test_a_change_re_runs_what_depends_on_it(path: str, old: str, new: str, jobs: dict, tiny: Checkout) -> None:
    with tiny.edited(path, old, new):
        answer = tiny.dry_run("ablation")
    assert answer.jobs == jobs
