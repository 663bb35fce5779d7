"""The engine: one owner per group of switches, and build(), which only composes them.

    precision     number formats and loss scaling
    convolution   how convolutions become kernels
    fusion        operations that become one kernel
    memory        what a step keeps
    parallel      devices and processes
    optim         the optimiser
    step          the composed step
    schedule      learning rate and ramps, in pairs

It knows neither gaze nor HDF5. A new switch is a field of `faze.sections.Engine`, a value in config.yaml, and one line
in the module that owns its group.
"""

from collections.abc import Callable

from torch import nn

from faze.engine.convolution import set_channels_last, set_cudnn_benchmark
from faze.engine.fusion import set_compile, set_fused_norm
from faze.engine.memory import set_lean
from faze.engine.optim import build_clip, build_optimizer
from faze.engine.parallel import World, build_exchanges, build_wrap
from faze.engine.precision import Precision, build_precision
from faze.engine.step import Step
from faze.engine.switches import Switch
from faze.sections import Engine


def build(
    make_objective: Callable[[Precision], nn.Module],
    group: Callable[[nn.Module], list[dict]],
    *,
    engine: Engine,
    world: World,
    momentum: float,
    weight_decay: float,
    clip_norm: float,
) -> Step:
    """Compose the step of a tier.

    Args:
        make_objective: makes the module that maps a batch to named loss terms, given the precision it computes in.
        group: its parameter groups, each with `params` and `lr`.
        engine: the switches.
        world: this process among those that train together.
        momentum: of SGD (Nesterov).
        weight_decay: of SGD.
        clip_norm: largest length of the gradient; 0 does not clip.
    """
    precision = build_precision(engine.precision, tf32=engine.tf32, force=engine.force, device=world.device)
    cudnn = set_cudnn_benchmark(engine.cudnn_benchmark, world.device)
    objective = make_objective(precision).to(world.device)
    lean = set_lean(objective, engine.lean)
    fused_norm = set_fused_norm(objective, engine.fused_norm, world.device)
    layout = set_channels_last(objective, engine.channels_last)
    # The optimiser takes the bare parameters, which the wrapper below shares; it must come after .to(device).
    optimizer, optim_switch = build_optimizer(
        engine.optimizer,
        group(objective),
        momentum=momentum,
        weight_decay=weight_decay,
        foreach=engine.foreach,
        device=world.device,
    )
    clip = build_clip(clip_norm, optimizer=optimizer, scaler=precision.scaler, foreach=engine.foreach)
    wrap = build_wrap(engine.parallel, world)
    compiled = set_compile(objective, engine.compile, device=world.device, replicas=wrap.replicas)
    module = wrap.module(objective)
    exchanges = build_exchanges(module, engine.accumulate)
    parts = Switch("accumulate", str(engine.accumulate), f"{engine.accumulate} parts")
    switches = (*precision.switches, cudnn, layout, lean, fused_norm, compiled, wrap.switch, parts, optim_switch)
    return Step(module, optimizer, precision.scaler, clip, engine.set_to_none, exchanges, wrap.replicas, switches)
