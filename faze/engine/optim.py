"""Optimisers, plain and fused SGD and those for large batches, and the clipping of long gradients."""

import functools
import importlib.util
from collections.abc import Callable, Iterable

import torch

from faze.engine.switches import Switch

LARGE_BATCH = ("lamb", "lars", "novograd")


def build_optimizer(
    name: str,
    groups: Iterable[dict],
    *,
    momentum: float,
    weight_decay: float,
    foreach: bool,
    device: torch.device,
) -> tuple[torch.optim.Optimizer, Switch]:
    """Make an optimiser over parameter groups (each with its own `lr`).

    `sgd` and `fused_sgd` compute the same update, SGD with Nesterov momentum, in more or fewer kernels. The others
    compute another one; where such a one is not installed, the tier is trained with SGD and marked inactive.
    """
    groups = list(groups)
    if name == "adamw":
        optimizer = torch.optim.AdamW(groups, weight_decay=weight_decay, fused=True)
        return optimizer, Switch("optimizer", name, "torch AdamW, fused")
    if name in LARGE_BATCH and (make := _large_batch(name, momentum)):
        return make(groups, weight_decay=weight_decay), Switch("optimizer", name, f"pytorch-optimizer {name}")
    settings = {"momentum": momentum, "nesterov": momentum > 0, "weight_decay": weight_decay}
    if name == "fused_sgd":
        return _fused_sgd(groups, settings, device)
    if name not in ("sgd", *LARGE_BATCH):
        raise NotImplementedError(f"engine.optimizer {name}")
    reason = "pip install pytorch-optimizer brings it; trained with SGD" if name in LARGE_BATCH else ""
    optimizer = torch.optim.SGD(groups, **settings, foreach=foreach, fused=False)
    return optimizer, Switch("optimizer", name, f"torch SGD, {'foreach' if foreach else 'for loop'}", reason)


def _fused_sgd(groups: list[dict], settings: dict, device: torch.device) -> tuple[torch.optim.Optimizer, Switch]:
    fault = ""
    if device.type == "cuda" and _apex_has_optimizers():
        fault = _apex_fault(groups[0]["params"][0], settings)
        if not fault:
            from apex.optimizers import FusedSGD

            return FusedSGD(groups, **settings), Switch("optimizer", "fused_sgd", "apex FusedSGD")
    optimizer = torch.optim.SGD(groups, **settings, fused=True)
    _start_momentum(optimizer)
    return optimizer, Switch("optimizer", "fused_sgd", "torch SGD, fused" + (f"; apex {fault}" if fault else ""))


def _apex_fault(parameter: torch.Tensor, settings: dict) -> str:
    """Say what is wrong with apex's FusedSGD, which does a step on a weight like this one; nothing if it is SGD's.

    Its kernels are found only when they run, and built for one torch and one kind of GPU; it leaves weights in float64
    where they are.
    """
    ones = torch.ones(1, dtype=parameter.dtype, device=parameter.device)

    def step(make: Callable[..., torch.optim.Optimizer]) -> float:
        weight = torch.nn.Parameter(ones.clone())
        weight.grad = ones.clone()
        make([weight], lr=0.25, **settings).step()
        return weight.item()

    try:
        from apex.optimizers import FusedSGD

        found = step(FusedSGD)
    except Exception as error:  # whatever a build for another torch, driver or GPU ends in
        reason = str(error).strip().split("\n")[0]
        return f"failed at a trial step: {type(error).__name__}{f', {reason}' if reason else ''}"
    wanted = step(torch.optim.SGD)
    return (
        "" if abs(found - wanted) <= 1e-6 * abs(wanted) else f"does another step than SGD ({found:g}, not {wanted:g})"
    )


def _large_batch(name: str, momentum: float) -> Callable[..., torch.optim.Optimizer] | None:
    """Find LAMB (You et al. 2020), LARS (You et al. 2017) or NovoGrad (Ginsburg et al. 2019); None if not installed.

    Of one package on every device, not of apex on some: details differ (apex's LAMB clips gradients by itself), and the
    same tier would be another experiment on another machine.
    """
    if importlib.util.find_spec("pytorch_optimizer") is None:
        return None
    import pytorch_optimizer as package

    return {
        # Weight decay inside the trust ratio and no correction of the step, as in the paper's third version.
        "lamb": functools.partial(package.Lamb, weight_decouple=False, adam_debias=True),
        "lars": functools.partial(package.LARS, momentum=momentum, nesterov=momentum > 0),
        "novograd": package.NovoGrad,
    }[name]


def build_clip(
    clip_norm: float, *, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler, foreach: bool
) -> Callable[[], None]:
    """Make the function that shortens the whole gradient to a length of clip_norm; 0 leaves it as it is.

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
    """Start momentum from zeros, which gives the same first step.

    The fused kernel makes its buffers of whatever lies in memory and fills them in the first step; if a loss scaler
    skips that step, the second takes what lay there for momentum.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"] if group["momentum"] else ():
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


def _apex_has_optimizers() -> bool:
    # The registry's package of the same name is another project and has no `optimizers`.
    return importlib.util.find_spec("apex") is not None and importlib.util.find_spec("apex.optimizers") is not None
