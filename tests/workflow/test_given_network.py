"""A network of another project as a tier: its errors are on the page and in MLflow, beside those of trained tiers."""

import json
from pathlib import Path

import pandas as pd
import pytest
from checkout import Answer, Checkout
from graphs import write_graph
from mlflow import MlflowClient

from faze.data.codes import CodeStore

pytestmark = pytest.mark.workflow

SMOKE = "config/sizes/smoke.yaml"
TIER = "\ntiers:\n  mine: {given: {network: mine.onnx}}\n"


def test_its_errors_are_beside_those_of_trained_tiers(finished: tuple[Checkout, Answer], tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "faze", SMOKE, of=finished[0].folder)
    write_graph(checkout.folder / "mine.onnx")
    results = checkout.folder / "results/smoke"
    tiers = "tiers: [baseline, amp, ddp"
    with checkout.edited(SMOKE, f"{tiers}]", f"{tiers}, mine]"), checkout.appended(SMOKE, TIER):
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
