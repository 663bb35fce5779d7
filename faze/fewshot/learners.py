"""Few-shot learners: what each learns from people once, and how it adapts to a new person. Paper section 3.2.

meta_train goes from people's codes to what the learner's file holds; errors goes from that and calibrations of people
to the error on each one's query. k = 0, the trained gaze head's own error, belongs to no learner.

Shapes: M calibrations, R numbers of steps after which the error is measured.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.geometry import angular_error
from faze.base.progress import Progress
from faze.config.parameters import Fewshot
from faze.fewshot.draws import Calibration, PersonCodes, TaskDraws, draw_calibrations
from faze.fewshot.fine_tuning import Errors, InitialNetworks, fine_tuned_errors_deg, fine_tuned_gaze
from faze.fewshot.learner_file import Learned, plain, state_of
from faze.fewshot.meta_training import ResumeFile, Rule, meta_train
from faze.fewshot.mlp import Weights, random_weights
from faze.fewshot.offset import Offset
from faze.fewshot.stopping import best_steps, error_at, recorded_steps


@dataclass(frozen=True)
class MetaTraining:
    """What a learner may learn from."""

    train: Sequence[PersonCodes]
    val: Sequence[PersonCodes]  # of whom there may be none
    gaze_head: Weights | None = None  # the trained one (M = 1), where the codes come with it
    checkpoint: ResumeFile = dataclasses.field(default_factory=ResumeFile)


class Learner(Protocol):
    """What every learner can do."""

    learns_from_tasks: bool  # needs people of the split train
    takes_steps: bool  # of which val people may choose the number

    def meta_train(self, training: MetaTraining, settings: Fewshot, *, seed: int, threads: int) -> Learned:
        """Learn from people; validate on others."""
        ...

    def errors(
        self,
        learned: Learned,
        people: Sequence[PersonCodes],
        draws: Sequence[Calibration],
        settings: Fewshot,
        *,
        threads: int,
    ) -> Errors:
        """Adapt to every calibration and measure on its person's query."""
        ...

    def gaze(
        self,
        learned: Learned,
        people: Sequence[PersonCodes],
        draws: Sequence[Calibration],
        settings: Fewshot,
        *,
        threads: int,
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Adapt again; positions (m,) of some calibrations and their (m, query_entries, 3) estimates, in order of k."""
        ...


class FineTuned:
    """A gaze network for each k, fine-tuned on the k samples."""

    name: str
    learns_from_tasks, takes_steps = True, True

    def errors(
        self,
        learned: Learned,
        people: Sequence[PersonCodes],
        draws: Sequence[Calibration],
        settings: Fewshot,
        *,
        threads: int,
    ) -> Errors:
        """Fine-tune each k's weights on every calibration of that k."""
        steps, progress = recorded_steps(settings), Progress("adapt", len(draws), "models")
        trace = fine_tuned_errors_deg(learned.start, people, draws, settings, threads=threads, progress=progress)
        adapted, taken = error_at(trace, draws, self._steps(learned, settings), steps)
        return Errors(adapted, trace[:, 0], taken, trace, steps)

    def gaze(
        self,
        learned: Learned,
        people: Sequence[PersonCodes],
        draws: Sequence[Calibration],
        settings: Fewshot,
        *,
        threads: int,
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Fine-tune each k's weights again, by as many steps as `errors` tells."""
        steps = self._steps(learned, settings)
        return fine_tuned_gaze(learned.start, people, draws, settings, steps=steps, threads=threads)

    def _steps(self, learned: Learned, settings: Fewshot) -> dict[int, int]:
        """Of adaptation, for each k."""
        if settings.stopping == "fixed":
            return dict.fromkeys(learned.shots, settings.adapt_steps)
        if not learned.stop_steps:
            raise UserError(
                f"the learner {self.name} was trained without people of the split val, on whom to choose when to stop: "
                "set fewshot.stopping: fixed"
            )
        if not set(learned.stop_steps) <= set(recorded_steps(settings)):
            raise UserError(
                f"the learner {self.name} is to stop after {learned.stop_steps} steps, which fewshot.record_steps and "
                "fewshot.adapt_steps no longer hold: run meta_train again"
            )
        if learned.settings.get("adapt_lr", settings.adapt_lr) != settings.adapt_lr:
            raise UserError(
                f"the learner {self.name} chose when to stop at fewshot.adapt_lr {learned.settings['adapt_lr']}, not "
                f"{settings.adapt_lr}: run meta_train again"
            )
        return dict(zip(learned.shots, learned.stop_steps, strict=True))

    def _learned(
        self, start: InitialNetworks, training: MetaTraining, settings: Fewshot, *, threads: int, **about: object
    ) -> Learned:
        """With the steps of adaptation that are best for val people."""
        stop = []
        if training.val:
            draws = draw_calibrations(training.val, settings, repeats=settings.repeats)
            errors = fine_tuned_errors_deg(start, training.val, draws, settings, threads=threads)
            stop = best_steps(errors, draws, start.shots, recorded_steps(settings))
        return Learned(
            self.name,
            list(start.shots),
            plain(settings),
            state=state_of(start),
            activation=start.activation,
            stop_steps=stop,
            **about,
        )


class MetaLearner(FineTuned):
    """A network, meta-trained so that fine-tuning does well; see faze.fewshot.meta_training for the rules."""

    def __init__(self, rule: Rule) -> None:
        self.name = self._rule = rule

    def meta_train(self, training: MetaTraining, settings: Fewshot, *, seed: int, threads: int) -> Learned:
        """Train the initial weights; validate by adapting, as at test, to one calibration of each k and val person."""
        if self._rule == "reference" and settings.inner_steps != 1:
            raise UserError(f"fewshot.inner_steps {settings.inner_steps} is not 1, as the learner reference needs")
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
            start = InitialNetworks(shots, weights, scales, initial.activation)
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
            InitialNetworks(shots, state.best, scales, initial.activation),
            training,
            settings,
            threads=threads,
            history=[dataclasses.asdict(record) for record in state.history],
            outer_steps=state.best_steps,
        )

    def _initial(self, training: MetaTraining, settings: Fewshot, seed: int) -> InitialNetworks:
        if settings.init == "gaze_head":
            return trained_gaze_head(
                training, settings, "meta-training starts from: encode again, or set fewshot.init: random"
            )
        inputs = training.train[0].code.shape[1]
        return InitialNetworks(settings.shots, random_weights(len(settings.shots), inputs, settings.hidden, seed))


class GazeHead(FineTuned):
    """The trained gaze head, fine-tuned with the activation that it was trained with: what meta-learning must beat."""

    name = "none"
    learns_from_tasks = False

    def meta_train(self, training: MetaTraining, settings: Fewshot, *, seed: int, threads: int) -> Learned:
        """Take the head; on val people, see how many steps are best."""
        start = trained_gaze_head(
            training, settings, "the learner none fine-tunes: encode again, or take none off fewshot.learners"
        )
        return self._learned(start, training, settings, threads=threads)


def trained_gaze_head(training: MetaTraining, settings: Fewshot, use: str) -> InitialNetworks:
    """The trained gaze head as the start of every k, with its own activation; `use` says for what, and what else to do.

    Raises:
        UserError: the store of codes came without it.
    """
    if training.gaze_head is None:
        raise UserError(f"the store of codes comes without the trained gaze head, which {use}")
    weights = training.gaze_head.take(torch.zeros(len(settings.shots), dtype=torch.int64))
    return InitialNetworks(list(settings.shots), weights, activation="relu")


LEARNERS: dict[str, Learner] = {
    **{rule: MetaLearner(rule) for rule in ("maml", "fomaml", "meta_sgd", "reference")},
    "none": GazeHead(),
    "offset": Offset(),
}


def unadapted_error_deg(person: PersonCodes, query_entries: int) -> float:
    """Mean angle, at k = 0, of the trained gaze head's own gaze_hat over a person's query."""
    error_rad = angular_error(person.gaze_hat[-query_entries:], person.gaze[-query_entries:])
    return float(np.degrees(error_rad.mean()))
