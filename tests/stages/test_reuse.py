"""A tier whose change has no effect here reuses another run, and no other tier does.

`idle` sets cuDNN's search, which no CPU has; `recompute` has an effect everywhere. Checked by breaking the code: a key
with the switches as configured, without the data, or without the code; a control that moves no weight.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import torch
from stage_runs import ROOT, as_words, defaults, write_config

from faze.base.logged_run import read_logged_run
from faze.config.yaml_files import merge
from faze.data.store.strips import PersonStrips, write_strips
from faze.engine.parallel import World
from faze.training.run import RunIdentity, perturb_weight

SMALL = {
    "model": {"growth": 2, "decoder_channels": 2, "z_app": 2, "z_head": 2},
    "loss": {"chunk_pairs": 4},
    "train": {"pairs": 24, "global_batch": 8, "log_every_pairs": 8, "checkpoint_every_pairs": 8},
}
TIERS = {"idle": {"cudnn_benchmark": True}, "recompute": {"recompute": True}}
STORE = "data/gazecapture.h5"
CPU = torch.device("cpu")


def write_people(root: Path, seed: int = 0) -> None:
    """Write strips of three people; the seed determines their pixels, not their labels."""
    labels, pixels = np.random.default_rng(1), np.random.default_rng([seed, 2])
    people = [
        PersonStrips(
            f"{number:05d}",
            split,
            ["f"] * 6,
            pixels.integers(0, 256, (6, 64, 256, 3), dtype=np.uint8),
            labels.normal(0, 0.2, (6, 4)).astype(np.float32),
        )
        for number, split in enumerate(("train", "train", "val"))
    ]
    (root / "data").mkdir(exist_ok=True)
    write_strips(root / STORE, "gazecapture", people)


@pytest.fixture
def trained(tmp_path: Path, run_stage: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return trained(tier, seed, processes), which returns the folder of a run in the ablation at tmp_path."""
    monkeypatch.setenv("FAZE_MACHINE_LOCK", str(tmp_path / "machine.lock"))
    config = merge(defaults(), SMALL)
    config["tiers"] = {"baseline": config["tiers"]["baseline"] | {"device": "cpu"}, **TIERS}
    config["run"]["tiers"] = ["baseline", "idle", "recompute on baseline"]
    write_people(tmp_path)

    def trained(tier: str, seed: int = 0, processes: int = 1, share: bool = True) -> Path:
        run = tmp_path / tier / f"seed{seed}"
        files = {"data": tmp_path / STORE, "out": run / "checkpoint.pt", "run_log": run / "run.jsonl"}
        files |= {"output_cache": tmp_path / "output_cache"} if share else {}
        several = {"tiers": {"baseline": {"parallel": "ddp", "processes": processes}}} if processes > 1 else {}
        of = {"folder": run, "tier": tier, "seed": seed, "config": config}
        if several:  # it becomes torchrun
            of["config"] = write_config(**of, stage="train", overrides=several)
            words = as_words({"config": of["config"]} | files)
            subprocess.run([sys.executable, "-m", "faze", "train", *words], cwd=ROOT, check=True)
        else:
            assert run_stage("train", several, **of, **files) == 0
        return run

    return trained


def donor_of(run: Path) -> str:
    return read_logged_run(run / "run.jsonl").reused_from


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    return torch.load(run / "checkpoint.pt")["model"]


def change(*runs: Path) -> float:
    """Return the largest difference between the weights of two runs."""
    one, other = map(weights_of, runs)
    return max(float((other[name] - value).abs().max()) for name, value in one.items())


def test_what_is_reused_is_what_would_be_trained_and_its_log_is_its_own(trained):
    first, idle = trained("baseline"), trained("idle")
    assert (first / "checkpoint.pt").read_bytes() == (idle / "checkpoint.pt").read_bytes()
    donor, run = (read_logged_run(folder / "run.jsonl") for folder in (first, idle))
    assert (donor.reused_from, run.reused_from) == ("", "baseline")
    assert run.start["tier"] == "idle" and run.start["config"]["engine.cudnn_benchmark"] is True
    assert run.start["time"] > donor.ended and run.ended > run.start["time"]
    assert run.values == donor.values and len(run.values) > 5  # their seconds too
    switches = {switch["switch"]: switch for switch in run.switches}
    assert switches["cudnn_benchmark"]["wanted"] == "true" and switches["cudnn_benchmark"]["reason"]
    assert not (idle / "train.work").exists()
    (idle / "checkpoint.pt").unlink()
    assert not donor_of(trained("idle", share=False)) and change(first, idle) == 0


def test_several_processes_reuse_and_move_a_weight(trained):
    first, taken, rounding = (trained(tier, processes=2) for tier in ("baseline", "idle", "rounding"))
    assert list(map(donor_of, (first, taken, rounding))) == ["", "baseline", ""]
    assert (first / "checkpoint.pt").read_bytes() == (taken / "checkpoint.pt").read_bytes()
    assert 0 < change(first, rounding) < 1e-4


@pytest.mark.parametrize("other", [World(0, 4, CPU), World(0, 2, torch.device("cuda"))], ids=["processes", "device"])
def test_the_key_contains_device_and_number_of_processes(other):
    """With `processes: 0`, the configuration does not contain the number."""
    run = RunIdentity(SimpleNamespace(values={"engine.processes": 0}), "code", (), (), "made-up")
    two, also_two, another = (run.key(world, ["data"]) for world in (World(0, 2, CPU), World(1, 2, CPU), other))
    assert two == also_two != another


def test_what_has_an_effect_is_trained(trained):
    trained("baseline")
    assert not donor_of(trained("recompute"))
    assert not donor_of(trained("idle", seed=1))
    assert donor_of(trained("idle")) == "baseline"
    assert donor_of(trained("baseline", seed=1)) == "idle"  # whichever was first


def other_pixels(root: Path, patch: pytest.MonkeyPatch) -> None:
    write_people(root, seed=1)


def other_pixels_without_checksum(root: Path, patch: pytest.MonkeyPatch) -> None:
    """Change pixels in a store but keep its size and time. Regression: the cache key contained only these two."""
    before = (root / STORE).stat()
    with h5py.File(root / STORE, "r+") as file:
        file["00001/pixels"][0] = 0
    os.utime(root / STORE, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (root / STORE).stat().st_size == before.st_size


def other_code(root: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("faze.base.code_hash.fingerprint", lambda module: "another")


def torn_checkpoint(root: Path, patch: pytest.MonkeyPatch) -> None:
    os.truncate(root / "baseline/seed0/checkpoint.pt", 1000)


def torn_log(root: Path, patch: pytest.MonkeyPatch) -> None:
    os.truncate(root / "baseline/seed0/run.jsonl", 1000)


@pytest.mark.parametrize("harm", [other_pixels, other_pixels_without_checksum, other_code, torn_checkpoint, torn_log])
def test_another_experiment_or_a_torn_donor_is_not_reused(harm, trained, tmp_path, monkeypatch):
    if harm is other_pixels_without_checksum:
        with h5py.File(tmp_path / STORE, "r+") as file:
            del file["00001"].attrs["checksum"]
    trained("baseline")
    harm(tmp_path, monkeypatch)
    assert not donor_of(trained("idle"))


def test_the_same_people_written_again_are_the_same_experiment(trained, tmp_path):
    """Regression: the cache key contained a store's time, so `idle` was trained again after the clock had jumped."""
    trained("baseline")
    write_people(tmp_path)
    assert donor_of(trained("idle"))


def test_noise_controls_are_trainings_of_the_baseline_that_noise_alone_changes(trained):
    """Regression: the change to a weight of the codes' layer was lost in rounding, so the run equalled the baseline."""
    runs = baseline, rounding, other = [trained(tier) for tier in ("baseline", "rounding", "seed")]
    assert not any(map(donor_of, runs))
    configs = [read_logged_run(run / "run.jsonl").start["config"] for run in runs]
    differ = [{key for key, value in config.items() if configs[0][key] != value} for config in configs[1:]]
    assert differ == [{"tier", "control"}, {"tier", "control", "seed"}]
    assert 0 < change(baseline, rounding) < 1e-4 < change(baseline, other)  # three steps: rounding has hardly grown
    weight = torch.tensor([[0.5, -2.0], [1.0, 1e-6]])
    perturb_weight(weight)
    assert weight[0, 1] == torch.nextafter(torch.tensor(-2.0), torch.tensor(0.0))  # the largest
    before, after = weights_of(baseline), weights_of(rounding)
    assert sum(not torch.equal(after[name], value) for name, value in before.items()) > len(before) / 2
