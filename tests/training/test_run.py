"""Conditions that end a run early, and how much of the machine it may use."""

import itertools
import math
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from trajectory import ALONE
from worlds import Apart

from faze.base.errors import UserError
from faze.config.stage_config import Resolved, build_config, resolve
from faze.config.yaml_files import DEFAULTS, read_yaml
from faze.data.store.strips import PersonStrips, write_strips
from faze.training import dted_training
from faze.training.loop import Fit, LogWindow, Schedule, Training
from faze.training.resume import Resume

CPU = torch.device("cpu")
NAN, INF = math.nan, math.inf


def config() -> Resolved:
    return build_config(resolve(read_yaml(DEFAULTS), "train", "baseline", 0), "train", DEFAULTS)


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


def test_a_scaler_that_skips_an_overflow_goes_on():
    """Regression: the first overflow ended the run, although the scaler skips such steps."""
    train_on([1.0, NAN, 1.0, INF, NAN, 1.0], True)


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


def test_processes_of_one_machine_share_memory_gib(tmp_path, monkeypatch):
    """Regression: each process used the whole budget, once for train people and once for val people."""

    def stop(groups: list, memory_gib: float, processes: int) -> None:
        raise UserError(f"{len(groups)} groups, {memory_gib} GiB for {processes}")

    strips = {"pixels": np.zeros((2, 64, 256, 3), np.uint8), "labels": np.zeros((2, 4), np.float32)}
    people = [PersonStrips(split, split, ["f"] * 2, **strips) for split in ("train", "val")]
    write_strips(tmp_path / "strips.h5", "made-up", people)
    monkeypatch.setattr(dted_training, "cache_what_fits", stop)
    for here in ("2", "1"):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", here)
        with pytest.raises(UserError, match=rf"2 groups, 4\.0 GiB for {here}"):
            dted_training.train(
                config(), tmp_path / "strips.h5", Apart(0, 2, CPU), tmp_path / "out.pt", tmp_path / "run.jsonl"
            )


def test_steps_lost_in_a_row_are_counted_across_a_checkpoint():
    """Regression: a checkpoint written at a log line lost the count."""
    window = LogWindow()
    window.add({"loss": torch.tensor(NAN)})
    window.flush(ALONE, Schedule(8, 8, 8, 8, 8))
    resumed = LogWindow.resumed(window.state(ALONE), ALONE)
    resumed.add({"loss": torch.tensor(NAN)})
    assert float(resumed.lost) == 2 and resumed.steps == 1
    assert LogWindow().state(ALONE) == {}
