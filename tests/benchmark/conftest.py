"""A store of strips, and the benchmark stage run on it."""

import contextlib
import io
import json
from collections.abc import Callable

import numpy as np
import pytest
from stage_runs import ROOT, call_stage, defaults

from faze.config.yaml_files import merge, read_yaml
from faze.data.store.strips import PersonStrips, write_strips

SMOKE = merge(defaults(), read_yaml(ROOT / "config" / "smoke.yaml"))
Measured = tuple[dict, str]


@pytest.fixture(scope="session")
def run_benchmark(tmp_path_factory: pytest.TempPathFactory) -> Callable[[dict], Measured]:
    """Return a function that runs the stage with smoke settings and overrides, and returns its JSON and printed
    text."""

    def run(overrides: dict, *, tiers: dict) -> Measured:
        folder, random = tmp_path_factory.mktemp("benchmark"), np.random.default_rng(0)
        pixels = random.integers(0, 256, (6, 64, 256, 3), dtype=np.uint8)
        labels = random.normal(0, 0.2, (6, 4)).astype(np.float32)
        people = [PersonStrips(name, "train", [f"{i}.jpg" for i in range(6)], pixels, labels) for name in "12"]
        write_strips(folder / "strips.h5", "gazecapture", people)
        out, printed = folder / "benchmark.json", io.StringIO()
        config = merge(SMOKE, overrides) | {"tiers": tiers}
        with contextlib.redirect_stdout(printed):
            code = call_stage("benchmark", folder, config=config, data=folder / "strips.h5", threads=1, out=out)
        assert code == 0
        return json.loads(out.read_text(encoding="utf-8")), printed.getvalue()

    return run


@pytest.fixture(scope="session")
def measured(run_benchmark: Callable) -> Measured:
    """Measure one tier that cannot differ here and two tiers that can, including leave-one-outs."""
    tiers = {"baseline": SMOKE["tiers"]["baseline"] | {"device": "cpu"}, "autotune": {"cudnn_benchmark": True}}
    tiers |= {"allocator_retention": {"allocator": "keep"}, "recompute": {"recompute": True}}
    run = {"tiers": list(tiers), "controls": []}
    return run_benchmark({"run": run, "benchmark": {"leave_one_out": True}}, tiers=tiers)
