"""The training loop: learning rates, log lines, validation, checkpoints.

Fit.run() is the loop. It does not branch on switches, processes, devices or workloads.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from faze.base.errors import UserError
from faze.base.progress import Progress
from faze.base.run_log import RunLog
from faze.engine.parallel import World
from faze.engine.step import Clock, Step, no_clock
from faze.engine.switches import Switch
from faze.engine.transfer import Feed, Tensors
from faze.training.resume import Resume, WorkFolder

MOST_LOST_STEPS = 20  # consecutive steps without a finite loss, in which the loss scale falls a millionfold


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

    def flush(self, world: World, schedule: "Schedule") -> dict[str, float]:
        """Return the means over steps and processes and the throughput; reset the window. A collective call."""
        began = time.perf_counter()
        means = world.sum(torch.stack(list(self.terms.values()))) / (world.size * self.steps)
        values = {f"train/{name}": float(mean) for name, mean in zip(self.terms, means, strict=True)}
        self.seconds += time.perf_counter() - began  # this waits for the device, which is training time too
        unit, per_sample = schedule.throughput
        values[f"train/{unit}"] = per_sample * schedule.batch * self.steps / self.seconds
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
class Schedule:
    """Length and periods of a training, counted in samples; the samples of DT-ED are pairs."""

    samples: int
    batch: int  # samples per step, over all processes
    log_every: int
    validate_every: int
    checkpoint_every: int
    unit: str = "samples"
    throughput: tuple[str, int] = ("samples_per_s", 1)  # name in the log, and how many of its unit a sample is
    rate_keys: str = "the learning rates"  # to lower if the loss diverges

    @property
    def steps(self) -> int:
        """Number of steps of the training."""
        return -(-self.samples // self.batch)


@dataclass(frozen=True)
class Training:
    """A training that is ready to start: its step, its batches and what depends on its position.

    `faze.training.dted_training` builds that of DT-ED, `faze.training.workload_training` that of any workload.
    """

    step: Step
    feed: Feed
    module: nn.Module  # with the trained weights, without objective and parallel wrapper
    world: World
    schedule: Schedule
    rates: Callable[[int], list[float]]  # samples seen -> learning rate of each parameter group
    weights: Callable[[int], dict[str, float]]  # samples seen -> weight of each loss term
    validate: Callable[[], dict[str, float]]  # a collective call
    about: Mapping[str, Any] = field(default_factory=dict)  # further entries of the checkpoint

    @property
    def switches(self) -> tuple[Switch, ...]:
        """The state of every switch."""
        return (*self.step.switches, *self.feed.switches)

    def run(self, batches: Iterable[Tensors], clock: Clock = no_clock) -> None:
        """Run one step per batch for a measurement, with the loss weights from the end of training."""
        weights = self.weights(self.schedule.samples)
        for batch in batches:
            self.step(batch, weights, clock)

    def begin(self, steps: int, clock: Clock = no_clock) -> Iterator[Tensors]:
        """Run the first step of a measurement and those whose batches are prefetched during it.

        Returns:
            The batches of the next `steps` steps; reading them takes as long as during training.
        """
        first = 1 + self.feed.transfer.ahead
        batches = self.feed(range(first + steps), clock)
        self.run(itertools.islice(batches, first), clock)
        return batches


@dataclass(frozen=True)
class Fit:
    """The loop of a training."""

    training: Training
    work: WorkFolder
    log: RunLog | None  # None on all processes but the first

    def run(self, resume: Resume) -> None:
        """Train from a checkpoint's position to the end; leave the last checkpoint in the work folder.

        A training of no steps only validates.
        """
        training, schedule, world = self.training, self.training.schedule, self.training.world
        steps, first_step, step = schedule.steps, resume.step, training.step
        if not steps:
            values = training.validate()
            if self.log:
                self.log.metrics(0, values)
            self._save(0, LogWindow())
            return
        done = first_step * schedule.batch
        progress = Progress("train", schedule.samples, schedule.unit, done=done) if self.log else lambda done: None
        window, began = LogWindow.resumed(resume.window, world), time.perf_counter()
        for number, ready in enumerate(training.feed(range(first_step, steps)), start=first_step):
            seen = number * schedule.batch
            step.set_learning_rates(training.rates(seen))
            window.add(step(ready, training.weights(seen)))
            window.seconds += time.perf_counter() - began
            self._report(number + 1, window)
            if self._due(number + 1, schedule.checkpoint_every):
                self._save(number + 1, window)
            progress((number + 1) * schedule.batch)
            began = time.perf_counter()

    def _due(self, step: int, every: int) -> bool:
        """Return whether a step crosses a multiple of the period or is the last one."""
        batch = self.training.schedule.batch
        return step == self.training.schedule.steps or step * batch // every > (step - 1) * batch // every

    def _report(self, step: int, window: LogWindow) -> None:
        """Log and validate when due."""
        training, schedule = self.training, self.training.schedule
        values: dict[str, float] = {}
        if self._due(step, schedule.log_every):
            values |= window.flush(training.world, schedule)
            rates = training.rates((step - 1) * schedule.batch)
            for name, rate in zip(training.step.group_names, rates, strict=True):
                values[f"train/lr/{name}" if name else "train/lr"] = rate
            values |= training.step.counts()
            if not math.isfinite(values["train/loss"]):
                self._check_divergence(window, step * schedule.batch)
        if self._due(step, schedule.validate_every):
            values |= training.validate()
        if self.log and values:
            self.log.metrics(step * schedule.batch, values)

    def _check_divergence(self, window: LogWindow, seen: int) -> None:
        """Stop a run that has diverged. A loss scaler skips a few overflowing steps, but not indefinitely many."""
        in_a_row, schedule = -self.training.world.least(-int(window.lost)), self.training.schedule
        scaled = any(scaler.is_enabled() for scaler in self.training.step.scalers)
        if not scaled or in_a_row >= MOST_LOST_STEPS:
            raise UserError(f"the loss is not finite after {seen} {schedule.unit}; lower {schedule.rate_keys}")

    def _save(self, step: int, window: LogWindow) -> None:
        training = self.training
        state = window.state(training.world)
        if self.log:
            at = Resume(step, step * training.schedule.batch, self.log.size, state)
            self.work.save(training.module, training.step, at, training.about)
