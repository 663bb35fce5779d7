"""Optimisers, including fused SGD and optimisers for large batches, and gradient clipping."""

import functools
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec

import torch

from faze.config.parameters import Engine, Train
from faze.engine.precision import Scaler
from faze.engine.step import Update
from faze.engine.switches import Switch

LARGE_BATCH = ("lamb", "nvlamb", "lars", "novograd")


def build_updates(
    engine: Engine,
    groups: Mapping[str, list[dict]],
    settings: Train,
    scaler: Scaler,
    device: torch.device,
) -> tuple[tuple[Update, ...], tuple[Switch, ...]]:
    """Build each optimiser from its parameter groups, with a loss scaler (`scaler` for the first one) and clipping.

    Returns:
        The updates, and the reports on `optimizer` and `loss_scalers`.
    """
    updates, how = [], {"momentum": settings.momentum, "weight_decay": settings.weight_decay, "device": device}
    for name, of_optimizer in groups.items():
        optimizer, switch = build_optimizer(engine.optimizer, of_optimizer, **how)
        for group in optimizer.param_groups:
            if group.get("fused"):  # torch's fused kernels read the rate from the device, as a captured graph must
                group["lr"] = torch.tensor(float(group["lr"]), dtype=torch.float32, device=device)
        own = Scaler(device, enabled=scaler.is_enabled()) if updates and engine.loss_scalers == "each" else scaler
        prefix = f"{name}/" if len(groups) > 1 else ""
        updates.append(Update(name, prefix, optimizer, own, settings.clip_norm))
    reason = "" if scaler.is_enabled() else "losses are not scaled"
    reason = "the model has only one optimiser" if len(updates) == 1 else reason
    shared = engine.loss_scalers == "shared"
    scalers = Switch("loss_scalers", engine.loss_scalers, engine.loss_scalers, reason if shared else "")
    return tuple(updates), (switch, scalers)


def build_optimizer(
    name: str, groups: Iterable[dict], *, momentum: float, weight_decay: float, device: torch.device
) -> tuple[torch.optim.Optimizer, Switch]:
    """Build the optimiser `name` for parameter groups, each with `params` and `lr`.

    `sgd` and `fused_sgd` compute the same update, SGD with Nesterov momentum, but launch different numbers of kernels.
    The other optimisers compute different updates. If the package that provides one of them is not installed, the tier
    is trained with SGD and the switch is inactive.
    """
    groups = list(groups)
    if name in ("adamw", "fused_adamw"):
        fused = name == "fused_adamw"
        optimizer = torch.optim.AdamW(groups, weight_decay=weight_decay, foreach=False, fused=fused)
        return optimizer, Switch("optimizer", name, f"torch AdamW, {'fused' if fused else 'for loop'}")
    if name in LARGE_BATCH and (make := _large_batch(name, momentum)):
        return make(groups, weight_decay=weight_decay), Switch("optimizer", name, f"pytorch-optimizer {name}")
    settings = {"momentum": momentum, "nesterov": momentum > 0, "weight_decay": weight_decay}
    if name == "fused_sgd":
        return _fused_sgd(groups, settings, device)
    reason = "trained with SGD, because pytorch-optimizer is not installed" if name in LARGE_BATCH else ""
    optimizer = torch.optim.SGD(groups, **settings, foreach=False, fused=False)  # like the talk's baseline
    return optimizer, Switch("optimizer", name, "torch SGD, for loop", reason)


def _fused_sgd(groups: list[dict], settings: dict, device: torch.device) -> tuple[torch.optim.Optimizer, Switch]:
    """Build apex's FusedSGD if it is installed and works, otherwise torch's fused SGD."""
    fault = ""
    # PyPI's package `apex` is an unrelated project without `optimizers`.
    if device.type == "cuda" and find_spec("apex") and find_spec("apex.optimizers"):
        fault = _apex_fault(groups[0]["params"][0], settings)
        if not fault:
            from apex.optimizers import FusedSGD

            return FusedSGD(groups, **settings), Switch("optimizer", "fused_sgd", "apex FusedSGD")
    optimizer = torch.optim.SGD(groups, **settings, fused=True)
    # The fused kernel leaves its momentum buffers uninitialised until the first step. If a loss scaler skips that step,
    # the second step would use arbitrary values. With zeros, the first step is the same.
    for group in optimizer.param_groups:
        for parameter in group["params"] if group["momentum"] else ():
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer, Switch("optimizer", "fused_sgd", "torch SGD, fused" + (f"; apex {fault}" if fault else ""))


def _apex_fault(parameter: torch.Tensor, settings: dict) -> str:
    """Compare a step of apex's FusedSGD with one of torch's SGD; return the difference, or "" if there is none.

    Apex's kernels are built for one version of torch and one kind of GPU, and are loaded only when they run. They do
    not update float64 weights.
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
    except Exception as error:  # a build for another torch, driver or GPU can raise anything
        return f"failed in a trial step: {type(error).__name__}, {str(error).partition(chr(10))[0]}"
    expected = step(torch.optim.SGD)
    same = abs(found - expected) <= 1e-6 * abs(expected)
    return "" if same else f"computes a different step from SGD ({found:g}, not {expected:g})"


def _large_batch(name: str, momentum: float) -> Callable[..., torch.optim.Optimizer] | None:
    """Return LAMB (You et al. 2020), LARS (You et al. 2017) or NovoGrad (Ginsburg et al. 2019) if installed, else None.

    Apex's versions differ in details, so a tier that used them would be a different experiment on other machines.
    """
    if find_spec("pytorch_optimizer") is None:
        return None
    import pytorch_optimizer as package

    return {
        # Weight decay is inside the trust ratio and step sizes have no bias correction, as in the paper's version 3.
        "lamb": functools.partial(package.Lamb, weight_decouple=False, adam_debias=True),
        # NVIDIA's variant divides each step's gradient by its norm first, which makes clipping unnecessary.
        "nvlamb": functools.partial(package.Lamb, weight_decouple=False, adam_debias=True, pre_norm=True),
        "lars": functools.partial(package.LARS, momentum=momentum, nesterov=momentum > 0),
        "novograd": package.NovoGrad,
    }[name]
