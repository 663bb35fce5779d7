"""The engine: one owner per group of switches, and build(), which only composes them.

    precision     number formats and loss scaling
    operations    operations with a number format of their own
    convolution   how convolutions become kernels
    fusion        operations that become one kernel
    memory        what a step keeps
    parallel      devices and processes
    optim         the optimiser
    transfer      how batches come to the device
    graphs        how kernels are launched
    step          the composed step
    schedule      learning rate and ramps, in pairs

It knows neither gaze nor HDF5. A new switch is a field of `faze.config.parameters.Engine`, a value in config.yaml, and
one line in the module that owns its group.
"""

from collections.abc import Callable

import torch
from torch import nn

from faze.config.parameters import Engine, Train
from faze.engine.convolution import set_channels_last, set_cudnn_benchmark
from faze.engine.fusion import set_compile, set_fused_norm
from faze.engine.graphs import Launching, build_launching, hold_rates
from faze.engine.memory import find_allocator, set_checkpointing, set_recompute
from faze.engine.optim import build_clip, build_optimizer
from faze.engine.parallel import World
from faze.engine.precision import Precision, build_precision
from faze.engine.step import DeviceNumbers, Step
from faze.engine.switches import Switch
from faze.engine.wrap import Wrap, build_exchanges, build_wrap


def build(
    make_objective: Callable[[Precision], nn.Module],
    group: Callable[[nn.Module], list[dict]],
    *,
    engine: Engine,
    train: Train,
    world: World,
) -> Step:
    """Compose the step of a tier.

    Args:
        make_objective: makes the module that maps a batch to named loss terms, given the precision it computes in.
        group: its parameter groups, each with `params` and `lr`.
        engine: the switches.
        train: momentum of SGD (Nesterov) and LARS, weight decay, and the gradient's largest length.
        world: this process among those that train together.
    """
    precision = build_precision(engine, world.device)
    objective = make_objective(precision).to(world.device)
    shape = _shape(objective, engine, precision, world.device)
    # The optimiser takes the bare parameters, which the wrapper below shares; it must come after .to(device).
    optimizer, optim_switch = build_optimizer(
        engine.optimizer,
        group(objective),
        momentum=train.momentum,
        weight_decay=train.weight_decay,
        foreach=engine.foreach,
        device=world.device,
    )
    hold_rates(optimizer)
    module, wrap, launching, spread = _spread(objective, engine, optimizer, world)
    return Step(
        model=module,
        optimizer=optimizer,
        scaler=precision.scaler,
        clip=build_clip(train.clip_norm, optimizer=optimizer, scaler=precision.scaler, foreach=engine.foreach),
        set_to_none=engine.set_to_none,
        exchanges=build_exchanges(module, engine.accumulate),
        replicas=wrap.replicas,
        weights=DeviceNumbers(world.device, next(objective.parameters()).dtype),
        launch=launching.launch,
        settling_steps=launching.settling_steps,
        switches=(find_allocator(engine.allocator), *precision.switches, *shape, optim_switch, *spread),
    )


def _shape(objective: nn.Module, engine: Engine, precision: Precision, device: torch.device) -> tuple[Switch, ...]:
    """Set how the model computes and what it keeps."""
    recompute = set_recompute(objective, engine.recompute)  # the two that follow look at which parts are recompute
    within = precision.operations
    return (
        set_cudnn_benchmark(engine.cudnn_benchmark, device),
        set_channels_last(objective, engine.channels_last, recompute=engine.recompute),
        set_fused_norm(objective, engine.fused_norm, device),
        recompute,
        set_checkpointing(objective, engine.checkpointing, recompute=engine.recompute, within=within),
    )


def _spread(
    objective: nn.Module, engine: Engine, optimizer: torch.optim.Optimizer, world: World
) -> tuple[nn.Module, Wrap, Launching, tuple[Switch, ...]]:
    """Bring the model to its devices and processes, compiled if wanted, and choose how its kernels are launched."""
    wrap = build_wrap(engine, world)
    launching = build_launching(engine, optimizer, wrap.replicas, world.device)
    compiled = set_compile(
        objective, engine.compile, device=world.device, replicas=wrap.replicas, recompute=engine.recompute
    )
    with launching.stream():
        module = wrap.module(objective)
    parts = Switch("accumulate", str(engine.accumulate), f"{engine.accumulate} parts")
    return module, wrap, launching, (compiled, *wrap.switches, parts, launching.switch)
