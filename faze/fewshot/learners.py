"""Few-shot learners: what each learns from people once, and how it adapts to a new person. Paper section 3.2.

meta_train goes from people's codes to what the learner's file holds; errors goes from that and calibrations of people
to the error on each one's query. k = 0, the trained gaze head's own error, belongs to no learner.

Shapes: M calibrations, m of one chunk, Q query entries, F inputs.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faze.fewshot.draws import Calibration, Person, TaskDraws, draw_calibrations, query_of, support_of
from faze.fewshot.kernel import adapt
from faze.fewshot.meta import meta_train
from faze.fewshot.mlp import Batch, Weights, mean_angle_deg, random_weights
from faze.files import whole_file
from faze.geometry import angular_error, pitchyaw_from_vector, vector_from_pitchyaw
from faze.sections import Fewshot
from faze.telemetry import Progress


@dataclass(frozen=True)
class Learned:
    """What meta-training leaves: a learner's file."""

    learner: str
    shots: list[int]
    settings: dict[str, object]
    state: dict[str, Tensor] = field(default_factory=dict)  # each (number of shots, ...)
    history: list[dict[str, object]] = field(default_factory=list)  # fields of meta.Record
    left_out: list[str] = field(default_factory=list)  # a sentence about each person with too few entries


@dataclass(frozen=True)
class Errors:
    """Mean angle over the query of each of M calibrations, in degrees: (M,)."""

    adapted_deg: NDArray[np.float64]
    start_deg: NDArray[np.float64]  # of a meta-model before any step; NaN for a learner that has none
    steps: int  # of adaptation


class Learner(Protocol):
    """What every learner can do."""

    def meta_train(
        self, train: Sequence[Person], val: Sequence[Person], settings: Fewshot, *, seed: int, threads: int
    ) -> Learned:
        """Learn from people; validate on others, of whom there may be none."""
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


class Maml:
    """A gaze network for each k, meta-trained with the true second-order gradient, fine-tuned on the k samples."""

    def meta_train(
        self, train: Sequence[Person], val: Sequence[Person], settings: Fewshot, *, seed: int, threads: int
    ) -> Learned:
        """Train the initial weights; validate by adapting, as at test, to one calibration of each k and val person."""
        shots = list(settings.shots)
        tasks = TaskDraws(train, tasks=settings.tasks, support=max(shots), query=settings.meta_query, seed=seed)
        initial = random_weights(len(shots), train[0].code.shape[1], settings.hidden, seed)
        draws = draw_calibrations(val, settings, repeats=1)

        def validate(weights: Weights) -> list[float] | None:
            if not val:
                return None
            errors = fine_tuned_errors_deg(weights, shots, val, draws, settings, threads=threads)
            return errors.reshape(len(shots), -1).mean(axis=1).tolist()

        weights, history = meta_train(initial, tasks, settings, validate)
        return Learned(
            "maml", shots, _plain(settings), weights._asdict(), [dataclasses.asdict(record) for record in history]
        )

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
        weights, shots = Weights(**learned.state), learned.shots
        inputs, found = weights.hidden_weight.shape[1], people[0].code.shape[1]
        if inputs != found:
            raise ValueError(
                f"{people[0]} has gaze codes of {found} numbers, the learner of {inputs}: run meta_train again"
            )
        progress = Progress("adapt", len(draws), "models")
        no_steps = dataclasses.replace(settings, adapt_steps=0)
        return Errors(
            fine_tuned_errors_deg(weights, shots, people, draws, settings, threads=threads, progress=progress),
            fine_tuned_errors_deg(weights, shots, people, draws, no_steps, threads=threads),
            settings.adapt_steps,
        )


class Offset:
    """The person's mean angular offset, in pitch and yaw, over the k samples, subtracted from gaze_hat."""

    def meta_train(
        self, train: Sequence[Person], val: Sequence[Person], settings: Fewshot, *, seed: int, threads: int
    ) -> Learned:
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
        return Errors(np.array(adapted), np.full(len(draws), np.nan), steps=0)


LEARNERS: dict[str, Learner] = {"maml": Maml(), "offset": Offset()}


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


def fine_tuned_errors_deg(
    weights: Weights,
    shots: Sequence[int],
    people: Sequence[Person],
    draws: Sequence[Calibration],
    settings: Fewshot,
    *,
    threads: int,
    progress: Callable[[int], None] = lambda done: None,
) -> NDArray[np.float64]:
    """Fine-tune the weights of each calibration's k on its samples.

    Args:
        weights: one network per entry of shots.
        shots: k of each.
        people: with at least settings.query_entries entries beside the pool.
        draws: M calibrations of them, of any of these k.
        settings: adapt_steps, adapt_lr, query_entries.
        threads: chunks at work at once.
        progress: called with the number of calibrations done.

    Returns:
        (M,) mean angles over the person's query, in degrees.

    Raises:
        ValueError: the adaptation diverged.
    """
    errors, done = np.empty(len(draws)), 0
    for position, k in enumerate(shots):
        models = np.flatnonzero([draw.shots == k for draw in draws])
        if not len(models):
            continue
        support = support_of(people, [draws[m] for m in models])
        initial = weights.take(torch.tensor([position]))
        for chunk, adapted in adapt(
            initial, support, steps=settings.adapt_steps, lr=settings.adapt_lr, threads=threads
        ):
            of = models[chunk.numpy()]
            errors[of] = _mean_angles_deg(adapted, query_of(people, [draws[m] for m in of], settings.query_entries))
            done += len(of)
            progress(done)
    _check_finite(errors, people, draws)
    return errors


def _check_finite(errors: NDArray[np.float64], people: Sequence[Person], draws: Sequence[Calibration]) -> None:
    if not np.isfinite(errors).all():
        lost = draws[int(np.argmin(np.isfinite(errors)))]
        raise ValueError(f"adaptation of {people[lost.person]} with k = {lost.shots} diverged: lower fewshot.adapt_lr")


def _mean_angles_deg(weights: Weights, batch: Batch) -> NDArray[np.float64]:
    alike = torch.full(batch.code.shape[:2], 1 / batch.code.shape[1])
    with torch.inference_mode():
        return mean_angle_deg(weights, batch.code, batch.gaze, alike).double().numpy()


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
