"""Each switch of precision, parallel, optimiser and memory, alone and together, against the baseline of the tier tests.

Seen red once by breaking the code: processes that train apart when gradients are bucket views, or with a static graph;
checkpoints that cut the gradient, do not enter the lists of operations again, or are not made; an operation left out of
a list; lists outside autocast, or acting with recompute; parts not averaged; the fallback of an optimiser without
momentum.
"""

import dataclasses

import numpy as np
import pytest
import torch
from trajectory import LOSS, STEPS, TRAIN, losses, people, setup, tier
from worlds import Apart

from faze.engine import optim
from faze.training.feed import build_feed
from faze.training.loop import bare_model, build_step, loss_weights

EVERY_OPERATION = ("conv", "conv_transpose", "linear", "instance_norm", "leaky_relu", "relu", "avg_pool", "mean")


DDP_OPTIONS = [
    {"bucket_mib": 0.02},
    {"bucket_mib": 0.02, "accumulate": 2, "set_to_none": True, "checkpointing": True},
]


@pytest.mark.parametrize("switches", DDP_OPTIONS)
def test_ddp_option_with_two_processes_gives_the_baseline(switches, baseline_float64):
    found = losses(tier("ddp", **switches), steps=STEPS, dtype=torch.float64, processes=2)
    np.testing.assert_allclose(found, baseline_float64, rtol=1e-10)


def test_checkpointing_gives_the_baseline(baseline_float64, baseline_float32):
    engine = tier("baseline", checkpointing=True)
    np.testing.assert_allclose(losses(engine, steps=STEPS, dtype=torch.float64), baseline_float64, rtol=1e-12)
    np.testing.assert_allclose(losses(engine, steps=5, dtype=torch.float32), baseline_float32, rtol=1e-6)


def test_checkpointing_in_parts_gives_the_baseline(baseline_float64):
    found = losses(tier("baseline", checkpointing=True, accumulate=4), steps=STEPS, dtype=torch.float64)
    np.testing.assert_allclose(found, baseline_float64, rtol=1e-10)


def test_checkpointing_keeps_less():
    assert kept_bytes(checkpointing=True) < 0.3 * kept_bytes(checkpointing=False)


def kept_bytes(**switches) -> int:
    """What the forward pass keeps for the backward pass, outside of checkpointed parts: they keep their inputs."""
    step, batch = step_and_batch(**switches)
    kept: dict[int, int] = {}

    def pack(value: torch.Tensor) -> torch.Tensor:
        kept[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        return value

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        step.model(batch)
    return sum(kept.values())


def step_and_batch(**switches):
    chosen = setup(tier("baseline", **switches))
    return build_step(chosen), next(build_feed(people(), chosen)([0]))


BF16 = {"precision": "bf16", "force": True}


@pytest.mark.parametrize("lists", [{}, {"keep_fp32": ("instance_norm", "mean"), "force_low": ("avg_pool",)}])
def test_checkpointing_computes_again_in_the_same_precision(lists):
    plain = losses(tier("baseline", **BF16, **lists), steps=3, dtype=torch.float32)
    assert losses(tier("baseline", **BF16, **lists, checkpointing=True), steps=3, dtype=torch.float32) == plain


def test_all_operations_kept_out_of_low_precision_are_the_baseline(baseline_float32):
    found = losses(tier("baseline", **BF16, keep_fp32=EVERY_OPERATION), steps=5, dtype=torch.float32)
    np.testing.assert_allclose(found, baseline_float32, rtol=1e-6)


def test_lists_change_what_autocast_computes():
    plain, kept, forced = (
        losses(tier("baseline", **BF16, **lists), steps=1, dtype=torch.float32)
        for lists in ({}, {"keep_fp32": ("conv",)}, {"force_low": ("mean", "avg_pool")})
    )
    assert plain != kept
    assert forced == pytest.approx(plain, rel=2e-2)


@pytest.mark.parametrize("lists", [{"keep_fp32": ("conv",)}, {"force_low": ("mean",)}])
def test_lists_are_inactive_where_they_cannot_reach(lists, baseline_float32):
    [name] = lists
    for switches, words in (({}, "no operation"), ({**BF16, "recompute": True}, "recompute layers")):
        step, _ = step_and_batch(**lists, **switches)
        [switch] = [s for s in step.switches if s.switch == name]
        assert not switch.active and words in switch.reason and switch.acted == "none"
    assert losses(tier("baseline", **lists), steps=5, dtype=torch.float32) == baseline_float32


@pytest.mark.parametrize(("operation", "acts"), [("instance_norm", False), ("conv", True)])
def test_lists_do_not_reach_into_the_fused_norm(operation, acts):
    step, _ = step_and_batch(keep_fp32=(operation,), fused_norm=True, **BF16)
    [switch] = [s for s in step.switches if s.switch == "keep_fp32"]
    assert switch.active == acts and ("fused_norm" in switch.reason) != acts


def test_accumulated_parts_are_the_step_of_as_many_processes():
    """8 parts of 4 pairs on one device = the mean gradient of 8 processes of one chunk: 8 x 256 = 2048, scaled down."""
    loss, train = dataclasses.replace(LOSS, chunk_pairs=4), dataclasses.replace(TRAIN, global_batch=32)
    torch.set_default_dtype(torch.float64)
    try:
        one = build_step(setup(tier("baseline", accumulate=8), loss=loss, train=train))
        many = build_step(setup(tier("baseline"), loss=loss, train=train))
        weights = loss_weights(10 * train.global_batch, loss, train.global_batch)

        def share(rank: int, processes: int) -> dict[str, torch.Tensor]:
            world = Apart(rank, processes, torch.device("cpu"))
            return next(build_feed(people(), setup(tier("baseline"), world, train=train))([0]))

        one.set_learning_rates([0.01, 0.01])
        many.set_learning_rates([0.01, 0.01])
        total = 0.0
        for rank in range(8):  # what DistributedDataParallel exchanges: gradients of each share's loss, averaged
            terms = many.model(share(rank, 8))
            part = sum(weights[name] * term for name, term in terms.items()) / 8
            part.backward()
            total += part.item()
        many.clip()
        many.optimizer.step()
        assert one(share(0, 1), weights)["loss"].item() == pytest.approx(total, rel=1e-12)
        for a, b in zip(bare_model(one).parameters(), bare_model(many).parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-14)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("optimizer", ["adamw", "lamb", "lars", "novograd"])
def test_other_optimisers_train(optimizer, baseline_float32):
    """They are another experiment: only their own formula, in tests/engine/test_optimizers.py, is theirs to match."""
    if optimizer != "adamw":
        pytest.importorskip("pytorch_optimizer")
    found = losses(tier("baseline", optimizer=optimizer), steps=3, dtype=torch.float32)
    assert found[0] == pytest.approx(baseline_float32[0], rel=1e-6)
    assert np.isfinite(found).all() and found[1:] != baseline_float32[1:3]


def test_optimiser_that_is_not_installed_trains_as_the_baseline(monkeypatch, baseline_float32):
    monkeypatch.setattr(optim.importlib.util, "find_spec", lambda name: None)
    assert losses(tier("baseline", optimizer="lamb"), steps=5, dtype=torch.float32) == baseline_float32
