"""The snippets of docs/how-to/team-server.md work as described."""

import os
import re
import subprocess
import sys

import pytest
from tracking_tree import ROOT, TIERS, write_results, write_summary

from faze.config.parameters import Tracking
from faze.tracking.mirror import mirror_runs
from faze.tracking.run_record import read_runs, run_places
from faze.tracking.store import SILENCE, open_store

PAGE = ROOT / "docs" / "how-to" / "team-server.md"
FIRST, SECOND = TIERS[:2]


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """Mirror two ablations, one of which is evaluated twice; return the output of the snippets."""
    results = tmp_path_factory.mktemp("team") / "results"
    for name, shifts in (("monday", (-0.9, 0.0)), ("tuesday", (-0.5,))):
        paths = write_results(results / name, TIERS[:2], steps=8)
        for shift in shifts:  # the first evaluation's smaller errors are superseded
            write_summary(paths.root, TIERS[:2], shift=shift)
            store = open_store(Tracking("faze", None), results)
            mirror_runs(store, read_runs(paths, run_places(TIERS[:2], [0])))
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
    code += "print(mlflow.MlflowClient().get_model_version_by_alias('gaze', 'best').source, networks[0].model_id)"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment | SILENCE | {"MLFLOW_TRACKING_URI": store.uri},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_tier_is_found_in_all_ablations(printed):
    header, *rows = printed[:3]
    assert header.split() == ["tags.ablation", "tags.seed", "metrics.val/gaze_deg", "metrics.speed/images_per_s"]
    assert sorted(row.split()[0] for row in rows) == ["monday", "tuesday"]
    assert all(row.split()[1] == "0" and float(row.split()[3]) == 97.5 for row in rows)


def test_best_network_is_current_and_has_the_smallest_error(printed):
    found = [line for line in printed if " degrees: " in line]
    assert [line.split(" degrees: ")[1].split(",")[0] for line in found] == [
        f"{FIRST} of tuesday",
        f"{SECOND} of tuesday",
        f"{FIRST} of monday",
    ]
    errors = [float(line.split()[0]) for line in found]
    assert errors == pytest.approx([(4.9 + change) / 10**0.4 for change in (-0.5, -0.47, 0.0)], abs=0.005)
    assert found[0].endswith(f"/results/tuesday/{FIRST}/seed0/checkpoint.pt")


def test_chosen_network_is_in_the_registry(printed):
    source, model_id = printed[-1].split()
    assert source == f"models:/{model_id}"
