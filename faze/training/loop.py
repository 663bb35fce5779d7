"""Training of DT-ED: schedules, validation, log lines, checkpoints. Paper section 3.1.

Fit.run() is the loop. It does not branch on switches, processes or devices; `faze.engine` handles those.
Schedules are counted in pairs, so they are the same for every tier and any number of processes.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from faze import engine
from faze.base.errors import UserError
from faze.base.geometry import vector_from_pitchyaw
from faze.base.preemption import Preempted, received_signal
from faze.base.progress import Progress
from faze.base.run_log import RunLog
from faze.config.parameters import Loss, Train
from faze.data.network_input import to_network
from faze.data.pairs import PeopleStrips
from faze.engine.parallel import Vote, World
from faze.engine.precision import Precision, exact
from faze.engine.step import Step
from faze.model.dted import DTED
from faze.model.inference import for_inference
from faze.model.losses import angle_deg
from faze.model.objective import Objective
from faze.model.reconstruction import mean_strips, redirect_person, summary
from faze.training.feed import Feed, TrainingSetup
from faze.training.resume import Resume, WorkFolder

TERMS = ("reconstruction_l1", "gaze_angle", "gaze_mse")
RAMPED_TERMS = ("embedding_consistency", "triplet_angular", "triplet_euclidean", "all_equal")  # compare embeddings
VALIDATED = 64  # strips at once
REDIRECTED = 16  # strips of each person: a few suffice to judge image quality, and decoding is expensive
MOST_LOST_STEPS = 20  # consecutive steps without a finite loss, in which the loss scale falls a millionfold


def build_step(setup: TrainingSetup) -> Step:
    """Build the step of a tier; the same seed gives the same initial weights in every tier."""
    train = setup.train

    def make_objective(precision: Precision) -> nn.Module:
        torch.manual_seed(setup.seed)
        return Objective(DTED(setup.model, autocast=precision.autocast), setup.loss)

    def groups(objective: nn.Module) -> dict[str, list[dict]]:
        head = [p for name, p in objective.named_parameters() if ".gaze" in name]
        rest = [p for name, p in objective.named_parameters() if ".gaze" not in name]
        return {"network": [{"params": rest, "lr": train.base_lr}, {"params": head, "lr": train.head_lr}]}

    return engine.build(make_objective, groups, engine=setup.engine, train=train, world=setup.world)


def bare_model(step: Step) -> DTED:
    """Return DT-ED without its objective and parallel wrapper."""
    module = step.model
    return (module.module if hasattr(module, "module") else module).dted


# --- schedules ------------------------------------------------------------------------------------------------------


def ramp(pairs: int, ramp_pairs: int, global_batch: int) -> float:
    """Return the value of a linear ramp from 0 to 1 after `pairs` pairs.

    Its length is truncated to whole steps, as in the released code: int(ramp_pairs / global_batch).
    """
    steps = ramp_pairs // global_batch
    return min(pairs // global_batch / steps, 1.0) if steps else 1.0


def learning_rate(pairs: int, train: Train) -> float:
    """Return the network's learning rate before its decay: a linear warm-up from base_lr to the peak (appendix B).

    `lr_scaling` relates the peak to the global batch. linear: one step of k pairs moves the weights as far as k steps
    of one pair (Goyal et al. 2017, arXiv 1706.02677). sqrt: the variance of a step stays constant (Krizhevsky 2014,
    arXiv 1404.5997; Hoffer et al. 2017, arXiv 1705.08741). none: the peak is base_lr.
    """
    batch, base_lr = train.global_batch, train.base_lr
    peak = base_lr * {"linear": batch, "sqrt": math.sqrt(batch), "none": 1}[train.lr_scaling]
    return base_lr + (peak - base_lr) * ramp(pairs, train.warmup_pairs, batch)


def decay(pairs: int, total_pairs: int, share: float) -> float:
    """Return the factor for the learning rates: a half cosine from 1 to 0 over the last `share` of training."""
    if not share:
        return 1.0
    fallen = max(0.0, 1.0 - (1.0 - pairs / total_pairs) / share)
    return 0.5 * (1.0 + math.cos(math.pi * fallen))


def learning_rates(pairs: int, train: Train) -> list[float]:
    """Return the learning rates of the network and the gaze head. Only the former is warmed up; both decay."""
    factor = decay(pairs, train.pairs, train.decay_share)
    return [learning_rate(pairs, train) * factor, train.head_lr * factor]


def loss_weights(pairs: int, loss: Loss, global_batch: int) -> dict[str, float]:
    """Return the weight of every loss term; the weights of terms that compare embeddings ramp up from 0."""
    factor = ramp(pairs, loss.ramp_pairs, global_batch)
    return {n: getattr(loss, n) for n in TERMS} | {n: getattr(loss, n) * factor for n in RAMPED_TERMS}


# --- validation -----------------------------------------------------------------------------------------------------


def validate(step: Step, people: PeopleStrips, setup: TrainingSetup) -> dict[str, float]:
    """Evaluate the current network in fp32 on people who are not used for training.

    Returns:
        `val/gaze_deg`, the mean over people of their mean gaze errors; every process evaluates its share of each
        person's strips. Also `val/l1`, `val/spread` and `val/right_person` (`faze.model.reconstruction`), measured on
        the redirected first strips of people with two or more strips.
    """
    dted = bare_model(step)
    with torch.inference_mode(), exact(dted):
        fast = for_inference(dted)  # again each time, since it copies the weights
        gaze = {"val/gaze_deg": _mean_error_deg(fast, people, setup)}
        return gaze | {f"val/{name}": value for name, value in _redirected(fast, people, setup).items()}


def _mean_error_deg(dted: DTED, people: PeopleStrips, setup: TrainingSetup) -> float:
    model, world = setup.model, setup.world
    sums = torch.zeros(len(people.names), 2, dtype=torch.float64, device=world.device)
    for person, (indices, labels) in enumerate(zip(people.person_indices(), people.labels, strict=True)):
        for first in range(world.rank * VALIDATED, len(labels), world.size * VALIDATED):
            strips = people.gather(indices[first : first + VALIDATED]).to(world.device)
            gaze = torch.from_numpy(labels[first : first + VALIDATED, :2]).to(world.device)
            image = to_network(strips, model.image_height_px, model.image_width_px)
            error = angle_deg(dted.gaze_vector(dted.encode(image).gaze), vector_from_pitchyaw(gaze, torch))
            sums[person] += torch.stack([error.double().sum(), torch.tensor(float(len(error)), device=world.device)])
    world.sum(sums)
    return float((sums[:, 0] / sums[:, 1]).mean())


def _redirected(dted: DTED, people: PeopleStrips, setup: TrainingSetup) -> dict[str, float]:
    """Evaluate redirected strips; every process evaluates all of them, since there are few."""
    usable = [(i, labels) for i, labels in zip(people.person_indices(), people.labels, strict=True) if len(labels) > 1]
    if not usable:
        return {}

    def load(person: int) -> tuple[Tensor, Tensor]:
        indices, labels = usable[person]
        strips = people.gather(indices[:REDIRECTED]).to(setup.world.device)
        labels = torch.from_numpy(labels[:REDIRECTED]).to(setup.world.device)
        return to_network(strips, setup.model.image_height_px, setup.model.image_width_px), labels

    means = mean_strips(len(usable), load)
    found = summary([redirect_person(dted, load, person, means) for person in range(len(usable))], means)
    return {name: found[name] for name in ("l1", "spread", "right_person")}


# --- the loop -------------------------------------------------------------------------------------------------------


@dataclass
class LogWindow:
    """Loss terms and time since the last log line; terms stay on the device until a line is written."""

    terms: dict[str, Tensor] = field(default_factory=dict)
    steps: int = 0
    seconds: float = 0.0
    lost: Tensor | float = 0.0  # consecutive steps, up to the last one, without a finite loss; not reset by a log line

    def add(self, terms: Mapping[str, Tensor]) -> None:
        """Add the loss terms of one step."""
        self.terms = {name: self.terms.get(name, 0.0) + term for name, term in terms.items()}
        self.steps += 1
        self.lost = (self.lost + 1.0) * ~terms["loss"].isfinite()

    def flush(self, world: World, global_batch: int) -> dict[str, float]:
        """Return the means over steps and processes and the rate in images/s; reset the window. A collective call."""
        began = time.perf_counter()
        means = world.sum(torch.stack(list(self.terms.values()))) / (world.size * self.steps)
        values = {f"train/{name}": float(mean) for name, mean in zip(self.terms, means, strict=True)}
        self.seconds += time.perf_counter() - began  # this waits for the device, which is training time too
        values["train/images_per_s"] = 2 * global_batch * self.steps / self.seconds
        self.terms, self.steps, self.seconds = {}, 0, 0.0
        return values

    def state(self, world: World) -> dict[str, Any]:
        """Return the state for a checkpoint: one row of sums per process. A collective call.

        A sum over processes would not suffice: the next log line, summed in another order, would differ in its last
        digit.
        """
        if not self.steps and not isinstance(self.lost, Tensor):
            return {}
        own = torch.stack([*self.terms.values(), torch.as_tensor(self.lost)])
        rows = torch.zeros(world.size, len(own), dtype=own.dtype, device=own.device)
        rows[world.rank] = own
        return {"names": list(self.terms), "rows": world.sum(rows), "steps": self.steps, "seconds": self.seconds}

    @classmethod
    def resumed(cls, state: Mapping[str, Any], world: World) -> "LogWindow":
        """Restore the state from a checkpoint; with a different number of processes, use the mean of its rows."""
        if not state:
            return cls()
        rows = state["rows"].to(world.device)
        own = rows[world.rank] if len(rows) == world.size else rows.mean(0)
        *sums, lost = own.clone()
        return cls(dict(zip(state["names"], sums, strict=True)), state["steps"], state["seconds"], lost)


@dataclass(frozen=True)
class Fit:
    """A training run that is ready to start."""

    setup: TrainingSetup
    step: Step
    feed: Feed
    validation: PeopleStrips
    work: WorkFolder
    log: RunLog | None  # None on all processes but the first

    def run(self, resume: Resume) -> None:
        """Train from a checkpoint's position to the end; leave the last checkpoint in the work folder.

        Raises:
            Preempted: a process was asked to stop; a checkpoint of the last step has been written.
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
            self._report(number + 1, steps, window)
            leaves = number + 1 < steps and vote.any(received_signal() is not None)
            if leaves or self._due(number + 1, steps, train.checkpoint_every_pairs):
                self._save(number + 1, window)
            if leaves:
                self._leave(number + 1)
            progress((number + 1) * batch)
            began = time.perf_counter()

    def _due(self, step: int, steps: int, every_pairs: int) -> bool:
        """Return whether a step crosses a multiple of the period or is the last one."""
        batch = self.setup.train.global_batch
        return step == steps or step * batch // every_pairs > (step - 1) * batch // every_pairs

    def _report(self, step: int, steps: int, window: LogWindow) -> None:
        """Log and validate when due."""
        train, batch = self.setup.train, self.setup.train.global_batch
        values: dict[str, float] = {}
        if self._due(step, steps, train.log_every_pairs):
            values |= window.flush(self.setup.world, batch)
            values["train/lr"] = learning_rates((step - 1) * batch, train)[0]
            values |= self.step.counts()
            if not math.isfinite(values["train/loss"]):
                self._check_divergence(window, step * batch)
        if self._due(step, steps, train.validate_every_pairs):
            values |= validate(self.step, self.validation, self.setup)
        if self.log and values:
            self.log.metrics(step * batch, values)

    def _check_divergence(self, window: LogWindow, pairs: int) -> None:
        """Stop a run that has diverged. A loss scaler skips a few overflowing steps, but not indefinitely many."""
        in_a_row = -self.setup.world.least(-int(window.lost))
        if not any(scaler.is_enabled() for scaler in self.step.scalers) or in_a_row >= MOST_LOST_STEPS:
            raise UserError(f"the loss is not finite after {pairs} pairs; lower train.base_lr or train.head_lr")

    def _save(self, step: int, window: LogWindow) -> None:
        state = window.state(self.setup.world)
        if self.log:
            at = Resume(step, step * self.setup.train.global_batch, self.log.size, state)
            self.work.save(bare_model(self.step), self.step, at)

    def _leave(self, step: int) -> None:
        """Exit once the first process has written its checkpoint; only the first process prints a message."""
        self.setup.world.wait()
        done, total = step * self.setup.train.global_batch, self.setup.train.pairs
        by = received_signal() or "a signal to another process"
        message = f"stopped by {by} after {done} of {total} pairs, saved in the checkpoint; run the same command again"
        raise Preempted(f"{message} to resume" if self.log else "")
