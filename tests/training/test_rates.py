"""Learning rates and ramps compared with the released schedules and hand-computed values; the logged rate."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from faze.config.check import build
from faze.config.parameters import Train
from faze.config.yaml_files import read_yaml
from faze.engine.parallel import World
from faze.training.dted_training import decay, learning_rate, learning_rates, ramp
from faze.training.loop import Fit, LogWindow, Schedule, Training

ROOT = Path(__file__).resolve().parents[2]
TRAIN = dataclasses.replace(
    build(Train, read_yaml(ROOT / "config/config.yaml")["train"]),
    pairs=1000,
    global_batch=10,
    base_lr=0.01,
    head_lr=0.5,
    warmup_pairs=0,
    decay_share=0.5,
    lr_scaling="none",
)


@pytest.mark.parametrize("name", ["bash_8gpu_b64", "paper_b1536", "single_b128", "single_b64"])
def test_schedules_equal_the_released_ones(numbers, name: str) -> None:
    misc = numbers("misc")
    base_lr, batch, devices, warmup, *_, weight, ramp_pairs = misc[f"sched/{name}/params"]
    size = int(batch * devices)
    plan = {"base_lr": base_lr, "global_batch": size, "warmup_pairs": int(warmup), "lr_scaling": "linear"}
    steps, train = misc[f"sched/{name}/steps"], dataclasses.replace(TRAIN, **plan)
    rates = [learning_rate(int(step) * size, train) for step in steps]
    weights = [weight * ramp(int(step) * size, int(ramp_pairs), size) for step in steps]
    np.testing.assert_allclose(rates, misc[f"sched/{name}/lr"], rtol=1e-12)
    np.testing.assert_allclose(weights, misc[f"sched/{name}/embed_weight"], rtol=1e-12)


def test_ramp_shorter_than_a_batch_is_1_from_the_start() -> None:
    assert ramp(0, 0, 16) == ramp(0, 15, 16) == 1.0
    assert [ramp(pairs, 47, 16) for pairs in (0, 16, 32)] == [0.0, 0.5, 1.0]  # of two whole steps


def test_decay_is_a_half_cosine_at_the_end() -> None:
    found = [decay(pairs, 1000, 0.2) for pairs in (0, 800, 850, 900, 1000)]
    assert found == pytest.approx([1.0, 1.0, (1 + 0.5**0.5) / 2, 0.5, 0.0])
    assert decay(999, 1000, 0.0) == 1.0


@pytest.mark.parametrize(("scaling", "peak"), [("linear", 0.5 * 64), ("sqrt", 0.5 * 8), ("none", 0.5)])
def test_peak_follows_the_global_batch(scaling: str, peak: float) -> None:
    plan = {"base_lr": 0.5, "global_batch": 64, "warmup_pairs": 640, "lr_scaling": scaling}
    rates = [learning_rate(pairs, dataclasses.replace(TRAIN, **plan)) for pairs in (0, 320, 640)]
    assert rates == pytest.approx([0.5, (0.5 + peak) / 2, peak])


PARTS = ["encoder", "decoder", "gaze_head"]


def test_all_rates_decay_alike() -> None:
    """Rates are constant for the first half, then all fall by the same factor."""
    assert learning_rates(0, TRAIN, PARTS) == learning_rates(500, TRAIN, PARTS) == pytest.approx([0.01, 0.01, 0.5])
    factor = (1 - np.cos(np.pi / 5)) / 2
    assert learning_rates(900, TRAIN, PARTS) == pytest.approx([0.01 * factor, 0.01 * factor, 0.5 * factor])


def test_parts_have_factors_of_the_networks_rate() -> None:
    train = dataclasses.replace(TRAIN, encoder_lr_factor=0.1, decoder_lr_factor=3.0)
    assert learning_rates(0, train, PARTS) == pytest.approx([0.001, 0.03, 0.5])
    assert learning_rates(0, train, ["gaze_head", "decoder"]) == pytest.approx([0.5, 0.03])  # a frozen encoder


def test_the_heads_rate_is_not_warmed_up() -> None:
    warmed = dataclasses.replace(TRAIN, warmup_pairs=100, lr_scaling="linear")
    assert learning_rates(0, warmed, PARTS[1:]) == pytest.approx([0.01, 0.5])
    assert learning_rates(50, warmed, PARTS[1:]) == pytest.approx([0.055, 0.5])
    assert learning_rates(100, warmed, PARTS[1:]) == pytest.approx([0.1, 0.5])


def test_a_log_shows_all_rates_of_the_step_before() -> None:
    names, keys = ["encoder", "head"], ["train/lr/encoder", "train/lr/head"]
    told: list[tuple[int, list[float]]] = []
    log = SimpleNamespace(metrics=lambda step, values: told.append((step, [values[key] for key in keys])))
    schedule = Schedule(samples=24, batch=8, log_every=8, validate_every=1000, checkpoint_every=1000)
    step, alone = SimpleNamespace(counts=dict, group_names=names), World(0, 1, torch.device("cpu"))
    training = Training(step, None, None, alone, schedule, lambda seen: [seen, -1.0], lambda seen: {}, dict)
    fit = Fit(training, None, log)
    for number in (1, 2):
        window = LogWindow()
        window.add({"loss": torch.tensor(1.0)})
        fit._report(number, window)
    assert told == [(8, [0, -1.0]), (16, [8, -1.0])]
