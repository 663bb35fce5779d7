"""Training of a workload: import and checks of its class, its objective, its batches.

The checks run before anything is trained. Each error is one sentence that names the class and the remedy.
"""

import contextlib
import functools
import hashlib
import importlib
import inspect
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from faze import engine as step_engine
from faze.base import code_hash
from faze.base.errors import UserError
from faze.base.run_log import SCORE
from faze.config.parameters import Engine
from faze.config.stage_config import Resolved
from faze.engine.parallel import World
from faze.engine.precision import Context, Precision, exact
from faze.engine.switches import Switch
from faze.engine.transfer import Feed, Tensors, build_transfer
from faze.training.loop import Schedule, Training
from faze.training.resume import WorkFolder
from faze.training.run import RunIdentity, perturb_weight, run_training
from faze.training.workload import Workload

LOGGED, VALIDATED = 50, 10  # log lines and validations of a training


def load_workload(name: str) -> Workload:
    """Import and create a workload.

    Args:
        name: a value of the key `workload`.

    Raises:
        UserError: it cannot be imported or created, or is not a `Workload`.
    """
    module, _, attribute = name.partition(":")
    for place in (str(code_hash.ROOT), str(Path.cwd())):
        if place not in sys.path:
            sys.path.insert(0, place)
    try:
        kind = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever a module raises when it is imported
        raise UserError(f"workload {name} cannot be imported: {type(error).__name__}: {error}") from None
    if not inspect.isclass(kind) or not issubclass(kind, Workload):
        raise UserError(f"workload {name} is not a subclass of faze.training.workload.Workload")
    if kind.__abstractmethods__:
        raise UserError(f"workload {name} lacks the methods {', '.join(sorted(kind.__abstractmethods__))}")
    workload = kind()
    known = {"batch_size": int, "steps": int, "score": str, "higher_is_better": bool}
    if kind.parameter_groups is Workload.parameter_groups:
        known["lr"] = float
    for attribute, wanted in known.items():
        if type(getattr(workload, attribute, None)) is not wanted:
            raise UserError(f"workload {name}: the attribute {attribute} must be of type {wanted.__name__}")
    return workload


class Losses(nn.Module):
    """The objective: maps a batch to the workload's loss terms, in the precision of a tier."""

    def __init__(self, workload: Workload, model: nn.Module, autocast: Context) -> None:
        super().__init__()
        self.model, self.autocast = model, autocast
        self._workload = workload

    def forward(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the terms; with several optimisers, each name begins with its optimiser's and a slash."""
        with self.autocast():
            losses = self._workload.losses(self.model, batch)
        several = len(losses) > 1
        return {
            f"{optimizer}/{name}" if several else name: term.to(torch.get_default_dtype())
            for optimizer, terms in losses.items()
            for name, term in terms.items()
        }


@dataclass(frozen=True)
class WorkloadBatches(Dataset):
    """Dataset whose item `step` is this process's slice of the workload's batch, on the host."""

    workload: Workload
    seed: int
    rank: int
    size: int

    def __getitem__(self, step: int) -> Tensors:
        """Return the slice of a step's batch, drawn in float32 and converted to torch's default number format."""
        count, wanted = self.workload.batch_size // self.size, torch.get_default_dtype()
        part = slice(self.rank * count, (self.rank + 1) * count)
        torch.set_default_dtype(torch.float32)
        try:
            batch = {name: value[part] for name, value in self.workload.batch(step, self.seed).items()}
        finally:
            torch.set_default_dtype(wanted)
        return {name: value.to(wanted) if value.is_floating_point() else value for name, value in batch.items()}


def build_workload_training(workload: Workload, engine: Engine, world: World, seed: int) -> Training:
    """Build the training of a workload; the same seed gives the same first weights and batches in every tier.

    Raises:
        UserError: the batch cannot be divided evenly.
    """
    objectives: list[Losses] = []
    rates: list[float] = []

    def make_objective(precision: Precision) -> nn.Module:
        torch.manual_seed(seed)
        objectives.append(Losses(workload, workload.build().train(), precision.autocast))
        return objectives[0]

    def groups(objective: Losses) -> Mapping[str, list[dict]]:
        found = parameter_groups(workload, objective.model)
        rates.extend(float(group["lr"]) for of in found.values() for group in of)
        return found

    step = step_engine.build(make_objective, groups, engine=engine, train=workload, world=world)
    [objective] = objectives
    if workload.batch_size % (world.size * step.shares):
        raise UserError(
            f"batch_size {workload.batch_size} of the workload is not a multiple of {world.size * step.shares} "
            "processes, replicas or accumulated parts"
        )
    transfer = build_transfer(pin=engine.pin, workers=0, device=world.device)

    def to_device(batch: Tensors) -> Tensors:
        return {name: value.to(world.device, non_blocking=True) for name, value in batch.items()}

    resident = Switch.of("resident", engine.resident, "the workload generates its batches")
    source = WorkloadBatches(workload, seed, world.rank, world.size)
    samples = workload.steps * workload.batch_size
    terms = dict.fromkeys(term_names(workload, objective.model), 1.0)
    return Training(
        step=step,
        feed=Feed(source, to_device, transfer, (transfer.switch, resident)),
        module=objective.model,
        world=world,
        schedule=Schedule(
            samples=samples,
            batch=workload.batch_size,
            log_every=max(1, samples // LOGGED),
            validate_every=max(1, samples // VALIDATED),
            checkpoint_every=max(1, samples // VALIDATED),
            rate_keys="the learning rates of the workload",
        ),
        rates=lambda seen: [rate * workload.rate(seen // workload.batch_size) for rate in rates],
        weights=lambda seen: terms,
        validate=functools.partial(validate, workload, objective, world),
    )


def parameter_groups(workload: Workload, model: nn.Module) -> dict[str, list[dict]]:
    """Return the parameter groups of each optimiser, with lists instead of generators such as model.parameters()."""
    groups = workload.parameter_groups(model)
    return {name: [group | {"params": list(group["params"])} for group in of] for name, of in groups.items()}


def term_names(workload: Workload, model: nn.Module) -> list[str]:
    """Return the names of the loss terms, from the first batch; the state of the model does not change."""
    state = {name: value.clone() for name, value in model.state_dict().items()}
    device = next(model.parameters()).device
    with torch.no_grad(), torch.random.fork_rng():
        batch = {name: value.to(device) for name, value in WorkloadBatches(workload, 0, 0, 1)[0].items()}
        names = list(Losses(workload, model, contextlib.nullcontext)(batch))
    model.load_state_dict(state)
    return names


def validate(workload: Workload, objective: Losses, world: World) -> dict[str, float]:
    """Return `val/score` of the current weights, in fp32; {} on all processes but the first."""
    if world.rank:
        return {}
    model = objective.model
    model.eval()
    with torch.inference_mode(), exact(objective), torch.random.fork_rng():
        score = float(workload.validate(model))
    model.train()
    if not math.isfinite(score):
        raise UserError(f"validate of the workload returned {score}; lower its learning rates, or see its data")
    return {SCORE: score}


def check_workload(workload: Workload, name: str) -> None:
    """Check what a workload returns, on the CPU, before anything is trained.

    Raises:
        UserError: the first fault.
    """

    def fault(text: str) -> UserError:
        return UserError(f"workload {name}: {text}")

    batch = workload.batch(0, 0)
    if not isinstance(batch, Mapping):
        raise fault(f"batch() returned {type(batch).__name__}, not a mapping from names to tensors")
    for key, value in workload.batch(0, 0).items():
        if not isinstance(value, Tensor) or len(value) != workload.batch_size:
            raise fault(f"{key} in batch() is not a tensor whose first dimension is batch_size {workload.batch_size}")
        if key not in batch or not torch.equal(value, batch[key]):
            raise fault(f"two calls of batch(0, 0) differ in {key}: draw from a generator seeded by both numbers")
    model = workload.build().train()
    if not isinstance(model, nn.Module):
        raise fault(f"build() returned {type(model).__name__}, not a torch.nn.Module")
    found = workload.parameter_groups(model)
    if not isinstance(found, Mapping) or not all(
        isinstance(group, Mapping) and {"params", "lr"} <= group.keys() for of in found.values() for group in of
    ):
        raise fault("parameter_groups() must map each optimiser to a list of groups with `params` and `lr`")
    groups = parameter_groups(workload, model)
    owners = {p: optimizer for optimizer, of in groups.items() for group in of for p in group["params"]}
    if sum(len(group["params"]) for of in groups.values() for group in of) != len(owners):
        raise fault("parameter_groups() has a parameter twice")
    losses = workload.losses(model, batch)
    if not isinstance(losses, Mapping) or not all(isinstance(terms, Mapping) for terms in losses.values()):
        raise fault("losses() must map each optimiser to its loss terms by name")
    if losses.keys() != groups.keys():
        raise fault(f"losses() has terms of {sorted(losses)}, but the optimisers are {sorted(groups)}")
    names = {p: key for key, p in model.named_parameters()}
    for optimizer, terms in losses.items():
        for term, value in terms.items():
            if not isinstance(value, Tensor) or value.dim() or not value.requires_grad or not value.isfinite():
                raise fault(f"the loss {term} of {optimizer} is not a finite scalar with a gradient")
        total = torch.stack(list(terms.values())).sum()
        found = torch.autograd.grad(total, list(owners), allow_unused=True, retain_graph=True)
        for parameter, gradient in zip(owners, found, strict=True):
            if gradient is None and owners[parameter] == optimizer:
                raise fault(f"no loss of {optimizer} reaches {names[parameter]}: leave it out of parameter_groups()")
            if gradient is not None and owners[parameter] != optimizer:
                raise fault(
                    f"the losses of {optimizer} reach {names[parameter]} of {owners[parameter]}: see `detached` in "
                    "faze.training.workload"
                )
    validate(workload, Losses(workload, model, contextlib.nullcontext), World(0, 1, torch.device("cpu")))


def build_named(name: str, engine: Engine, world: World, batch_size: int | None = None) -> Training:
    """Build the training of a workload with seed 0, by its name, which can be sent to another process."""
    workload = load_workload(name)
    workload.batch_size = batch_size or workload.batch_size
    return build_workload_training(workload, engine, world, seed=0)


def train_workload(config: Resolved, world: World, out: Path, run_log: Path) -> None:
    """Train one tier of a workload with one seed, like `faze.training.dted_training.train`."""
    workload = load_workload(config.workload)
    training = build_workload_training(workload, config.engine, world, config.seed)
    if config.control == "rounding":
        perturb_weight(next(training.module.parameters()))
    module = config.workload.partition(":")[0]
    own = code_hash.sources(module, Path.cwd()) or code_hash.sources(module)
    fingerprint = code_hash.fingerprint("faze.stages.train_workload")
    code = hashlib.sha256("\n".join([fingerprint, *own]).encode()).hexdigest()[:12]
    work = WorkFolder.of(out, f"{config.hash}-{code}")
    run = RunIdentity(config, code, training.switches, training.feed.notes, None)
    run_training(training, run, work, run_log, out)
