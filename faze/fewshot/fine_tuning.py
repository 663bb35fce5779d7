"""Learners that fine-tune a gaze network by gradient steps: the meta-trained ones, and the trained gaze head.

A fixed number of steps overfits for small k (by 0.2 degrees at k = 3). The stopping rule `validation` selects, for each
k, the number of steps after which the error of the val people is lowest, and uses it for everyone. The queries of test
people do not influence this choice.

Shapes: M calibrations, R step counts after which the error is measured.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faze.base.errors import UserError
from faze.base.progress import Progress
from faze.config.parameters import Fewshot
from faze.fewshot.interface import Adaptation, Errors, Estimates, MetaTraining
from faze.fewshot.kernel import adapt
from faze.fewshot.learner_file import Learned, plain, state_of
from faze.fewshot.meta_training import Rule, meta_train
from faze.fewshot.mlp import InitialNetworks, Weights, gaze_of, random_weights
from faze.fewshot.person_codes import Calibration, TaskDraws, draw_calibrations, query_of, support_of


class FineTuned:
    """A learner with one gaze network for each k, which is fine-tuned on k samples."""

    name: str
    learns_from_tasks = takes_steps = True

    def errors(self, learned: Learned, adaptation: Adaptation) -> Errors:
        """Fine-tune the network for each k on every calibration with that k, and measure the errors."""
        calibrations, recorded = adaptation.calibrations, recorded_steps(adaptation.settings)
        progress = Progress(f"adapt {self.name}", len(calibrations), "models")
        trace = fine_tuned_errors_deg(learned.networks, adaptation, progress)
        chosen = self.steps(learned, adaptation.settings)
        taken = np.array([chosen[calibration.shots] for calibration in calibrations])
        adapted = trace[np.arange(len(calibrations)), np.searchsorted(recorded, taken)]
        return Errors(adapted, trace[:, 0], taken, trace, recorded)

    def gaze(self, learned: Learned, adaptation: Adaptation) -> Estimates:
        """Fine-tune the network for each k again, with the number of steps that `errors` used, and estimate gaze."""
        steps = {k: [last] for k, last in self.steps(learned, adaptation.settings).items()}
        for positions, adapted, _ in fine_tune(learned.networks, adaptation, steps):
            of_chunk = [adaptation.calibrations[position] for position in positions]
            query = query_of(of_chunk, adaptation.settings.query_entries)
            yield positions, gaze_of(adapted, query.code[query.row], learned.activation)

    def steps(self, learned: Learned, settings: Fewshot) -> dict[int, int]:
        """Return the number of adaptation steps for each k.

        Raises:
            UserError: the number was to be selected on val people, but was not, or was selected with other settings.
        """
        if settings.stopping == "fixed":
            return dict.fromkeys(learned.shots, settings.adapt_steps)
        if not learned.stop_steps:
            raise UserError(
                f"the learner {self.name} was trained without val people, on whom the number of steps is chosen: set "
                "fewshot.stopping: fixed"
            )
        if not set(learned.stop_steps) <= set(recorded_steps(settings)):
            raise UserError(
                f"the learner {self.name} should stop after {learned.stop_steps} steps, which fewshot.record_steps "
                "and fewshot.adapt_steps no longer contain: run meta_train again"
            )
        if learned.settings.get("adapt_lr", settings.adapt_lr) != settings.adapt_lr:
            raise UserError(
                f"the learner {self.name} chose the number of steps with fewshot.adapt_lr "
                f"{learned.settings['adapt_lr']}, not "
                f"{settings.adapt_lr}: run meta_train again"
            )
        return dict(zip(learned.shots, learned.stop_steps, strict=True))

    def _learned(self, networks: InitialNetworks, training: MetaTraining, **about: object) -> Learned:
        """Return the learned networks and, for each k, the number of adaptation steps that is best for val people."""
        settings, stop = training.settings, []
        if training.val:
            calibrations = draw_calibrations(training.val, settings, repeats=settings.repeats)
            errors = fine_tuned_errors_deg(networks, Adaptation(calibrations, settings, training.threads))
            stop = best_steps(errors, calibrations, networks.shots, recorded_steps(settings))
        return Learned(
            self.name,
            list(networks.shots),
            plain(settings),
            state=state_of(networks),
            activation=networks.activation,
            stop_steps=stop,
            **about,
        )


class MetaLearner(FineTuned):
    """A network that is meta-trained for fine-tuning; see faze.fewshot.meta_training for the rules."""

    def __init__(self, rule: Rule) -> None:
        self.name = self._rule = rule

    def meta_train(self, training: MetaTraining) -> Learned:
        """Train the initial weights; validate by adapting to one calibration per k and val person."""
        settings, shots, val = training.settings, list(training.settings.shots), training.val
        initial = self._initial(training)
        validation = Adaptation(draw_calibrations(val, settings, repeats=1), settings, training.threads)
        # Validation uses the same stopping rule as testing.
        column = slice(None) if settings.stopping == "validation" else slice(-1, None)

        def validate(weights: Weights, scales: Weights) -> list[float] | None:
            if not val:
                return None
            errors = fine_tuned_errors_deg(InitialNetworks(shots, weights, scales, initial.activation), validation)
            return errors.reshape(len(shots), len(val), -1)[..., column].mean(axis=1).min(axis=1).tolist()

        tasks = TaskDraws(training.train, settings, seed=training.seed)
        state = meta_train(self._rule, initial, tasks, settings, validate, training.resume_file)
        scales = state.best_scales if self._rule == "meta_sgd" else None
        networks = InitialNetworks(shots, state.best, scales, initial.activation)
        return self._learned(networks, training, history=state.history, outer_steps=state.best_steps)

    def _initial(self, training: MetaTraining) -> InitialNetworks:
        settings = training.settings
        if settings.init == "gaze_head":
            return trained_gaze_head(
                training, "meta-training starts from: run encode again, or set fewshot.init: random"
            )
        inputs = training.train[0].code.shape[1]
        weights = random_weights(len(settings.shots), inputs, settings.hidden, training.seed)
        return InitialNetworks(settings.shots, weights)


class GazeHead(FineTuned):
    """The trained gaze head, fine-tuned with its own activation: the baseline for meta-learning."""

    name = "none"
    learns_from_tasks = False

    def meta_train(self, training: MetaTraining) -> Learned:
        """Return the head and, for each k, the number of steps that is best for val people."""
        return self._learned(
            trained_gaze_head(
                training, "the learner `none` fine-tunes: run encode again, or remove `none` from fewshot.learners"
            ),
            training,
        )


def trained_gaze_head(training: MetaTraining, use: str) -> InitialNetworks:
    """Return the trained gaze head for every k, with its own activation; `use` is part of the error message.

    Raises:
        UserError: the store of codes does not contain the gaze head.
    """
    if training.gaze_head is None:
        raise UserError(f"the store of codes does not contain the trained gaze head, which {use}")
    shots = list(training.settings.shots)
    weights = training.gaze_head.take(torch.zeros(len(shots), dtype=torch.int64))
    return InitialNetworks(shots, weights, activation="relu")


def recorded_steps(settings: Fewshot) -> tuple[int, ...]:
    """List the step counts after which the error is measured, ascending: 0, the requested ones and the last."""
    return tuple(sorted({0, *(step for step in settings.record_steps if step < settings.adapt_steps)})) + (
        settings.adapt_steps,
    )


def best_steps(
    errors_deg: NDArray[np.float64], calibrations: Sequence[Calibration], shots: Sequence[int], steps: Sequence[int]
) -> list[int]:
    """Select the number of steps for each k.

    Args:
        errors_deg: (M, len(steps)) errors of val people's calibrations, equally many for every k.
        calibrations: the M calibrations.
        shots: all values of k.
        steps: the step counts after which the errors were measured.
    """
    of = np.array([calibration.shots for calibration in calibrations])
    return [steps[int(errors_deg[of == k].mean(axis=0).argmin())] for k in shots]


def fine_tuned_errors_deg(
    networks: InitialNetworks, adaptation: Adaptation, progress: Callable[[int], None] = lambda done: None
) -> NDArray[np.float64]:
    """Fine-tune a network on the samples of each calibration, and measure the error on its person's query.

    Args:
        networks: initial networks.
        adaptation: M calibrations, and the settings adapt_steps, adapt_lr, record_steps and query_entries.
        progress: called with the number of calibrations done.

    Returns:
        (M, R) mean angles, in degrees, after each of recorded_steps.

    Raises:
        UserError: the gaze codes do not fit the network, or the adaptation diverged.
    """
    calibrations, settings = adaptation.calibrations, adaptation.settings
    steps = recorded_steps(settings)
    errors, done = np.full((len(calibrations), len(steps)), np.nan), 0
    for positions, _, found in fine_tune(networks, adaptation, dict.fromkeys(networks.shots, steps), measure=True):
        errors[positions] = torch.stack(found, dim=1).numpy()
        done += len(positions)
        progress(done)
    finite = np.isfinite(errors).all(axis=1)
    if not finite.all():
        lost = calibrations[int(np.argmin(finite))]
        raise UserError(f"adaptation of {lost.person} with k = {lost.shots} diverged: lower fewshot.adapt_lr")
    return errors


def fine_tune(
    networks: InitialNetworks, adaptation: Adaptation, steps: Mapping[int, Sequence[int]], *, measure: bool = False
) -> Iterator[tuple[NDArray[np.int64], Weights, list[Tensor]]]:
    """Fine-tune a network on the samples of each calibration, k by k.

    Args:
        networks: initial networks.
        adaptation: the calibrations, and the settings adapt_lr and query_entries.
        steps: step counts for each k, in ascending order; the last one ends the adaptation.
        measure: whether to measure the error on the person's query after each of these step counts.

    Yields:
        Indices (m,) of some calibrations, their adapted networks, and their mean angles (m,), in degrees, after each of
        the step counts; without `measure`, there are no mean angles.

    Raises:
        UserError: the gaze codes do not fit the network.
    """
    inputs, person = networks.weights.hidden_weight.shape[1], adaptation.calibrations[0].person
    if inputs != (found := person.code.shape[1]):
        raise UserError(
            f"{person} has gaze codes of size {found}, but the learner's have size {inputs}: run meta_train again"
        )
    for k in networks.shots:
        positions = np.flatnonzero([calibration.shots == k for calibration in adaptation.calibrations])
        if len(positions):
            of_k = [adaptation.calibrations[position] for position in positions]
            network = networks.of_k(k, adaptation.settings.adapt_lr)
            query = query_of(of_k, adaptation.settings.query_entries) if measure else None
            adapted = adapt(network, support_of(of_k), steps=steps[k], threads=adaptation.threads, query=query)
            for chunk, weights, errors in adapted:
                yield positions[chunk.numpy()], weights, errors
