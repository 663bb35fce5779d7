"""Optimisers: SGD, fused SGD, and any class of torch.optim or pytorch-optimizer."""

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from typing import Any

import torch

from faze.base.errors import UserError
from faze.config.parameters import Engine, Train
from faze.engine.machine import lacks_memory
from faze.engine.precision import Scaler
from faze.engine.step import Update
from faze.engine.switches import Switch


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
    updates, how = [], {"momentum": settings.momentum, "weight_decay": settings.weight_decay}
    for name, of_optimizer in groups.items():
        optimizer, switch = build_optimizer(engine.optimizer, engine.optimizer_options, of_optimizer, device, **how)
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
    name: str, options: Mapping[str, Any], groups: Iterable[dict], device: torch.device, **train: float
) -> tuple[torch.optim.Optimizer, Switch]:
    """Build an optimiser for parameter groups, each with `params` and `lr`; `train` is its momentum and weight_decay.

    `sgd` and `fused_sgd` compute the same update, SGD with Nesterov momentum, but launch different numbers of kernels.
    Any other name is a class of torch.optim or pytorch-optimizer, and `options` are its arguments.

    Raises:
        UserError: there is no such class, or it cannot take a step with these options.
    """
    groups, given = list(groups), {**train, **options}
    try:
        given = {"nesterov": given["momentum"] > 0} | given
        if "lr" in options:
            raise ValueError("learning rates are set by the training")
        if name == "fused_sgd":
            return _fused_sgd(groups, given, device)
        if name == "sgd":  # like the talk's baseline
            sgd = torch.optim.SGD(groups, **given, foreach=False, fused=False)
            return sgd, Switch("optimizer", name, "torch SGD, for loop")
        package = "torch.optim" if isinstance(getattr(torch.optim, name, None), type) else "pytorch_optimizer"
        kind = getattr(importlib.import_module(package), name)
        accepted = inspect.signature(kind).parameters
        for option in options:  # pytorch-optimizer reads some options from **kwargs, by name
            if option not in accepted and repr(option) not in inspect.getsource(kind):
                raise ValueError(f"{option} is not an argument of {name}")
        if hasattr(kind, "eval"):
            raise ValueError(f"{name} must be told when the network is evaluated")
        given = {key: value for key, value in given.items() if key in accepted or key in options}
        _take_step(lambda group: kind(group, **given), groups[0]["params"][0])
        acted = ", ".join([f"{package} {name}", *(f"{key} {value}" for key, value in options.items())])
        return kind(groups, **given), Switch("optimizer", name, acted)
    except Exception as error:  # a class can raise anything
        if lacks_memory(error):
            raise
        fault = str(error).partition("\n")[0] or type(error).__name__
        remedy = "use a class of torch.optim or pytorch-optimizer that needs only gradients, such as AdamW"
        raise UserError(f"optimizer {name}, optimizer_options {dict(options)}: {fault}; {remedy}") from error


def _take_step(make: Callable[[list[dict]], torch.optim.Optimizer], like: torch.Tensor) -> float:
    """Take a step with weights and gradients of 1, in the format and on the device of `like`; return a weight."""
    weight = torch.nn.Parameter(torch.ones(2, 2, dtype=like.dtype, device=like.device))
    weight.grad = torch.ones_like(weight)
    make([{"params": [weight], "lr": 0.25}]).step()
    return weight[0, 0].item()


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
    try:
        from apex.optimizers import FusedSGD

        found = _take_step(lambda group: FusedSGD(group, **settings), parameter)
    except Exception as error:  # a build for another torch, driver or GPU can raise anything
        return f"failed in a trial step: {type(error).__name__}, {str(error).partition(chr(10))[0]}"
    expected = _take_step(lambda group: torch.optim.SGD(group, **settings), parameter)
    same = abs(found - expected) <= 1e-6 * abs(expected)
    return "" if same else f"computes a different step from SGD ({found:g}, not {expected:g})"
