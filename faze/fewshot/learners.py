"""Few-shot learners: what each learns from people once, and how it adapts to a new person. Paper section 3.2.

meta_train goes from people's codes to what the learner's file holds; errors goes from that and calibrations of people
to the error on each one's query. k = 0, the trained gaze head's own error, belongs to no learner.

Shapes: M calibrations, R numbers of steps after which the error is measured.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faze.fewshot.adaptation import Start, fine_tuned_errors_deg
from faze.fewshot.draws import Calibration, Person, TaskDraws, draw_calibrations
from faze.fewshot.meta import Checkpoint, Rule, meta_train
from faze.fewshot.mlp import Activation, Weights, random_weights
from faze.fewshot.stopping import best_steps, error_at, recorded_steps
from faze.files import whole_file
from faze.geometry import angular_error, pitchyaw_from_vector, vector_from_pitchyaw
from faze.sections import Fewshot
from faze.telemetry import Progress

_SCALE = "rate_scale_"  # begins the names of what meta_sgd learnt about each parameter's rate


@dataclass(frozen=True)
class Learned:
    """What meta-training leaves: a learner's file."""

    learner: str
    shots: list[int]
    settings: dict[str, object]
    state: dict[str, Tensor] = field(default_factory=dict)  # each (number of shots, ...)
    history: list[dict[str, object]] = field(default_factory=list)  # fields of meta.Record
    activation: Activation = "selu"
    outer_steps: list[int] = field(default_factory=list)  # after which each k's weights were kept
    stop_steps: list[int] = field(default_factory=list)  # of adaptation, best for val people at each k; [] without any
    left_out: list[str] = field(default_factory=list)  # a sentence about each person with too few entries

    @property
    def start(self) -> Start:
        """Where adaptation starts."""
        scales = {name: self.state[_SCALE + name] for name in Weights._fields if _SCALE + name in self.state}
        weights = Weights(*(self.state[name] for name in Weights._fields))
        return Start(self.shots, weights, Weights(**scales) if scales else None, self.activation)


@dataclass(frozen=True)
class Errors:
    """Mean angle over the query of each of M calibrations, in degrees."""

    adapted_deg: NDArray[np.float64]  # (M,)
    start_deg: NDArray[np.float64]  # (M,) before any step; NaN for a learner that takes none
    steps: NDArray[np.int64]  # (M,) of adaptation
    trace_deg: NDArray[np.float64]  # (M, R) after each of trace_steps
    trace_steps: Sequence[int]  # R


@dataclass(frozen=True)
class Training:
    """What a learner may learn from."""

    train: Sequence[Person]
    val: Sequence[Person]  # of whom there may be none
    gaze_head: Weights | None = None  # the trained one (M = 1), where the codes come with it
    checkpoint: Checkpoint = dataclasses.field(default_factory=Checkpoint)


class Learner(Protocol):
    """What every learner can do."""

    def meta_train(self, training: Training, settings: Fewshot, *, seed: int, threads: int) -> Learned:
        """Learn from people; validate on others."""
        ...

    def errors(
        self,
        learned: Learned,
        people: Sequence[Person],
        draws: Sequence[Calibration],
        settings: Fewshot,
        *,
        threads: int,
    ) -> Errors:
        """Adapt to every calibration and measure on its person's query."""
        ...


class FineTuned:
    """A gaze network for each k, fine-tuned on the k samples."""

    name: str

    def errors(
        self,
        learned: Learned,
        people: Sequence[Person],
        draws: Sequence[Calibration],
        settings: Fewshot,
        *,
        threads: int,
    ) -> Errors:
        """Fine-tune each k's weights on every calibration of that k."""
        steps, progress = recorded_steps(settings), Progress("adapt", len(draws), "models")
        trace = fine_tuned_errors_deg(learned.start, people, draws, settings, threads=threads, progress=progress)
        chosen = dict.fromkeys(learned.shots, settings.adapt_steps)
        if settings.stopping == "validation":
            chosen = self._stop_steps(learned, settings)
        adapted, taken = error_at(trace, draws, chosen, steps)
        return Errors(adapted, trace[:, 0], taken, trace, steps)

    def _stop_steps(self, learned: Learned, settings: Fewshot) -> dict[int, int]:
        if not learned.stop_steps:
            raise ValueError(
                f"the learner {self.name} was trained without people of the split val, on whom to choose when to stop: "
                "set fewshot.stopping: fixed"
            )
        if not set(learned.stop_steps) <= set(recorded_steps(settings)):
            raise ValueError(
                f"the learner {self.name} is to stop after {learned.stop_steps} steps, which fewshot.record_steps and "
                "fewshot.adapt_steps no longer hold: run meta_train again"
            )
        return dict(zip(learned.shots, learned.stop_steps, strict=True))

    def _learned(
        self, start: Start, training: Training, settings: Fewshot, *, threads: int, **about: object
    ) -> Learned:
        """With the steps of adaptation that are best for val people."""
        stop = []
        if training.val:
            draws = draw_calibrations(training.val, settings, repeats=settings.repeats)
            errors = fine_tuned_errors_deg(start, training.val, draws, settings, threads=threads)
            stop = best_steps(errors, draws, start.shots, recorded_steps(settings))
        scales = {} if start.scales is None else {_SCALE + name: s for name, s in start.scales._asdict().items()}
        return Learned(
            self.name,
            list(start.shots),
            _plain(settings),
            state=start.weights._asdict() | scales,
            activation=start.activation,
            stop_steps=stop,
            **about,
        )


class MetaLearner(FineTuned):
    """A network, meta-trained so that fine-tuning does well; see faze.fewshot.meta for the rules."""

    def __init__(self, rule: Rule) -> None:
        self.name = self._rule = rule

    def meta_train(self, training: Training, settings: Fewshot, *, seed: int, threads: int) -> Learned:
        """Train the initial weights; validate by adapting, as at test, to one calibration of each k and val person."""
        shots, val = list(settings.shots), training.val
        tasks = TaskDraws(
            training.train, tasks=settings.tasks, support=max(shots), query=settings.meta_query, seed=seed
        )
        initial = self._initial(training, settings, seed)
        draws, column = draw_calibrations(val, settings, repeats=1), slice(-1, None)
        if settings.stopping == "validation":
            column = slice(None)  # with the best of the recorded steps, since these will be taken

        def validate(weights: Weights, scales: Weights) -> list[float] | None:
            if not val:
                return None
            start = Start(shots, weights, scales, initial.activation)
            errors = fine_tuned_errors_deg(start, val, draws, settings, threads=threads)
            return errors.reshape(len(shots), len(val), -1)[..., column].mean(axis=1).min(axis=1).tolist()

        state = meta_train(
            self._rule,
            initial.weights,
            tasks,
            settings,
            validate,
            training.checkpoint,
            activation=initial.activation,
        )
        scales = state.best_scales if self._rule == "meta_sgd" else None
        return self._learned(
            Start(shots, state.best, scales, initial.activation),
            training,
            settings,
            threads=threads,
            history=[dataclasses.asdict(record) for record in state.history],
            outer_steps=state.best_steps,
        )

    def _initial(self, training: Training, settings: Fewshot, seed: int) -> Start:
        if settings.init == "gaze_head":
            return trained_gaze_head(
                training, settings, "meta-training starts from: encode again, or set fewshot.init: random"
            )
        inputs = training.train[0].code.shape[1]
        return Start(settings.shots, random_weights(len(settings.shots), inputs, settings.hidden, seed))


class GazeHead(FineTuned):
    """The trained gaze head, fine-tuned with the activation that it was trained with: what meta-learning must beat."""

    name = "none"

    def meta_train(self, training: Training, settings: Fewshot, *, seed: int, threads: int) -> Learned:
        """Take the head; on val people, see how many steps are best."""
        start = trained_gaze_head(
            training, settings, "the learner none fine-tunes: encode again, or take none off fewshot.learners"
        )
        return self._learned(start, training, settings, threads=threads)


def trained_gaze_head(training: Training, settings: Fewshot, use: str) -> Start:
    """The trained gaze head as the start of every k, with its own activation; `use` says for what, and what else to do.

    Raises:
        ValueError: the store of codes came without it.
    """
    if training.gaze_head is None:
        raise ValueError(f"the store of codes comes without the trained gaze head, which {use}")
    weights = training.gaze_head.take(torch.zeros(len(settings.shots), dtype=torch.int64))
    return Start(list(settings.shots), weights, activation="relu")


class Offset:
    """The person's mean angular offset, in pitch and yaw, over the k samples, subtracted from gaze_hat."""

    def meta_train(self, training: Training, settings: Fewshot, *, seed: int, threads: int) -> Learned:
        """There is nothing to learn."""
        return Learned("offset", list(settings.shots), _plain(settings))

    def errors(
        self,
        learned: Learned,
        people: Sequence[Person],
        draws: Sequence[Calibration],
        settings: Fewshot,
        *,
        threads: int,
    ) -> Errors:
        """Correct every query by its calibration's offset."""
        adapted = [_offset_error_deg(people[draw.person], draw.support, settings.query_entries) for draw in draws]
        nothing = np.full(len(draws), np.nan)
        return Errors(np.array(adapted), nothing, np.zeros(len(draws), np.int64), np.empty((len(draws), 0)), ())


LEARNERS: dict[str, Learner] = {
    **{rule: MetaLearner(rule) for rule in ("maml", "fomaml", "meta_sgd", "reference")},
    "none": GazeHead(),
    "offset": Offset(),
}


def load_learned(path: Path | str, learner: str | None, shots: Sequence[int]) -> Learned:
    """Read a learner's file and check that it serves; any learner's, where None is asked for.

    Raises:
        ValueError: it is no such file, is another learner's, or lacks one of the k.
    """
    try:
        learned = Learned(**torch.load(path, map_location="cpu", weights_only=True))
    except OSError:
        raise
    except Exception:  # torn bytes make the unpickler raise whatever they happen to lead it to
        raise ValueError(f"{path}: is not the file of a learner: run meta_train again") from None
    if learner not in (None, learned.learner):
        raise ValueError(f"{path}: is of the learner {learned.learner}, not {learner}")
    if missing := sorted(set(shots) - set(learned.shots)):
        raise ValueError(f"{path}: was trained for k = {learned.shots}, not for {missing}: run meta_train again")
    return learned


def save_learned(learned: Learned, path: Path | str) -> None:
    """Write a learner's file, whole or not at all."""
    with whole_file(path) as temporary:
        torch.save({f.name: getattr(learned, f.name) for f in dataclasses.fields(learned)}, temporary)


def unadapted_error_deg(person: Person, query_entries: int) -> float:
    """Mean angle, at k = 0, of the trained gaze head's own gaze_hat over a person's query."""
    error_rad = angular_error(person.gaze_hat[-query_entries:], person.gaze[-query_entries:])
    return float(np.degrees(error_rad.mean()))


def offset_rad(person: Person, support: NDArray[np.int64]) -> NDArray[np.float64]:
    """(2,): mean over the samples of estimate minus truth, in pitch and yaw."""
    offset = pitchyaw_from_vector(person.gaze_hat[support]) - pitchyaw_from_vector(person.gaze[support])
    offset[:, 1] = np.remainder(offset[:, 1] + np.pi, 2 * np.pi) - np.pi  # yaw just beyond 180 degrees is near, not far
    return offset.mean(axis=0)


def _offset_error_deg(person: Person, support: NDArray[np.int64], query_entries: int) -> float:
    gaze_hat = pitchyaw_from_vector(person.gaze_hat[-query_entries:])
    corrected = vector_from_pitchyaw(gaze_hat - offset_rad(person, support))
    return float(np.degrees(angular_error(corrected, person.gaze[-query_entries:]).mean()))


def _plain(settings: Fewshot) -> dict[str, object]:
    return {name: list(v) if isinstance(v, tuple) else v for name, v in dataclasses.asdict(settings).items()}
