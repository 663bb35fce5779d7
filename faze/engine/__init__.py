"""The engine: each module owns a group of switches, and build() composes a step from them.

CONTRIBUTING.md lists the steps for adding a switch.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext

from torch import Tensor, nn

from faze.config.parameters import Engine, Train
from faze.engine import execution
from faze.engine.graphs import build_graph, on_stream
from faze.engine.operators import set_operators
from faze.engine.optim import build_updates
from faze.engine.parallel import World, build_wrapper
from faze.engine.precision import Precision, build_precision
from faze.engine.step import DeviceNumbers, Step, launch_eagerly
from faze.engine.switches import Switch


def build(
    make_objective: Callable[[Precision], nn.Module],
    groups: Callable[[nn.Module], Mapping[str, list[dict]]],
    batch: Callable[[], Mapping[str, Tensor]],
    *,
    engine: Engine,
    train: Train,
    world: World,
) -> Step:
    """Compose the step of a tier from its switches in `engine`.

    `make_objective` builds the module that maps a batch to named loss terms, given the precision it computes in. Its
    parameter `groups`, by optimiser name, have `params` and `lr`. With several optimisers, the names of an optimiser's
    loss terms begin with its name and a slash. `batch` returns a batch on the device, for switches that depend on what
    the module computes. `train` contains momentum, weight_decay and clip_norm for every optimiser.
    """
    device = world.device
    precision = build_precision(engine, device)
    objective = make_objective(precision).to(device)
    sync_switch = execution.set_sync_batchnorm(objective, engine.sync_batchnorm, world)
    recomputed = execution.set_recompute(objective, engine.recompute)  # before fused_norm, which skips recompute parts
    recompute, graphs = engine.recompute and recomputed.active, engine.graphs and device.type == "cuda"
    execution_switches = (
        execution.set_cudnn_benchmark(engine.cudnn_benchmark, device),
        execution.set_channels_last(objective, engine.channels_last, recompute=recompute),
        execution.set_fused_norm(objective, engine.fused_norm, device),
        recomputed,
        sync_switch,
        execution.set_checkpointing(objective, engine.checkpointing, recompute=recompute, graphs=graphs),
    )
    # The optimiser gets the unwrapped module's parameters, which the wrapper shares. Build it after .to(device).
    updates, optimizer_switches = build_updates(engine, groups(objective), train, precision.scaler, device)
    wrap, replicas, parallel_switches = build_wrapper(engine, world)
    idle = "neither DataParallel's replicas nor recompute layers can convert them" if replicas > 1 or recompute else ""
    operators = set_operators(objective, engine, precision.low, batch, idle)
    graph, graph_switch = build_graph(engine, updates, replicas, device)
    compiled = execution.set_compile(objective, engine.compile, device=device, replicas=replicas, recompute=recompute)
    with on_stream(graph.stream) if graph else nullcontext():  # as DistributedDataParallel requires
        module = wrap(objective)
    parts = Switch("accumulate", str(engine.accumulate), f"{engine.accumulate} parts")
    waiting = [getattr(module, "no_sync", nullcontext)] * (engine.accumulate - 1)
    return Step(
        model=module,
        updates=updates,
        set_to_none=engine.set_to_none,
        part_contexts=(*waiting, nullcontext),
        replicas=replicas,
        weights=DeviceNumbers(device, next(objective.parameters()).dtype),
        launch=graph or launch_eagerly,
        settling_steps=graph.settling_steps if graph else 0,
        switches=(
            *(execution.allocator_switch(engine.allocator), *precision.switches, *operators, *execution_switches),
            *(*optimizer_switches, compiled, *parallel_switches, parts, graph_switch),
        ),
    )
