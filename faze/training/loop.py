"""The training of DT-ED: schedule, validation, checkpoints, resume. Paper section 3.1.

fit() is the loop. It reads top to bottom and has no branch on a switch, a process or a device: those were decided in
`faze.engine`.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from faze import engine
from faze.base.errors import UserError
from faze.base.progress import Progress
from faze.base.run_log import RunLog
from faze.config.parameters import Loss, Model, Train
from faze.data.network_input import to_network
from faze.data.pairs import PeopleStrips
from faze.engine.parallel import World
from faze.engine.precision import Precision
from faze.engine.schedule import decay, learning_rate, ramp
from faze.engine.step import Step
from faze.model.dted import DTED
from faze.model.losses import angle_deg, vector_from_pitchyaw
from faze.model.objective import Objective
from faze.training.feed import Feed
from faze.training.resume import Resume, save_training
from faze.training.setup import TrainingSetup

TERMS = ("reconstruction_l1", "gaze_angle", "gaze_mse")
RAMPED_TERMS = ("embedding_consistency", "triplet_angular", "triplet_euclidean", "all_equal")  # compare embeddings


def build_step(setup: TrainingSetup) -> Step:
    """Build the step of a tier; the same seed gives the same first weights in every tier."""
    train = setup.train

    def make_objective(precision: Precision) -> nn.Module:
        torch.manual_seed(setup.seed)
        return Objective(DTED(setup.model, autocast=precision.autocast), setup.loss)

    def group(objective: nn.Module) -> list[dict]:
        head = [p for name, p in objective.named_parameters() if ".gaze" in name]
        rest = [p for name, p in objective.named_parameters() if ".gaze" not in name]
        return [{"params": rest, "lr": train.base_lr}, {"params": head, "lr": train.head_lr}]

    return engine.build(
        make_objective,
        group,
        engine=setup.engine,
        world=setup.world,
        momentum=train.momentum,
        weight_decay=train.weight_decay,
        clip_norm=train.clip_norm,
    )


def learning_rates(pairs: int, train: Train) -> list[float]:
    """Of the parameter groups of build_step: warmed up for the network, constant for the gaze head; then both decay."""
    peak = learning_rate(
        pairs,
        base_lr=train.base_lr,
        global_batch=train.global_batch,
        warmup_pairs=train.warmup_pairs,
        scaling=train.lr_scaling,
    )
    factor = decay(pairs, train.pairs, train.decay_share)
    return [peak * factor, train.head_lr * factor]


def loss_weights(pairs: int, loss: Loss, global_batch: int) -> dict[str, float]:
    """Weight of every loss term; those that compare embeddings ramp up from 0."""
    climbed = ramp(pairs, loss.ramp_pairs, global_batch)
    return {n: getattr(loss, n) for n in TERMS} | {n: getattr(loss, n) * climbed for n in RAMPED_TERMS}


def bare_model(step: Step) -> DTED:
    """DT-ED without its objective and parallel wrapper."""
    module = step.model
    return (module.module if hasattr(module, "module") else module).dted


@torch.inference_mode()
def validate(step: Step, people: PeopleStrips, *, model: Model, world: World, batch: int = 64) -> float:
    """Mean over people of their mean gaze error, in degrees; every process takes its share of each person."""
    dted = bare_model(step)
    sums = torch.zeros(len(people.names), 2, dtype=torch.float64, device=world.device)
    for i, (pixels, labels) in enumerate(zip(people.pixels, people.labels, strict=True)):
        for first in range(world.rank * batch, len(labels), world.size * batch):
            strips = torch.from_numpy(pixels[first : first + batch]).to(world.device)
            gaze = torch.from_numpy(labels[first : first + batch, :2]).to(world.device)
            image = to_network(strips, model.image_height_px, model.image_width_px)
            error = angle_deg(dted.gaze_vector(dted.encode(image).gaze), vector_from_pitchyaw(gaze))
            sums[i] += torch.stack([error.double().sum(), torch.tensor(float(len(error)), device=world.device)])
    world.sum(sums)
    return float((sums[:, 0] / sums[:, 1]).mean())


@dataclass
class LogWindow:
    """Loss terms and time since the last log line; terms stay on the device until they are read."""

    terms: dict[str, Tensor] = field(default_factory=dict)
    steps: int = 0
    seconds: float = 0.0

    def add(self, terms: Mapping[str, Tensor]) -> None:
        """Count one step."""
        self.terms = {name: self.terms.get(name, 0.0) + term for name, term in terms.items()}
        self.steps += 1

    def read(self, world: World, global_batch: int) -> dict[str, float]:
        """Means over steps and processes, in one collective, and the rate; then start anew."""
        began = time.perf_counter()
        means = world.sum(torch.stack(list(self.terms.values()))) / (world.size * self.steps)
        values = {f"train/{name}": float(mean) for name, mean in zip(self.terms, means, strict=True)}
        self.seconds += time.perf_counter() - began  # reading waits for the device: that is training time too
        values["speed/images_per_s"] = 2 * global_batch * self.steps / self.seconds
        self.terms, self.steps, self.seconds = {}, 0, 0.0
        return values


@dataclass(frozen=True)
class Fit:
    """All that the loop needs; `work` is the folder of the resume checkpoint."""

    step: Step
    feed: Feed
    validation: PeopleStrips
    model: Model
    loss: Loss
    train: Train
    world: World
    log: RunLog | None  # of the first process; None on the others
    work: Path
    identity: str

    def run(self, first_step: int) -> None:
        """Train from a step to the end; leave the last checkpoint in the work folder."""
        train, batch = self.train, self.train.global_batch
        steps = -(-train.pairs // batch)
        progress = Progress("train", train.pairs, "pairs", done=first_step * batch) if self.log else _no_progress
        window, began = LogWindow(), time.perf_counter()
        for number, ready in enumerate(self.feed(range(first_step, steps)), start=first_step):
            pairs = number * batch
            self.step.set_learning_rates(learning_rates(pairs, train))
            window.add(self.step(ready, loss_weights(pairs, self.loss, batch)))
            window.seconds += time.perf_counter() - began
            self._after(number + 1, steps, window, progress)
            began = time.perf_counter()

    def _after(self, step: int, steps: int, window: LogWindow, progress: Callable[..., None]) -> None:
        """Log, validate and save when due: when a step crosses a multiple of the period, and at the end."""
        train, batch = self.train, self.train.global_batch

        def due(every_pairs: int) -> bool:
            return step == steps or step * batch // every_pairs > (step - 1) * batch // every_pairs

        values: dict[str, float] = {}
        if due(train.log_every_pairs):
            values |= window.read(self.world, batch)
            values["train/lr"] = learning_rates((step - 1) * batch, train)[0]
            values |= self.step.scaler.counts()
            _refuse_divergence(values["train/loss"], step * batch)
        if due(train.validate_every_pairs):
            values["val/gaze_deg"] = validate(self.step, self.validation, model=self.model, world=self.world)
        if self.log and values:
            self.log.metrics(step * batch, values)
        if self.log and due(train.checkpoint_every_pairs):
            at = Resume(step, step * batch, self.log.size)
            save_training(self.work / "checkpoint.pt", bare_model(self.step), self.step, at=at, identity=self.identity)
        progress(step * batch)


def _no_progress(done: int) -> None:
    return


def _refuse_divergence(loss: float, pairs: int) -> None:
    if loss != loss:
        raise UserError(f"the loss is not a number after {pairs} pairs; lower train.base_lr or train.head_lr")
