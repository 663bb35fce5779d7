"""The training of DT-ED: schedule, validation, checkpoints. Paper section 3.1.

Fit.run() is the loop. It reads top to bottom and has no branch on a switch, a process or a device: those were decided
in `faze.engine`.
"""

import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from faze import engine
from faze.base.errors import UserError
from faze.base.geometry import vector_from_pitchyaw
from faze.base.preemption import Preempted, asked
from faze.base.progress import Progress
from faze.base.run_log import RunLog
from faze.config.parameters import Loss, Train
from faze.data.network_input import to_network
from faze.data.pairs import PeopleStrips
from faze.engine.parallel import Vote
from faze.engine.precision import Precision, exact
from faze.engine.schedule import decay, learning_rate, ramp
from faze.engine.step import Step
from faze.model.dted import DTED
from faze.model.inference import for_inference
from faze.model.losses import angle_deg
from faze.model.objective import Objective
from faze.model.reconstruction import mean_strips, redirect_person, summary
from faze.training.feed import Feed
from faze.training.log_window import LogWindow
from faze.training.resume import Resume, WorkFolder
from faze.training.setup import TrainingSetup

TERMS = ("reconstruction_l1", "gaze_angle", "gaze_mse")
RAMPED_TERMS = ("embedding_consistency", "triplet_angular", "triplet_euclidean", "all_equal")  # compare embeddings
VALIDATED = 64  # strips at once
REDIRECTED = 16  # strips of each person: few say what the pictures are worth, and decoding is dear
MOST_LOST_STEPS = 20  # in a row without a finite loss, in which the loss scale falls a millionfold


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

    return engine.build(make_objective, group, engine=setup.engine, train=train, world=setup.world)


def learning_rates(pairs: int, train: Train) -> list[float]:
    """Give the rates of network and gaze head: the network's is warmed up, the head's is constant, then both decay."""
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
    """Give the weight of every loss term; those that compare embeddings ramp up from 0."""
    climbed = ramp(pairs, loss.ramp_pairs, global_batch)
    return {n: getattr(loss, n) for n in TERMS} | {n: getattr(loss, n) * climbed for n in RAMPED_TERMS}


def bare_model(step: Step) -> DTED:
    """Find DT-ED inside its objective and parallel wrapper."""
    module = step.model
    return (module.module if hasattr(module, "module") else module).dted


def validate(step: Step, people: PeopleStrips, setup: TrainingSetup) -> dict[str, float]:
    """Judge the network as it is, in fp32, on people not trained on.

    Returns:
        `val/gaze_deg`, the mean of people's mean gaze errors, for which every process takes its share of each person;
        `val/l1`, `val/spread` and `val/right_person` of the first strips of those who have two, redirected
        (`faze.model.reconstruction`).
    """
    dted = bare_model(step)
    with torch.inference_mode(), exact(dted):
        fast = for_inference(dted)  # anew: the weights have changed
        gaze = {"val/gaze_deg": _mean_error_deg(fast, people, setup)}
        return gaze | {f"val/{name}": value for name, value in _redirected(fast, people, setup).items()}


def _mean_error_deg(dted: DTED, people: PeopleStrips, setup: TrainingSetup) -> float:
    model, world = setup.model, setup.world
    sums = torch.zeros(len(people.names), 2, dtype=torch.float64, device=world.device)
    for person, (places, labels) in enumerate(zip(people.places(), people.labels, strict=True)):
        for first in range(world.rank * VALIDATED, len(labels), world.size * VALIDATED):
            strips = people.read(places[first : first + VALIDATED]).to(world.device)
            gaze = torch.from_numpy(labels[first : first + VALIDATED, :2]).to(world.device)
            image = to_network(strips, model.image_height_px, model.image_width_px)
            error = angle_deg(dted.gaze_vector(dted.encode(image).gaze), vector_from_pitchyaw(gaze, torch))
            sums[person] += torch.stack([error.double().sum(), torch.tensor(float(len(error)), device=world.device)])
    world.sum(sums)
    return float((sums[:, 0] / sums[:, 1]).mean())


def _redirected(dted: DTED, people: PeopleStrips, setup: TrainingSetup) -> dict[str, float]:
    """Compute the numbers of the redirected strips; every process does all, since they are few."""
    able = [(p, labels) for p, labels in zip(people.places(), people.labels, strict=True) if len(labels) > 1]
    if not able:
        return {}

    def read(person: int) -> tuple[Tensor, Tensor]:
        places, labels = able[person]
        strips = people.read(places[:REDIRECTED]).to(setup.world.device)
        of_strips = torch.from_numpy(labels[:REDIRECTED]).to(setup.world.device)
        return to_network(strips, setup.model.image_height_px, setup.model.image_width_px), of_strips

    means = mean_strips(len(able), read)
    redirected = [redirect_person(dted, read, person, means) for person in range(len(able))]
    told = summary(redirected, means)
    return {name: told[name] for name in ("l1", "spread", "right_person")}


@dataclass(frozen=True)
class Fit:
    """All that the loop needs."""

    setup: TrainingSetup
    step: Step
    feed: Feed
    validation: PeopleStrips
    work: WorkFolder
    log: RunLog | None  # of the first process; None on the others

    def run(self, resume: Resume) -> None:
        """Train from where a checkpoint says to the end; leave the last checkpoint in the work folder.

        Raises:
            Preempted: a process was asked to go; the checkpoint of the last step is written.
        """
        train, batch, world = self.setup.train, self.setup.train.global_batch, self.setup.world
        steps, first_step = -(-train.pairs // batch), resume.step
        progress = Progress("train", train.pairs, "pairs", done=first_step * batch) if self.log else lambda done: None
        window, vote, began = LogWindow.resumed(resume.window, world), Vote(world), time.perf_counter()
        for number, ready in enumerate(self.feed(range(first_step, steps)), start=first_step):
            pairs = number * batch
            self.step.set_learning_rates(learning_rates(pairs, train))
            window.add(self.step(ready, loss_weights(pairs, self.setup.loss, batch)))
            window.seconds += time.perf_counter() - began
            self._tell(number + 1, steps, window)
            leaves = number + 1 < steps and vote.any(asked() is not None)
            if leaves or self._due(number + 1, steps, train.checkpoint_every_pairs):
                self._save(number + 1, window)
            if leaves:
                self._leave(number + 1)
            progress((number + 1) * batch)
            began = time.perf_counter()

    def _due(self, step: int, steps: int, every_pairs: int) -> bool:
        """Whether a step crosses a multiple of the period, or is the last."""
        batch = self.setup.train.global_batch
        return step == steps or step * batch // every_pairs > (step - 1) * batch // every_pairs

    def _tell(self, step: int, steps: int, window: LogWindow) -> None:
        """Log and validate when due."""
        train, batch = self.setup.train, self.setup.train.global_batch
        values: dict[str, float] = {}
        if self._due(step, steps, train.log_every_pairs):
            values |= window.read(self.setup.world, batch)
            values["train/lr"] = learning_rates((step - 1) * batch, train)[0]
            values |= self.step.scaler.counts()
            if not math.isfinite(values["train/loss"]):
                self._refuse_divergence(window, step * batch)
        if self._due(step, steps, train.validate_every_pairs):
            values |= validate(self.step, self.validation, self.setup)
        if self.log and values:
            self.log.metrics(step * batch, values)

    def _save(self, step: int, window: LogWindow) -> None:
        state = window.state(self.setup.world)
        if self.log:
            at = Resume(step, step * self.setup.train.global_batch, self.log.size, state)
            self.work.save(bare_model(self.step), self.step, at)

    def _leave(self, step: int) -> None:
        """End this process, once the first one's checkpoint is written; the first speaks for all."""
        self.setup.world.wait()
        pairs = f"{step * self.setup.train.global_batch} of {self.setup.train.pairs} pairs"
        by = asked() or "a signal to another process"
        words = f"stopped by {by} after {pairs}, which the checkpoint holds; the same command goes on from there"
        raise Preempted(words if self.log else "")

    def _refuse_divergence(self, window: LogWindow, pairs: int) -> None:
        """End a training whose weights are lost: a loss scaler skips the steps that overflow, but not for ever."""
        in_a_row = -self.setup.world.least(-int(window.lost))
        if not self.step.scaler.is_enabled() or in_a_row >= MOST_LOST_STEPS:
            raise UserError(f"the loss is not a number after {pairs} pairs; lower train.base_lr or train.head_lr")
