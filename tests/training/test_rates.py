"""The rates of network and gaze head, by hand, and which of them a log shows."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from trajectory import setup, tier

from faze.config.check import build
from faze.config.parameters import Train
from faze.config.yaml_files import read_yaml
from faze.training import loop
from faze.training.log_window import LogWindow
from faze.training.loop import learning_rates

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


def test_both_rates_decay_alike() -> None:
    """Constant up to the half, then both fall by the same factor."""
    assert learning_rates(0, TRAIN) == pytest.approx([0.01, 0.5])
    network, head = learning_rates(900, TRAIN)
    assert network < 0.01 and network / 0.01 == pytest.approx(head / 0.5)


def test_the_heads_rate_is_not_warmed_up() -> None:
    warmed = dataclasses.replace(TRAIN, warmup_pairs=100, lr_scaling="linear")
    assert learning_rates(0, warmed) == pytest.approx([0.01, 0.5])
    assert learning_rates(100, warmed) == pytest.approx([0.1, 0.5])


def test_a_log_shows_the_networks_rate_of_the_step_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "learning_rates", lambda pairs, train: [pairs, -1.0])
    told: list[tuple[int, float]] = []
    log = SimpleNamespace(metrics=lambda step, values: told.append((step, values["train/lr"])))
    chosen = setup(tier("baseline"))
    plan = {"pairs": 24, "log_every_pairs": 8, "validate_every_pairs": 1000, "checkpoint_every_pairs": 1000}
    chosen = dataclasses.replace(chosen, train=dataclasses.replace(chosen.train, **plan))
    scaler = SimpleNamespace(is_enabled=lambda: False, counts=dict)
    step = SimpleNamespace(scaler=scaler)
    fit = loop.Fit(chosen, step, None, None, None, log)
    for number in (1, 2):
        window = LogWindow()
        window.add({"loss": torch.tensor(1.0)})
        fit._tell(number, 3, window)
    assert [rate for _, rate in told] == [0, 8]
