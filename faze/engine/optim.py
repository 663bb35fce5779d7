"""Optimisers: SGD, fused SGD, and any class of torch.optim or pytorch-optimizer."""

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from typing import Any

import torch

from faze.base.errors import UserError
from faze.config.parameters import Engine, Train
from faze.engine.precision import Scaler
from faze.engine.step import Update
from faze.engine.switches import Switch


def build_updates(
    engine: Engine, groups: Mapping[str, list[dict]], settings: Train, scaler: Scaler, device: torch.device
) -> tuple[tuple[Update, ...], tuple[Switch, ...]]:
    """Build each optimiser with its loss scaler (`scaler` for the first); report on `optimizer` and `loss_scalers`."""
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
    Any other name is a class of torch.optim or pytorch-optimizer, and `options` are its arguments. Raise a UserError if
    there is no such class, or it cannot take a step with these options.
    """
    groups, given = list(groups), {**train, **options}
    try:
        given = {"nesterov": given["momentum"] > 0} | given
        if "lr" in options:
            raise TypeError("learning rates are set by the training")
        if name == "fused_sgd":
            return _fused_sgd(groups, given, device)
        if name == "sgd":  # like the talk's baseline
            sgd = torch.optim.SGD(groups, **given, foreach=False, fused=False)
            return sgd, Switch("optimizer", name, "torch SGD, for loop")
        package = "torch.optim" if hasattr(torch.optim, name) else "pytorch_optimizer"
        kind = getattr(importlib.import_module(package), name)
        accepted = inspect.signature(kind).parameters
        for option in options:  # pytorch-optimizer reads some options from **kwargs, by name
            if option not in accepted and repr(option) not in inspect.getsource(kind):
                raise TypeError(f"{option} is not an argument of {name}")
        if hasattr(kind, "eval"):
            raise TypeError(f"{name} must be told when the network is evaluated")
        given = {key: value for key, value in given.items() if key in accepted or key in options}
        _take_step(kind, given, groups)
        acted = ", ".join([f"{package} {name}", *(f"{key} {value}" for key, value in options.items())])
        return kind(groups, **given), Switch("optimizer", name, acted)
    except Exception as error:  # a class can raise anything
        fault = f"{type(error).__name__}: {error}"
        remedy = "use a class of torch.optim or pytorch-optimizer that needs only gradients, such as AdamW"
        raise UserError(f"optimizer {name}, optimizer_options {dict(options)}: {fault}; {remedy}") from error


def _take_step(kind: Callable[..., torch.optim.Optimizer], settings: Mapping[str, Any], groups: list[dict]) -> float:
    """Take a step with weights and gradients of 1, in the format and on the device of the groups; return a weight."""
    weight = torch.nn.Parameter(groups[0]["params"][0].new_ones(2, 2))
    weight.grad = torch.ones_like(weight)
    kind([{"params": [weight], "lr": 0.25}], **settings).step()
    return weight[0, 0].item()


def _fused_sgd(groups: list[dict], settings: dict, device: torch.device) -> tuple[torch.optim.Optimizer, Switch]:
    """Build apex's FusedSGD if it is installed and computes a step of SGD, otherwise torch's fused SGD.

    Apex's kernels are built for one version of torch and one kind of GPU, and are loaded only when they run. They do
    not update float64 weights.
    """
    fault = ""
    # PyPI's package `apex` is an unrelated project without `optimizers`.
    if device.type == "cuda" and find_spec("apex") and find_spec("apex.optimizers"):
        try:
            from apex.optimizers import FusedSGD

            found, expected = (_take_step(kind, settings, groups) for kind in (FusedSGD, torch.optim.SGD))
            if abs(found - expected) <= 1e-6 * abs(expected):
                return FusedSGD(groups, **settings), Switch("optimizer", "fused_sgd", "apex FusedSGD")
            fault = f"; apex computes a different step from SGD ({found:g}, not {expected:g})"
        except Exception as error:  # a build for another torch, driver or GPU can raise anything
            fault = f"; apex failed in a trial step: {type(error).__name__}, {str(error).partition(chr(10))[0]}"
    optimizer = torch.optim.SGD(groups, **settings, fused=True)
    # The fused kernel leaves its momentum buffers uninitialised until the first step. If a loss scaler skips that step,
    # the second step would use arbitrary values. With zeros, the first step is the same.
    for group in optimizer.param_groups:
        for parameter in group["params"] if group["momentum"] else ():
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer, Switch("optimizer", "fused_sgd", f"torch SGD, fused{fault}")
