"""Proofs of a workload's tiers: the same experiment passes, and planted cheats fail."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from planted_cheats import (
    broken,
    built,
    chaotic,
    only_in_float32,
    skips_every_tenth_update,
    trains_on_half_the_resolution,
)
from trajectory import tier

from faze.benchmark.proof import STEPS, prove_tiers
from faze.config.parameters import Engine
from faze.engine.parallel import World
from faze.training.loop import Training

SHARED = Path(__file__).resolve().parents[1] / "shared"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes of a proof import the builders."""
    monkeypatch.setenv("PYTHONPATH", str(SHARED))


def proved(build: Callable[[Engine, World], Training], **switches) -> Mapping[str, dict]:
    engines = {"baseline": tier("baseline"), "other": tier("baseline", **switches)}
    return prove_tiers(engines, build, threads=1)


@pytest.mark.parametrize("switches", [{"set_to_none": True, "channels_last": True}, {"optimizer": "fused_sgd"}])
def test_switches_that_change_nothing_pass(switches):
    found = proved(built, **switches)["other"]
    assert "failed" not in found and found["float64"]["distance"] < 1e-12 and found["float32"]["distance"] < 1e-5
    assert {s["switch"]: s["wanted"] for s in found["switches"]}["optimizer"] == switches.get("optimizer", "sgd")


def test_low_precision_is_left_out_in_float64_and_only_rounds_in_float32():
    found = proved(built, precision="bf16", force=True)["other"]
    assert "failed" not in found and found["float64"]["distance"] < 1e-12 < 1e-4 < found["float32"]["distance"]


@pytest.mark.parametrize("cheat", [skips_every_tenth_update, trains_on_half_the_resolution])
def test_a_cheat_fails(cheat):
    found = proved(cheat, set_to_none=True)["other"]
    assert "float64 differ by more than rounding" in found["failed"] and found["float64"]["distance"] > 1e-3
    assert found["float64"]["steps"] == STEPS[0] > 10


def test_as_many_steps_are_compared_as_rounding_leaves_comparable():
    """Low precision gets fewer steps than float32."""
    engines = {
        "baseline": tier("baseline"),
        "fp32": tier("baseline", channels_last=True),
        "bf16": tier("baseline", precision="bf16", force=True),
    }
    found = prove_tiers(engines, chaotic, threads=1)
    assert all("failed" not in proof for proof in found.values())
    steps = [found[tier]["float32"]["steps"] for tier in ("bf16", "fp32")] + [found["fp32"]["float64"]["steps"]]
    assert steps[0] < steps[1] <= steps[2] == STEPS[0]
    assert 0 < found["fp32"]["float32"]["distance"] < found["fp32"]["float32"]["tolerance"] < 0.1


@pytest.mark.parametrize("switches", [{"accumulate": 2}, {"parallel": "ddp", "processes": 2}, {"optimizer": "adamw"}])
def test_another_experiment_is_called_one(switches):
    """BatchNorm normalises parts and the batches of processes on their own; AdamW is another optimiser."""
    assert "weights of" in proved(built, **switches)["other"]["failed"]


def test_a_network_that_needs_float32_is_proved_in_float32():
    found = proved(only_in_float32, set_to_none=True)["other"]
    assert found["not_compared"] == "baseline in float64: this network is float32 only"
    assert "float64" not in found and "failed" not in found and found["float32"]["distance"] < 1e-5


def test_a_tier_that_cannot_run_fails_alone(capfd):
    assert "exited early" in proved(broken, set_to_none=True)["other"]["failed"]
    assert "no such part" in capfd.readouterr().err
