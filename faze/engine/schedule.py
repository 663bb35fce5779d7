"""Schedules, counted in pairs: the same for every tier and any number of processes."""

import math


def ramp(pairs: int, ramp_pairs: int, global_batch: int) -> float:
    """Give the share of a linear ramp that is climbed after `pairs` pairs, 0..1.

    The ramp is cut to whole steps, as in the released code: int(ramp_pairs / global_batch) of them.
    """
    steps = ramp_pairs // global_batch
    return min(pairs // global_batch / steps, 1.0) if steps else 1.0


def learning_rate(pairs: int, *, base_lr: float, global_batch: int, warmup_pairs: int, scaling: str) -> float:
    """Warm up linearly from base_lr to the peak, and stay there (Goyal et al. 2017; paper, appendix B).

    Args:
        pairs: seen so far.
        base_lr: the rate of a batch of one pair.
        global_batch: pairs of a step.
        warmup_pairs: length of the warm-up.
        scaling: how the peak follows the global batch. linear: a step of k pairs goes as far as k steps of one (Goyal
            et al. 2017, arXiv 1706.02677). sqrt: the variance of a step stays (Krizhevsky 2014, arXiv 1404.5997;
            Hoffer et al. 2017, arXiv 1705.08741). none: the peak is base_lr.
    """
    peak = base_lr * {"linear": global_batch, "sqrt": math.sqrt(global_batch), "none": 1}[scaling]
    return base_lr + (peak - base_lr) * ramp(pairs, warmup_pairs, global_batch)


def decay(pairs: int, total_pairs: int, share: float) -> float:
    """Give the factor on the learning rate: a half cosine from 1 to 0 over the last `share` of a training."""
    if not share:
        return 1.0
    fallen = max(0.0, 1.0 - (1.0 - pairs / total_pairs) / share)
    return 0.5 * (1.0 + math.cos(math.pi * fallen))
