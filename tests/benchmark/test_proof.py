"""Proofs by the stage `prove`: the same experiment passes, and planted cheats fail."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from stage_runs import call_stage

from faze.benchmark.proof import STEPS, is_same_training

SHARED = Path(__file__).resolve().parents[1] / "shared"
BF16 = {"precision": "bf16", "force": True}
HONEST = [{"set_to_none": True, "channels_last": True}, {"optimizer": "fused_sgd"}, {"resident": True}, BF16]
CHEATS = ["never_moves", "keeps_the_first_rate", "skips_every_tenth_update", "trains_on_half_the_resolution"]
CHEATS += ["rounds_to_bf16", "repeats_a_batch", "loses_a_gradient", "adds_up_parts"]
# BatchNorm normalises the parts of a batch, and the batches of processes, on their own.
OTHERS = [{"accumulate": 2}, {"parallel": "ddp", "processes": 2}, {"optimizer": "AdamW"}]


@pytest.fixture
def prove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict]:
    """Return prove(switches, kind): the proof of a tier of a class in tests/shared/planted_cheats.py."""
    monkeypatch.setenv("PYTHONPATH", str(SHARED))

    def run(switches: Mapping[str, object], kind: str = "Cheats", tier: str = "amp") -> dict:
        changes = {
            "workload": f"planted_cheats:{kind}",
            "run": {"tiers": ["baseline", "amp"], "controls": []},
            "tiers": {"baseline": {"device": "cpu"}, "amp": {"precision": None, **switches}},
        }
        out = tmp_path / "amp.json"
        assert call_stage("prove", tmp_path, changes, tier=tier, out=out) == 0
        return json.loads(out.read_text())

    return run


@pytest.mark.parametrize("switches", HONEST, ids=lambda switches: "-".join(switches))
def test_the_same_experiment_passes(switches: dict, prove) -> None:
    proof = prove(switches)
    exact, own = proof["formats"]
    assert "failed" not in proof and proof["number"] == max(exact["number"], own["number"]) <= 1
    assert (exact["format"], exact["steps"], own["format"]) == ("float64", STEPS[0], switches.get("precision", "fp32"))
    assert exact["distance"] < 1e-12 and own["number"] == own["distance"] / own["tolerance"]


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_is_a_million_times_beyond_the_tolerance(cheat: str, prove, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHEAT", cheat)
    proof = prove({"resident": True})
    assert proof["number"] > 1e6 and "float64" in proof["failed"]


@pytest.mark.parametrize("switches", OTHERS, ids=lambda switches: "-".join(switches))
def test_another_experiment_is_called_one(switches: dict, prove) -> None:
    proof = prove(switches)
    assert proof["number"] > 1e6 and "weights of" in proof["failed"]


def test_dropout_is_off_only_where_draws_must_differ(prove) -> None:
    """Regression: dropout and noise were reported as weights that change differently."""
    whole, parts = (prove(switches, "Dropout") for switches in ({"optimizer": "fused_sgd"}, {"accumulate": 2}))
    assert "failed" not in whole | parts and "dropout" not in whole["not_compared"]
    assert parts["not_compared"] == "dropout, which was off"


def test_a_sketch_recognises_the_same_training(prove) -> None:
    kinds = ("Cheats", "Cheats", "Dropout", "OnlyInFloat32")
    first, same, other, none = (prove({}, kind, "baseline")["first_steps"] for kind in kinds)
    assert is_same_training(first, same) and not is_same_training(first, other)
    assert none == [] and not is_same_training(none, none)


def test_rounding_to_float32_is_not_another_experiment(prove) -> None:
    proof = prove({"accumulate": 2}, "InFloat32")
    assert "failed" not in proof and "float64: the network or a loss computes in float32" in proof["not_compared"]


@pytest.mark.parametrize(("switches", "same"), [({"optimizer": "fused_sgd"}, True), ({"accumulate": 2}, False)])
def test_noise_in_a_loss_is_the_same_in_whole_batches_and_named_otherwise(switches, same, prove) -> None:
    assert ("draw them in batch()" not in prove(switches, "Noise").get("failed", "")) == same


@pytest.mark.parametrize("switches", [{}, {"parallel": "ddp", "processes": 2}], ids=["one process", "ddp"])
def test_a_tier_that_cannot_run_does_not_stop_the_workflow(switches, prove, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: errors of other types ended the stage, and those in processes of ddp were not in the proof."""
    monkeypatch.setenv("CHEAT", "cannot_run")
    proof = prove({"resident": True} | switches)
    assert proof["number"] is None and "cannot run: ValueError: no such part" in proof["failed"]
    assert "planted_cheats.py, line" in proof["failed"]


def test_as_many_steps_are_compared_as_rounding_leaves_comparable(prove) -> None:
    """Low precision gets fewer steps than float32."""
    exact, own = prove({"channels_last": True}, "Chaotic")["formats"]
    _, low = prove(BF16, "Chaotic")["formats"]
    assert low["steps"] < own["steps"] <= exact["steps"] == STEPS[0]
    assert max(exact["number"], own["number"], low["number"]) <= 1 and 0 < own["distance"] < own["tolerance"] < 0.1


def test_a_network_that_needs_float32_is_proved_in_float32(prove) -> None:
    proof = prove({"set_to_none": True}, "OnlyInFloat32")
    assert proof["not_compared"].startswith("float64: RuntimeError: this network is float32 only (")
    assert "failed" not in proof and [row["format"] for row in proof["formats"]] == ["fp32"]
