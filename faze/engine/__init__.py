"""The engine: one owner per group of switches, and build(), which only composes them.

    precision     number formats and loss scaling
    operations    operations with a number format of their own
    convolution   how convolutions become kernels
    memory        what a step keeps
    parallel      devices and processes
    optim         the optimiser
    transfer      how batches come to the device
    graphs        how kernels are launched
    step          the composed step
    schedule      learning rate and ramps, in pairs

It knows neither gaze nor HDF5. A new switch is a field of `faze.sections.Engine`, a value in config.yaml, and one line
in the module that owns its group.
"""

from collections.abc import Callable

from torch import nn

from faze.engine.convolution import set_channels_last, set_cudnn_benchmark
from faze.engine.graphs import build_launching, hold_rates
from faze.engine.memory import set_checkpointing, set_expandable_segments, set_lean
from faze.engine.optim import build_clip, build_optimizer
from faze.engine.parallel import World, build_exchanges, build_wrap
from faze.engine.precision import Precision, build_precision
from faze.engine.step import Held, Step
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
        momentum: of SGD (Nesterov), also inside LARS.
        weight_decay: of SGD; what the other optimisers make of it, they say.
        clip_norm: largest length of the gradient; 0 does not clip.
    """
    segments = set_expandable_segments(engine.expandable_segments, world.device)
    precision = build_precision(
        engine.precision,
        tf32=engine.tf32,
        force=engine.force,
        keep_fp32=engine.keep_fp32,
        force_low=engine.force_low,
        lean=engine.lean,
        device=world.device,
    )
    cudnn = set_cudnn_benchmark(engine.cudnn_benchmark, world.device)
    objective = make_objective(precision).to(world.device)
    lean = set_lean(objective, engine.lean)
    checkpointing = set_checkpointing(objective, engine.checkpointing, lean=engine.lean, within=precision.operations)
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
    hold_rates(optimizer)
    wrap = build_wrap(
        engine.parallel,
        world,
        bucket_mib=engine.bucket_mib,
        bucket_view=engine.bucket_view,
        static_graph=engine.static_graph,
    )
    ddp = engine.parallel == "ddp"
    launching = build_launching(
        engine.graphs, optimizer=optimizer, ddp=ddp, replicas=wrap.replicas, device=world.device
    )
    with launching.stream():
        module = wrap.module(objective)
    parts = Switch("accumulate", str(engine.accumulate), f"{engine.accumulate} parts")
    memory = (lean, checkpointing, segments)
    return Step(
        model=module,
        optimizer=optimizer,
        scaler=precision.scaler,
        clip=clip,
        set_to_none=engine.set_to_none,
        exchanges=build_exchanges(module, engine.accumulate),
        replicas=wrap.replicas,
        weights=Held(world.device, next(objective.parameters()).dtype),
        launch=launching.launch,
        settling_steps=launching.settling_steps,
        switches=(
            *(*precision.switches, cudnn, layout, *memory),
            *(*wrap.switches, parts, optim_switch, launching.switch),
        ),
    )
