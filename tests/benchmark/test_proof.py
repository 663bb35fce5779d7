"""Proofs by the stage `prove`: the same experiment passes, and planted cheats fail."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from stage_runs import call_stage

from faze.benchmark.proof import STEPS

SHARED = Path(__file__).resolve().parents[1] / "shared"
HONEST = {
    "set_to_none": {"set_to_none": True, "channels_last": True},
    "fused_sgd": {"optimizer": "fused_sgd"},
    "bf16": {"precision": "bf16", "force": True},
}
CHEATS = ["never_moves", "keeps_the_first_rate", "skips_every_tenth_update", "trains_on_half_the_resolution"]
CHEATS += ["rounds_to_bf16", "repeats_a_batch", "loses_a_gradient", "adds_up_parts"]
# BatchNorm normalises the parts of a batch, and the batches of processes, on their own.
OTHERS = {"accumulate": {"accumulate": 2}, "ddp": {"parallel": "ddp", "processes": 2}, "adamw": {"optimizer": "adamw"}}


def proved(folder: Path, kind: str, tiers: Mapping[str, dict]) -> dict[str, dict]:
    """Prove the tiers of a class in tests/shared/planted_cheats.py; each builds on the baseline."""
    own = {tier: {"on": "baseline", **switches} for tier, switches in tiers.items()}
    changes = {
        "workload": f"planted_cheats:{kind}",
        "run": {"tiers": ["baseline", *tiers], "controls": []},
        "tiers": {"baseline": {"device": "cpu"}} | own,
    }
    out = folder / "proofs.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SHARED))
        assert call_stage("prove", folder, changes, out=out, threads=1) == 0
    assert not list(folder.glob("proofs-*"))
    return json.loads(out.read_text())


@pytest.fixture(scope="module")
def proofs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    same = dict.fromkeys([*CHEATS, "cannot_run"], {"set_to_none": True})
    return proved(tmp_path_factory.mktemp("cheats"), "Cheats", HONEST | same | OTHERS)


def format_of(proof: Mapping, name: str) -> dict:
    return next(row for row in proof["formats"] if row["format"] == name)


@pytest.mark.parametrize("tier", HONEST)
def test_the_same_experiment_passes(tier: str, proofs) -> None:
    proof = proofs[tier]
    assert "failed" not in proof and proof["number"] <= 1
    assert [row["format"] for row in proof["formats"]] == ["float64", "bf16" if tier == "bf16" else "fp32"]
    assert format_of(proof, "float64")["distance"] < 1e-12 and format_of(proof, "float64")["steps"] == STEPS[0]
    assert proof["number"] == max(row["distance"] / row["tolerance"] for row in proof["formats"])


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_is_a_million_times_beyond_the_tolerance(cheat: str, proofs) -> None:
    assert proofs[cheat]["number"] > 1e6 and "float64" in proofs[cheat]["failed"]


@pytest.mark.parametrize("tier", OTHERS)
def test_another_experiment_is_called_one(tier: str, proofs) -> None:
    assert proofs[tier]["number"] > 1e6 and "weights of" in proofs[tier]["failed"]


def test_a_tier_that_cannot_run_fails_alone(proofs) -> None:
    assert proofs["cannot_run"] == {"number": None, "failed": "cannot_run: no such part", "formats": []}


def test_as_many_steps_are_compared_as_rounding_leaves_comparable(tmp_path: Path) -> None:
    """Low precision gets fewer steps than float32."""
    tiers = {"channels_last": {"channels_last": True}, "bf16": HONEST["bf16"]}
    found = proved(tmp_path, "Chaotic", tiers)
    assert all("failed" not in proof for proof in found.values())
    own, low = format_of(found["channels_last"], "fp32"), format_of(found["bf16"], "bf16")
    assert low["steps"] < own["steps"] <= format_of(found["bf16"], "float64")["steps"] == STEPS[0]
    assert 0 < own["distance"] < own["tolerance"] < 0.1


def test_a_network_that_needs_float32_is_proved_in_float32(tmp_path: Path) -> None:
    [proof] = proved(tmp_path, "OnlyInFloat32", {"set_to_none": {"set_to_none": True}}).values()
    assert proof["not_compared"] == "float64: this network is float32 only"
    assert "failed" not in proof and [row["format"] for row in proof["formats"]] == ["fp32"]
