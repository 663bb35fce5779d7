"""Training of any workload. `train` performs one run: it calls `build`, then `fit`, which contains the loop.

A killed run resumes from its last checkpoint, in `NAME.work` next to the output, and ends with the same weights. With
three or more ddp processes, weights agree up to rounding: each start's first step uses different gradient buckets.
"""

import contextlib
import math
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from faze import engine
from faze.base import code_hash
from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.base.progress import Progress
from faze.base.run_log import SCORE, RunLog
from faze.config.parameters import DTED, Engine
from faze.config.stage_config import Resolved
from faze.engine import machine
from faze.engine.parallel import World
from faze.engine.precision import Precision, exact
from faze.engine.step import Step
from faze.engine.switches import Switch
from faze.engine.transfer import Feed
from faze.model.torch_file import read_mapping, write_mapping
from faze.model.weights import FORMAT
from faze.training.check import load_class
from faze.training.dted import DTEDTraining
from faze.training.workload import Batch, Batches, Workload, seed_draws

MOST_LOST_STEPS = 20  # consecutive steps without a finite loss, during which the loss scale falls a millionfold


def load_workload(config: Resolved, data: Path | None = None, processes: int = 1) -> Workload:
    """Return DT-ED's workload for a store of strips, or the user's; `processes` processes share `memory_gib`."""
    return DTEDTraining(config, data, processes) if config.workload == DTED else load_class(config.workload)


class Losses(nn.Module):
    """The objective, which maps a batch to the workload's loss terms in a tier's precision."""

    def __init__(self, workload: Workload, model: nn.Module, precision: Precision) -> None:
        super().__init__()
        self.model, self._workload = model, workload
        parts = [part for part in model.modules() if hasattr(part, "autocast")]  # parts that enter it themselves
        for part in parts:
            part.autocast = precision.autocast
        self.autocast = contextlib.nullcontext if parts else precision.autocast

    def forward(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the loss terms; with several optimisers, each name begins with the optimiser's name and a slash."""
        with self.autocast():
            losses = self._workload.losses(self.model, batch)
        prefix = {optimizer: f"{optimizer}/" if len(losses) > 1 else "" for optimizer in losses}
        dtype = torch.get_default_dtype()
        return {prefix[of] + name: term.to(dtype) for of, terms in losses.items() for name, term in terms.items()}


@dataclass(frozen=True)
class Training:
    """A training run that is ready to start."""

    workload: Workload
    world: World
    step: Step
    feed: Feed
    switches: tuple[Switch, ...]
    model: nn.Module  # without objective and parallel wrapper
    first_rates: list[float]  # of each parameter group
    seed: int

    def take(self, batch: Batch, seen: int, **options: object) -> dict[str, Tensor]:
        """Train on a batch with the rates and loss weights due after `seen` samples; return the loss and its terms."""
        self.step.set_learning_rates(self.workload.rates(seen, self.first_rates))
        return self.step(batch, self.workload.weights(seen), **options)

    def validate(self) -> dict[str, float]:
        """Evaluate the model in fp32; return the scores by name."""
        self.model.eval()
        with torch.inference_mode(), exact(self.model), torch.random.fork_rng():
            found = self.workload.validate(self.model)
        self.model.train()
        values = dict(found) if isinstance(found, Mapping) else {SCORE: float(found)}
        if not all(map(math.isfinite, values.values())):
            raise UserError(f"validation returned {values}; lower the learning rates, or check the data")
        return values


def build(workload: Workload, switches: Engine, world: World, seed: int) -> Training:
    """Build the training of a tier; the same seed gives the same initial weights and batches in every tier."""

    def to_device(batch: Batch) -> Batch:
        return workload.prepare({name: value.to(world.device, non_blocking=True) for name, value in batch.items()})

    resident = workload.keep_resident(switches.resident, world.device)
    pin = Switch.of("pin", switches.pin, "" if world.device.type == "cuda" else "batches are not copied on a CPU")
    source = Batches(workload, seed, world.rank, world.size)
    feed = Feed(source, to_device, workload.workers, switches.pin and pin.active)
    torch.manual_seed(seed)
    model = workload.build().train()
    given = workload.parameter_groups(model)
    groups = {name: [group | {"params": list(group["params"])} for group in of] for name, of in given.items()}
    first_rates = [float(group["lr"]) for of in groups.values() for group in of]
    how = {"engine": switches, "train": workload, "world": world}
    step = engine.build(partial(Losses, workload, model), lambda _: groups, lambda: next(feed(range(1))), **how)
    shares = world.size * step.shares
    if workload.batch_size % (shares * workload.chunk):
        batch = f"train.global_batch (or the batch_size of a class) {workload.batch_size}"
        parts = f"{shares} processes, replicas or parts x loss.chunk_pairs {workload.chunk}"
        raise UserError(f"{batch} is not a multiple of {parts}: choose a multiple, or use fewer GPUs")
    return Training(workload, world, step, feed, (*step.switches, pin, resident), model, first_rates, seed)


def fit(training: Training, log: RunLog | None, first: int, save: Callable[[int], None]) -> None:
    """Train from step `first` to the end; only the first process has a log.

    A validation or checkpoint ends a log window, so that a resumed run writes the same lines.
    """
    workload, batch, steps = training.workload, training.workload.batch_size, training.workload.steps
    progress = Progress("train", workload.samples, "samples", done=first * batch)
    sums: dict[str, Tensor] = {}  # of each loss term over the `taken` steps of the log window
    taken, began = 0, time.perf_counter()
    lost: Tensor | float = 0.0  # number of most recent steps, in a row, without a finite loss
    for number, ready in enumerate(training.feed(range(first, steps)), start=first + 1):
        before, seen = (number - 1) * batch, number * batch
        seed_draws(training.seed, number, training.world.rank)  # so a resumed run draws the same numbers
        terms = training.take(ready, before)
        sums = {name: sums.get(name, 0.0) + term for name, term in terms.items()}
        lost = (lost + 1.0) * ~terms["loss"].isfinite()
        taken += 1
        due = [number == steps or seen // period > before // period for period in workload.every]
        if any(due):
            values = summarize(training, sums, taken, began, before)
            scaled = any(scaler.is_enabled() for scaler in training.step.scalers)  # then a few steps may overflow
            if not math.isfinite(values["train/loss"]) and (not scaled or lost >= MOST_LOST_STEPS):
                raise UserError(f"the loss is not finite after {seen} samples; lower the learning rates")
            if log:
                values |= training.validate() if due[1] else {}
                log.event("metrics", step=seen, values=values)
            if log and due[2]:
                save(number)
            sums, taken, began = {}, 0, time.perf_counter()
        if log:
            progress(seen)


def summarize(training: Training, sums: dict[str, Tensor], taken: int, began: float, seen: int) -> dict[str, float]:
    """Return the mean loss terms, throughput, learning rates and number of skipped steps for a log window."""
    workload, world, step = training.workload, training.world, training.step
    means = world.sum(torch.stack(list(sums.values()))) / (world.size * taken)
    values = {f"train/{name}": float(mean) for name, mean in zip(sums, means, strict=True)}
    seconds = time.perf_counter() - began  # including the wait for the device, which is training time too
    values[f"train/{workload.unit}_per_s"] = workload.images * workload.batch_size * taken / seconds
    rates = workload.rates(seen, training.first_rates)
    for name, rate in zip(step.group_names, rates, strict=True):
        values[f"train/lr/{name}" if name else "train/lr"] = rate
    return values | step.counts()


def train(config: Resolved, data: Path | None, world: World, out: Path, run_log: Path) -> None:
    """Train one tier with one seed, on a store of strips or a class's batches; write the checkpoint and the run log."""
    workload = load_workload(config, data, world.size)
    training = build(workload, config.engine, world, config.seed)
    network = workload.network(training.model)
    if config.control == "rounding":
        perturb_weight(next(network.parameters()))
    code = code_hash.fingerprint("faze.stages.train") + workload.code
    identity = "-".join([config.hash, code, workload.identity])
    work = out.with_suffix(".work")
    checkpoint, log_path = work / "checkpoint.pt", work / "run.jsonl"
    first, log_bytes = resume(checkpoint, identity, network, training.step)

    def save(number: int) -> None:
        weights = {"format": FORMAT, "model": network.state_dict(), **workload.about(training.model)}
        position = {"step": number, "log_bytes": log_path.stat().st_size, "identity": identity}
        write_mapping(checkpoint, weights | training.step.state_dict() | position)

    with RunLog(log_path, log_bytes) if world.rank == 0 else contextlib.nullcontext() as log:
        if log:
            log_start(log, config, training, code, first * workload.batch_size)
        if workload.steps:
            fit(training, log, first, save)
        elif log:  # given weights are only evaluated
            log.event("metrics", step=0, values=training.validate())
            save(0)
    world.wait()  # until the first process has written the last checkpoint
    if world.rank == 0:
        for source, target in ((log_path, run_log), (checkpoint, out)):  # the log first, so no checkpoint lacks one
            with whole_file(target) as temporary:
                shutil.copyfile(source, temporary)
        checkpoint.unlink()  # before the log, to which it refers
        shutil.rmtree(work)


def resume(checkpoint: Path, identity: str, network: nn.Module, step: Step) -> tuple[int, int]:
    """Restore a killed run's checkpoint, if it belongs to this training; return its step and the size of its log."""
    state = read_mapping(checkpoint, next(network.parameters()).device) if checkpoint.exists() else {}
    if state.get("identity") != identity:
        return 0, 0
    network.load_state_dict(state["model"])
    step.load_state_dict(state)
    return state["step"], state["log_bytes"]


def log_start(log: RunLog, config: Resolved, training: Training, code: str, seen: int) -> None:
    """Log the run and the effect of each switch; if `seen` is not 0, log only that the run resumes."""
    if seen:
        log.event("resume", step=seen, machine=machine.describe())
        print(f"train: resumed after {seen} samples", file=sys.stderr)
        return
    about = {name: getattr(config, name) for name in ("stage", "name", "tier", "seed")}
    facts = {"config_hash": config.hash, "fingerprint": code, "pixel_source": training.workload.pixel_source}
    log.event("start", **about, **facts, config=dict(config.flat), machine=machine.describe())
    for switch in training.switches:
        log.event("switch", **asdict(switch))
        if switch.reason:
            print(f"train: {switch}", file=sys.stderr)
    for note in training.workload.notes:
        log.event("note", text=note)


@torch.no_grad()
def perturb_weight(weights: Tensor) -> None:
    """Increase the largest weight by one unit in the last place, so that all later differences are due to rounding."""
    weights = torch.view_as_real(weights) if weights.is_complex() else weights
    weight = weights[torch.unravel_index(weights.abs().argmax(), weights.shape)]
    weight.copy_(torch.nextafter(weight, torch.full_like(weight, torch.inf)))
