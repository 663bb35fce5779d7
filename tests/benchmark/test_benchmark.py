"""A small benchmark in real processes, from its configuration to benchmark.json and its tables."""

import contextlib
import copy
import io
import json
import platform
from pathlib import Path

import numpy as np
import pytest
from small_model import random_people
from stage_runs import ROOT, call_stage
from stores import write_strips

from faze.benchmark.tier_table import markdown_tables
from faze.config.validation import DEFAULTS, merge, read_yaml

TIERS = ["baseline", "autotune", "allocator_retention", "recompute"]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, str]:
    """Measure one tier that cannot differ here and two tiers that can; return the JSON and the printed text."""
    folder, printed = tmp_path_factory.mktemp("benchmark"), io.StringIO()
    write_strips(folder / "strips.h5", "gazecapture", random_people(("1", "train", 6), ("2", "train", 6)))
    small = read_yaml(DEFAULTS, ROOT / "config/sizes/smoke.yaml")
    tiers = {"baseline": {"device": "cpu"}, "allocator_retention": {"on": "autotune"}, "recompute": {"on": None}}
    config = merge(small, {"run": {"tiers": TIERS, "controls": []}, "tiers": tiers})
    out = folder / "benchmark.json"
    with contextlib.redirect_stdout(printed):
        code = call_stage("benchmark", folder, config=config, data=folder / "strips.h5", threads=1, out=out)
    assert code == 0
    return json.loads(Path(out).read_text(encoding="utf-8")), printed.getvalue()


def row_of(result: dict, name: str) -> str:
    return next(line for line in markdown_tables(result).splitlines() if line.startswith(f"| {name} |"))


def test_every_tier_is_compared_with_the_first(measured) -> None:
    tiers = measured[0]["tiers"]
    assert list(tiers) == TIERS
    assert tiers["baseline"]["speedup"] == {"ratio": 1.0, "low": 1.0, "high": 1.0}
    assert "cuDNN" in tiers["autotune"]["same_as_baseline"] and tiers["recompute"]["same_as_baseline"] is None
    for tier in tiers.values():
        assert tier["phases_ms"].keys() == {"data", "copy", "forward", "backward", "optimizer"}
        [blocks] = tier["blocks_ms"]  # of one round
        assert len(blocks) == 2 and tier["step_ms"] == pytest.approx(np.median(blocks))
        assert tier["peak_gib"] > 0 and tier["warmup_s"] > 0 and tier["warmup_steps"] >= 1 + 3
        assert (tier["joules_per_step"] is None) == bool(tier["energy"]["reason"])


def test_simultaneous_intervals_are_wider_and_count_the_tiers_that_act(measured) -> None:
    for name, tier in measured[0]["tiers"].items():
        found = tier["simultaneous"]
        assert found["comparisons"] == 2 and found["memory"] is None  # autotune cannot act; one round
        assert found["speedup"]["ratio"] == tier["speedup"]["ratio"]
        if name != "baseline":
            assert found["speedup"]["low"] < tier["speedup"]["low"] < tier["speedup"]["high"] < found["speedup"]["high"]


def test_shares_of_the_peaks_follow_from_work_time_and_peaks(measured) -> None:
    result = measured[0]
    copy_rate, product = result["roof"]["copy_gbytes_per_s"], result["roof"]["matmul_tflops"]["fp32"]
    for tier in result["tiers"].values():
        assert tier["tflops"] == pytest.approx(result["work"]["flop"] / tier["step_ms"] / 1e9)
        assert tier["share_of_matmul_roof"] == pytest.approx(tier["tflops"] / product["median"])
        assert tier["gbytes_per_s"] == pytest.approx(result["work"]["bytes"] / tier["step_ms"] / 1e6)
        assert tier["share_of_copy_roof"] == pytest.approx(tier["gbytes_per_s"] / copy_rate["median"])


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the settings")
def test_each_tier_has_its_own_allocator(measured) -> None:
    """Regression: every process was forked from the same server, and so had the same allocator settings."""
    allocators = [{s["switch"]: s for s in row["switches"]}["allocator"] for row in measured[0]["tiers"].values()]
    assert [s["acted"] for s in allocators] == ["default", "default", "keep", "keep"]
    assert not any(s["reason"] for s in allocators)


def test_the_stage_prints_its_tables(measured) -> None:
    result, printed = measured
    assert markdown_tables(result) in printed
    assert "on baseline: cudnn_benchmark true inactive: cuDNN" in row_of(result, "autotune")
    assert "on allocator_retention: recompute true (true)" in row_of(result, "recompute")


def test_a_row_names_throttling_reserved_memory_and_when_a_warm_up_pays_off(measured) -> None:
    result = copy.deepcopy(measured[0])
    after = result["tiers"]["recompute"]
    after |= {"pays_off_after_pairs": 12345.6, "reserved_gib": 1.25, "throttled": ["power cap"]}
    row = row_of(result, "recompute")
    assert "(1.250 reserved)" in row and "throttled: power cap" in row and row.endswith("| 12,346 |")
    assert "throttled" not in row_of(result, "baseline")
    after["pays_off_after_pairs"] = None
    assert row_of(result, "recompute").endswith("| never |")
