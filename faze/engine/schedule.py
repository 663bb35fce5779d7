"""Schedules, counted in pairs: the same for every tier and any number of processes."""


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
