"""Commands that measure one tier: profile, largest-batch."""

import pytest
from stage_runs import ROOT, call_faze

from faze.commands import largest_batch

SMOKE = ["--configfile", ROOT / "config/sizes/smoke.yaml", "--threads", 1]


def test_profile_writes_a_trace_and_the_slowest_operations(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call_faze("profile", "--tier", "recompute", *SMOKE) == 0
    [out] = tmp_path.glob("results/smoke/profile/recompute")
    assert (out / "trace.json.gz").stat().st_size > 10_000
    assert "convolution" in (out / "operations.txt").read_text()


@pytest.mark.parametrize("limit", [1, 2, 13, 64])
def test_the_search_finds_the_largest_number_that_fits(limit, monkeypatch, capsys):
    tried = []
    monkeypatch.setattr(largest_batch, "fits", lambda *words: tried.append(words[-1]) or words[-1] <= limit)
    assert call_faze("largest-batch", "--tier", "baseline", *SMOKE, "--memory-gib", 1) == 0
    assert f": {limit} samples" in capsys.readouterr().out and len(tried) <= 14
    assert call_faze("largest-batch", "--tier", "baseline", *SMOKE) == 1
    assert "pass --memory-gib" in capsys.readouterr().err


def test_a_trial_reports_its_peak_or_that_the_memory_did_not_suffice(capsys):
    assert [largest_batch.fits("baseline", SMOKE[1:2], 0.3, 1, samples) for samples in (2, 100_000)] == [True, False]
    peak, failure = capsys.readouterr().err.splitlines()
    assert 0.001 < float(peak.split()[2]) < 0.3 and failure == "100000 samples: out of memory"
