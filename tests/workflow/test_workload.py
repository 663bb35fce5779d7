"""The ablation of somebody's own training: the same rules as far as they apply, and only those."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import NOTHING, ROOT, Checkout

pytestmark = pytest.mark.workflow
CONFIG = """
name: tiny
workload: tiny_workload:Tiny
run:
  tiers: [baseline, fused_sgd, ddp on fused_sgd (untrained)]
  seeds: [0, 1]
benchmark: {warmup_steps: 1, warmup_blocks: 3, block_steps: 1, blocks: 2, rounds: 1, leave_one_out: true}
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    checkout = Checkout(tmp_path_factory.mktemp("tiny") / "faze", "config/tiny.yaml")
    (checkout.folder / "config/tiny.yaml").write_text(CONFIG)
    shutil.copy(ROOT / "tests/shared/tiny_workload.py", checkout.folder)
    answer = checkout.snakemake("--cores", "all", "ablation")
    assert answer.code == 0, answer.text[-8000:]
    jobs = {"prove_workload": 1, "train_workload": 5, "benchmark": 1, "report_workload": 1, "track": 1}
    assert answer.jobs == jobs
    return checkout


def results(checkout: Checkout, path: str) -> Path:
    return checkout.folder / "results/tiny" / path


def test_page_says_which_tiers_are_the_same_experiment(tiny: Checkout) -> None:
    proofs = json.loads(results(tiny, "benchmark/proofs.json").read_text())
    failed = {tier: "failed" in proofs[tier] for tier in ("baseline", "fused_sgd", "ddp")}
    assert failed == {"baseline": False, "fused_sgd": False, "ddp": True}  # its BatchNorm sees half a batch
    page = results(tiny, "report/index.html").read_text()
    assert "ddp: another experiment than baseline" in page and "fastest tier" in page and "accuracy, %" in page
    assert "gaze" not in page and "strips" not in page
    assert "ddp without one change" in page and "<td>fused_sgd</td>" in page


def test_a_damaged_file_of_proofs_is_one_sentence(tiny: Checkout, tmp_path: Path) -> None:
    shutil.copytree(tiny.folder / "results/tiny", tmp_path / "tiny")
    proofs = tmp_path / "tiny/benchmark/proofs.json"
    places = ["--results", tmp_path / "tiny", "--evaluation", tmp_path / "evaluation", "--out", tmp_path / "page"]
    command = [
        sys.executable,
        "-m",
        "faze",
        "report_workload",
        "--config",
        results(tiny, "configs/report_workload.yaml"),
    ]
    for text in (proofs.read_text().replace("float64", "float16"), proofs.read_text()[:100], "{}"):
        proofs.write_text(text)
        ended = subprocess.run([*command, *places], cwd=tiny.folder, capture_output=True, text=True, check=False)
        assert ended.returncode == 1 and ended.stderr.count("\n") == 1
        assert f"{proofs} is " in ended.stderr and "run the rule prove_workload again" in ended.stderr
        assert not (tmp_path / "page").exists()


def test_scores_are_those_of_the_run_logs_and_in_mlflow(tiny: Checkout) -> None:
    summary = json.loads(results(tiny, "evaluation/summary.json").read_text())
    scores = {(run["tier"], run["seed"]): run["metrics"]["score/final"] for run in summary["runs"]}
    assert scores["baseline", 0] == pytest.approx(scores["fused_sgd", 0]) and ("seed", 0) in scores
    lines = results(tiny, "baseline/seed1/run.jsonl").read_text().splitlines()
    last = [json.loads(line)["values"]["val/score"] for line in lines if "val/score" in line][-1]
    assert scores["baseline", 1] == last > 50
    tracked = json.loads(results(tiny, "tracking/tracked.json").read_text())
    assert list(tracked["runs"]) == [
        "0-baseline-s0",
        "0-baseline-s1",
        "1-fused_sgd-s0",
        "1-fused_sgd-s1",
        "control-seed",
    ]


def test_only_a_change_of_the_workload_runs_anything_again(tiny: Checkout) -> None:
    assert NOTHING in tiny.dry_run("ablation").text
    with tiny.edited("tiny_workload.py", "1.5 * torch.randn", "1.6 * torch.randn"):
        assert tiny.dry_run("ablation").jobs["train_workload"] == 5
    with tiny.edited("config/tiny.yaml", "rounds: 1", "rounds: 2"):
        assert tiny.dry_run("ablation").jobs == {"benchmark": 1, "report_workload": 1, "track": 1}


def test_a_class_with_a_fault_is_one_sentence_before_training(tiny: Checkout) -> None:
    with tiny.edited("tiny_workload.py", '{"cross_entropy":', '{"cross_entropy": torch.ones(()), "other":'):
        answer = tiny.snakemake("--cores", "1", "results/tiny/baseline/seed0/run.jsonl")
        assert answer.code == 1 and answer.jobs == {"prove_workload": 1, "train_workload": 1}
        assert "the loss cross_entropy of network is not a finite scalar with a gradient" in answer.text
    with tiny.edited("config/tiny.yaml", "tiny_workload:Tiny", "absent:Tiny"):
        assert "there is no module absent" in tiny.snakemake("-n", "ablation").text
    with tiny.edited("config/tiny.yaml", "tiny_workload:Tiny", "ssdd"):
        assert "'ssdd' is neither faze, ssd," in tiny.snakemake("-n", "ablation").text
