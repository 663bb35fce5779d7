"""The smoke ablation, end to end."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from checkout import Answer, Checkout
from data_sets import entries
from graphs import write_graph
from mlflow import MlflowClient

from faze.data.codes import CodeStore

pytestmark = pytest.mark.workflow

SMOKE = "config/sizes/smoke.yaml"
TIERS = ["baseline", "amp", "ddp"]
PER_RUN = ("train", "encode", "meta_train", "adapt", "redirect")  # of tiers, and of one noise control
RUNS = dict.fromkeys(PER_RUN, len(TIERS) + 1) | {"walk": len(TIERS), "prove": len(TIERS)}
GIVEN = "\ntiers:\n  mine: {given: {network: mine.onnx}}\n"
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


def test_a_network_of_another_project_is_not_trained(fresh: Checkout) -> None:
    """Even if it is not in run.tiers."""
    with fresh.appended(SMOKE, GIVEN):
        for target in ("tier_mine", "results/smoke/mine/seed0/checkpoint.pt"):
            assert "MissingRuleException" in fresh.snakemake(target, "-n").text


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


def test_errors_of_another_network_are_beside_those_of_trained_tiers(
    finished: tuple[Checkout, Answer], tmp_path: Path
) -> None:
    checkout = Checkout(tmp_path / "faze", SMOKE, of=finished[0].folder)
    write_graph(checkout.folder / "mine.onnx")
    results = checkout.folder / "results/smoke"
    tiers = "tiers: [baseline, amp, ddp"
    with checkout.edited(SMOKE, f"{tiers}]", f"{tiers}, mine]"), checkout.appended(SMOKE, GIVEN):
        answer = checkout.snakemake("--cores", "all", "ablation")
    assert answer.code == 0, answer.text[-4000:]
    own = {"estimate": 2, "meta_train_given": 1, "adapt_given": 1}
    assert answer.jobs == own | {"evaluate": 1, "report": 1, "track": 1}
    errors = pd.read_csv(results / "evaluation/tiers.csv").set_index("tier").loc["mine"]
    assert set(errors["learner"]) == {"unadapted", "offset", "bayes"} and errors["mean_deg"].gt(0).all()
    codes = CodeStore(results / "mine/seed0/codes/phone.h5")
    person = codes[codes.persons("test")[0]]
    assert person["z_gaze"].shape == (12, 0) and person["gaze_hat"].shape == (12, 3)
    page = (results / "report/index.html").read_text(encoding="utf-8")
    assert "Networks of other projects" in page and "mine.onnx" in page
    tracked = json.loads((results / "tracking/tracked.json").read_text())
    run = MlflowClient(tracked["store"]).get_run(tracked["runs"]["3-mine"])
    assert run.data.params["given.network"] == "mine.onnx"
    unadapted = errors[(errors["k"] == 0) & (errors["dataset"] == "laptop")]["mean_deg"].item()
    assert run.data.metrics["error/laptop_deg"] == pytest.approx(unadapted, rel=1e-3)
