"""Clock, memory and intervals of the benchmark, and what it refuses to measure under.

Refusals seen red by breaking the code: each tested mode, a variable and `off` left out; a player that does not ask. The
warm-up that pays off: without the case of no gain, and with the ratio upside down.
"""

import ast
import contextlib
import json
import socket
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats
import torch

from faze.benchmark import Player
from faze.measurement import (
    MemoryPeak,
    PhaseClock,
    pays_off_after_pairs,
    ratio_interval,
    refuse_debugging,
    student_quantile,
)


@pytest.mark.parametrize("freedom", [1, 2, 3, 9, 40, 200])
@pytest.mark.parametrize("p", [0.5, 0.9, 0.975, 0.995])
def test_student_quantile_equals_scipy(p, freedom):
    assert student_quantile(p, freedom) == pytest.approx(scipy.stats.t.ppf(p, freedom), rel=2e-4, abs=1e-6)


def test_ratio_interval_is_the_t_interval_of_the_logs():
    rng = np.random.default_rng(0)
    slow, fast = np.exp(rng.normal(1.0, 0.1, 12)), np.exp(rng.normal(0.0, 0.1, 12))
    found = ratio_interval(slow, fast)
    expected = scipy.stats.ttest_1samp(np.log(slow / fast), 0).confidence_interval(0.95)
    assert found["ratio"] == pytest.approx(scipy.stats.gmean(slow / fast))
    assert (found["low"], found["high"]) == pytest.approx(np.exp([expected.low, expected.high]), rel=1e-3)


def test_drift_that_meets_both_alike_leaves_the_ratio():
    drift = np.linspace(1, 3, 10)
    found = ratio_interval(2.0 * drift, 1.0 * drift)
    assert found["low"] == pytest.approx(2.0) and found["high"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("extra_warmup_s", "saved_s_per_pair", "pairs"),
    [
        (90.0, 0.25, 360.0),
        (90.0, 0.0, None),
        (90.0, -0.1, None),
        (-1.0, 0.1, 0.0),
        (0.0, 0.0, 0.0),
        (-1.0, -0.1, None),  # ahead at first, but never for good
    ],
)
def test_a_longer_warm_up_pays_off_once_faster_steps_have_saved_as_much(extra_warmup_s, saved_s_per_pair, pairs):
    assert pays_off_after_pairs(extra_warmup_s, saved_s_per_pair) == pairs


def test_memory_peak_sees_a_block_that_is_gone_again():
    held = torch.ones(2**22)  # before: not counted
    peak = MemoryPeak(torch.device("cpu"))
    torch.ones(2**24).sum()  # 64 MiB, freed at once
    found = peak.read()["peak_gib"]
    assert 0.06 < found < 0.2
    assert held.sum() > 0


def test_phase_clock_adds_up():
    clock = PhaseClock(torch.device("cpu"))
    for _ in range(2):
        with clock("forward"):
            torch.ones(1000).sum()
    assert set(clock.seconds) == {"forward"} and clock.seconds["forward"] > 0


@contextlib.contextmanager
def traced_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


@contextlib.contextmanager
def traced_python() -> Iterator[None]:
    before = sys.getprofile()
    sys.setprofile(lambda *_: None)
    try:
        yield
    finally:
        sys.setprofile(before)


MODES = {
    "autograd's anomaly mode": lambda: torch.autograd.set_detect_anomaly(True),
    "torch's profiler": torch.profiler.profile,
    "a tracer or profiler of Python": traced_python,
    "tracemalloc": traced_memory,
}


@pytest.fixture
def no_tracer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who runs the tests under coverage or a debugger is not refused."""
    monkeypatch.setattr(sys, "gettrace", lambda: None)


@pytest.mark.usefixtures("no_tracer")
@pytest.mark.parametrize("name", MODES)
def test_each_debugging_mode_is_refused_by_its_name(name: str) -> None:
    refuse_debugging()
    with pytest.raises(ValueError, match=f"switch off {name}$"), MODES[name]():
        refuse_debugging()
    refuse_debugging()


@pytest.mark.usefixtures("no_tracer")
def test_debugging_variables_are_refused_with_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, off in (("CUDA_LAUNCH_BLOCKING", "0"), ("TORCH_DISTRIBUTED_DEBUG", "OFF"), ("PYTHONDEVMODE", "")):
        monkeypatch.setenv(name, off)
    refuse_debugging()
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    with pytest.raises(ValueError, match="off CUDA_LAUNCH_BLOCKING=1, TORCH_DISTRIBUTED_DEBUG=DETAIL$"):
        refuse_debugging()


@pytest.mark.usefixtures("no_tracer")
@pytest.mark.parametrize("do", ["block", "phases"])
def test_a_player_that_debugs_measures_nothing(do: str, tmp_path: Path) -> None:
    steps = []
    player = Player(
        step=SimpleNamespace(switches=(), __call__=steps.append),
        batches=None,
        world=SimpleNamespace(rank=0, size=1, device=torch.device("cpu"), wait=lambda: steps.append("wait")),
        model=None,
        loss=None,
        train=None,
        peak=None,
    )
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "c"))
        server.listen()

        def conduct() -> None:
            connection, _ = server.accept()
            with connection, connection.makefile("rw", encoding="utf-8") as file:
                file.readline()
                file.write(json.dumps({"do": do, "steps": 0}) + "\n")
                file.flush()
                file.readline()

        conductor = threading.Thread(target=conduct, daemon=True)
        conductor.start()
        with pytest.raises(ValueError, match="anomaly mode"), torch.autograd.set_detect_anomaly(True):
            player.play(str(tmp_path / "c"), "baseline")
        conductor.join(timeout=5)
    assert not steps


def test_no_code_of_ours_checks_gradients() -> None:
    """torch.autograd.gradcheck is a call, not a mode: there is nothing to refuse as long as nobody calls it."""
    modules = list((Path(__file__).resolve().parents[2] / "faze").rglob("*.py"))
    names = {
        getattr(node, "attr", getattr(node, "id", getattr(node, "name", None)))
        for path in modules
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert "refuse_debugging" in names  # the search finds names
    assert not names & {"gradcheck", "gradgradcheck"}
