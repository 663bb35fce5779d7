"""A sweep next to a finished ablation: that ablation's rules train the points, and the ablation is unchanged."""

import json

import pandas as pd
import pytest
from checkout import NOTHING, Checkout

pytestmark = pytest.mark.workflow
SWEEP = "sweep: {grid: {loss.gaze_angle: [0.1, 0.2]}, sobol: {train.base_lr: [0.001, 0.01, log]}, points: 1}\n"


@pytest.fixture
def swept(done: Checkout, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    smoke = (done.folder / "config/smoke.yaml").read_text()
    (done.folder / "config/points.yaml").write_text(smoke + SWEEP)
    monkeypatch.setattr(done, "config", "config/points.yaml")
    return done


def test_points_are_trained_compared_and_mirrored(swept: Checkout) -> None:
    assert swept.dry_run("sweep").jobs == {"train": 2, "compare": 1, "track_sweep": 1, "sweep": 1}
    assert NOTHING in swept.dry_run("ablation").text
    answer = swept.snakemake("--cores", "all", "sweep")
    assert answer.code == 0, answer.text[-8000:]
    assert "sweep: results/smoke/sweep/index.html" in answer.text
    table = pd.read_csv(swept.folder / "results/smoke/sweep/points.csv")
    assert set(table["point"]) == {"point00", "point01"} and set(table["loss.gaze_angle"]) == {0.1, 0.2}
    assert table["gaze_deg"].between(0, 180).all()
    told = json.loads((swept.folder / "results/smoke/tracking/sweep.json").read_text())
    assert list(told["runs"]) == ["0-point00", "1-point01"] and len(set(told["runs"].values())) == 2
    assert NOTHING in swept.dry_run("sweep").text and NOTHING in swept.dry_run("ablation").text


def test_without_points_nothing_is_swept(fresh: Checkout) -> None:
    answer = fresh.snakemake("sweep", "-n")
    assert answer.code == 1 and "sweep.grid" in answer.text and "sweep.sobol" in answer.text


def test_start_weights_must_fit_the_points_only(fresh: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the configuration without the points' values was checked too."""
    smoke = (fresh.folder / "config/smoke.yaml").read_text().replace("  pairs: 64\n", "  pairs: 64\n  start: shipped\n")
    monkeypatch.setattr(fresh, "config", "config/points.yaml")
    for growth, code in ((8, 0), (6, 1)):
        sweep = f"sweep: {{grid: {{model.growth: [{growth}], train.base_lr: [0.001, 0.002]}}}}\n"
        (fresh.folder / "config/points.yaml").write_text(smoke + sweep)
        answer = fresh.snakemake("sweep", "-n")
        assert answer.code == code, answer.text
    assert "train.start at point00: " in answer.text and "model.growth is 8 in the checkpoint, not 6" in answer.text
