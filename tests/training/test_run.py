"""Conditions that end a run early, and how much of the machine it may use."""

import itertools
import math
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from trajectory import ALONE
from worlds import Apart

from faze.base.errors import UserError
from faze.config.stage_config import Resolved, resolve
from faze.config.validation import read_config
from faze.training import dted_training
from faze.training.loop import Fit, Schedule, Training
from faze.training.resume import Resume

CPU = torch.device("cpu")
NAN, INF = math.nan, math.inf


def config() -> Resolved:
    return Resolved(resolve(read_config(), "train", "baseline", 0))


def train_on(losses: list[float], scales: bool) -> None:
    """Run the loop with a step that returns these losses, in log windows of two steps."""
    given = iter(losses)
    total = 8 * len(losses)
    schedule = Schedule(samples=total, batch=8, log_every=16, validate_every=total, checkpoint_every=8, unit="pairs")

    class Step:
        scalers = (SimpleNamespace(is_enabled=lambda: scales),)
        counts, group_names = staticmethod(dict), ("",)
        set_learning_rates = staticmethod(lambda rates: None)

        def __call__(self, batch: dict, weights: dict) -> dict:
            return {"loss": torch.tensor(next(given))}

    def feed(steps: range) -> Iterator[dict]:
        return itertools.repeat({}, len(steps))

    training = Training(Step(), feed, None, ALONE, schedule, lambda seen: [0.0], lambda seen: {}, dict)
    Fit(training, None, None).run(Resume())


@pytest.mark.parametrize("lost", [NAN, INF])
def test_a_loss_that_is_not_finite_ends_a_training_without_a_scaler(lost):
    """Regression: an infinite loss was accepted."""
    with pytest.raises(UserError, match="the loss is not finite after 16 pairs; lower"):
        train_on([1.0, lost, 1.0, 1.0], False)


def test_a_scaler_does_not_skip_for_ever():
    """It skips at most 19 steps in a row."""
    with pytest.raises(UserError, match=f"after {8 * 22} pairs"):
        train_on([1.0, 1.0, *[NAN] * 24], True)
    train_on([1.0, *[NAN] * 19, 1.0, *[NAN] * 19], True)


def test_what_does_not_divide_is_said_before_strips_are_read(tmp_path):
    """Regression: the store was read before the batch size was checked."""
    absent = tmp_path / "absent.h5"
    with pytest.raises(UserError, match=r"train\.global_batch 16 is not a multiple of 3 processes"):
        dted_training.train(config(), absent, Apart(0, 3, CPU), tmp_path / "checkpoint.pt", tmp_path / "run.jsonl")
