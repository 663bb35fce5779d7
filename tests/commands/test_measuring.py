"""Commands that measure one tier: profile, largest-batch."""

import subprocess
import sys

import pytest
from stage_runs import ROOT, call_faze

from faze.commands import largest_batch

SMOKE = ["--configfile", ROOT / "config/sizes/smoke.yaml", "--threads", 1]


def test_profile_writes_a_trace_and_the_slowest_operations(tmp_path, capsys):
    assert call_faze("profile", "--tier", "recompute", *SMOKE, "--steps", 1, "--out", tmp_path / "profile") == 0
    assert (tmp_path / "profile/trace.json.gz").stat().st_size > 10_000
    assert "convolution" in (tmp_path / "profile/operations.txt").read_text() and "1 steps" in capsys.readouterr().out


@pytest.mark.parametrize("limit", [1, 2, 13, 64])
def test_the_search_finds_the_largest_number_that_fits(limit, monkeypatch, capsys):
    tried = []
    monkeypatch.setattr(largest_batch, "fits", lambda number, memory_gib: tried.append(number) or number <= limit)
    assert call_faze("largest-batch", "--tier", "baseline", *SMOKE, "--memory-gib", 1) == 0
    assert f": {limit} samples" in capsys.readouterr().out and len(tried) <= 14
    assert call_faze("largest-batch", "--tier", "baseline", *SMOKE) == 1
    assert "pass --memory-gib" in capsys.readouterr().err


def test_a_trial_reports_its_peak_or_that_the_memory_did_not_suffice():
    found = []
    for samples in (2, 100_000):
        words = ["largest-batch", "--tier", "baseline", *SMOKE, "--memory-gib", 0.3, "--samples", samples]
        command = [sys.executable, "-m", "faze", *map(str, words)]
        found.append(subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout.strip())
    assert 0.001 < float(found[0]) < 0.3 and found[1] == "null"
