"""Schedules, counted in pairs: the same for every tier and any number of processes."""

import math


def ramp(pairs: int, ramp_pairs: int, global_batch: int) -> float:
    """Share of a linear ramp that is climbed after `pairs` pairs, 0..1.

    The ramp is cut to whole steps, as in the released code: int(ramp_pairs / global_batch) of them.
    """
    steps = ramp_pairs // global_batch
    return min(pairs // global_batch / steps, 1.0) if steps else 1.0


def learning_rate(pairs: int, *, base_lr: float, global_batch: int, warmup_pairs: int) -> float:
    """Linear warm-up from base_lr to base_lr x global_batch, then constant (Goyal et al. 2017; paper, appendix B)."""
    peak = base_lr * global_batch
    return base_lr + (peak - base_lr) * ramp(pairs, warmup_pairs, global_batch)


def decay(pairs: int, total_pairs: int, share: float) -> float:
    """Factor on the learning rate: a half cosine from 1 to 0 over the last `share` of the training; 1 for share 0."""
    if not share:
        return 1.0
    fallen = max(0.0, 1.0 - (1.0 - pairs / total_pairs) / share)
    return 0.5 * (1.0 + math.cos(math.pi * fallen))
