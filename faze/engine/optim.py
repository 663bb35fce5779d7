"""Optimisers, plain SGD and the fused one of apex or torch itself, and the clipping of long gradients."""

import importlib.util
from collections.abc import Callable, Iterable

import torch

from faze.engine.switches import Switch


def build_optimizer(
    name: str,
    groups: Iterable[dict],
    *,
    momentum: float,
    weight_decay: float,
    foreach: bool,
    device: torch.device,
) -> tuple[torch.optim.Optimizer, Switch]:
    """Make SGD with Nesterov momentum over parameter groups (each with its own `lr`).

    Every variant computes the same update; they differ in how many kernels it takes.
    """
    settings = {"momentum": momentum, "nesterov": momentum > 0, "weight_decay": weight_decay}
    if name == "sgd":
        optimizer = torch.optim.SGD(groups, **settings, foreach=foreach, fused=False)
        return optimizer, Switch("optimizer", name, f"torch SGD, {'foreach' if foreach else 'for loop'}")
    if device.type == "cuda" and _apex_has_optimizers():
        from apex.optimizers import FusedSGD

        return FusedSGD(groups, **settings), Switch("optimizer", name, "apex FusedSGD")
    optimizer = torch.optim.SGD(groups, **settings, fused=True)
    _start_momentum(optimizer)
    return optimizer, Switch("optimizer", name, "torch SGD, fused")


def build_clip(
    clip_norm: float, *, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler, foreach: bool
) -> Callable[[], None]:
    """Make what shortens the gradient of all parameters together to a length of clip_norm; 0 leaves it as it is.

    Call it between backward and step, on averaged gradients: every process then finds the same length.
    """
    if not clip_norm:
        return lambda: None
    parameters = [p for group in optimizer.param_groups for p in group["params"]]

    def clip() -> None:
        scaler.unscale_(optimizer)  # a scaler that is off passes; one that finds an overflow still skips the step
        torch.nn.utils.clip_grad_norm_(parameters, clip_norm, foreach=foreach)

    return clip


def _start_momentum(optimizer: torch.optim.Optimizer) -> None:
    """Start from zeros, which gives the same first step.

    The fused kernel makes its buffers of whatever lies in memory and fills them in the first step; if a loss scaler
    skips that step, the second takes what lay there for momentum.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"] if group["momentum"] else ():
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


def _apex_has_optimizers() -> bool:
    # The registry's package of the same name is another project and has no `optimizers`.
    return importlib.util.find_spec("apex") is not None and importlib.util.find_spec("apex.optimizers") is not None
