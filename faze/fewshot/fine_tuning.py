"""Learners that fine-tune a gaze network by gradient steps: the meta-trained ones, and the trained gaze head.

Shapes: M calibrations.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.progress import Progress
from faze.fewshot.interface import Adaptation, Errors, MetaTraining
from faze.fewshot.kernel import adapt
from faze.fewshot.learner_file import Learned, plain
from faze.fewshot.meta_training import Rule, meta_train
from faze.fewshot.mlp import InitialNetworks, Weights, random_weights
from faze.fewshot.person_codes import TaskDraws, draw_calibrations, query_of, support_of


class FineTuned:
    """A learner with one gaze network for each k, which is fine-tuned on k samples."""

    name: str
    learns_from_tasks = takes_steps = True

    def errors(self, learned: Learned, adaptation: Adaptation) -> Errors:
        """Fine-tune the network for each k on every calibration with that k, and measure the errors."""
        progress = Progress(f"adapt {self.name}", len(adaptation.calibrations), "models")
        start, adapted = fine_tuned_errors_deg(learned.networks, adaptation, progress).T
        return Errors(adapted, start, adaptation.settings.adapt_steps)

    def _learned(self, networks: InitialNetworks, training: MetaTraining, **about: object) -> Learned:
        state, settings = networks.weights._asdict(), plain(training.settings)
        return Learned(self.name, list(networks.shots), settings, state, activation=networks.activation, **about)


class MetaLearner(FineTuned):
    """A network that is meta-trained for fine-tuning; see faze.fewshot.meta_training for the rules."""

    def __init__(self, rule: Rule) -> None:
        self.name = self._rule = rule

    def meta_train(self, training: MetaTraining) -> Learned:
        """Train the initial weights; validate by adapting to one calibration per k and val person."""
        settings, shots, val = training.settings, list(training.settings.shots), training.val
        initial = self._initial(training)
        validation = Adaptation(draw_calibrations(val, settings, repeats=1), settings, training.threads)

        def validate(weights: Weights) -> list[float] | None:
            if not val:
                return None
            errors = fine_tuned_errors_deg(InitialNetworks(shots, weights, initial.activation), validation)
            return errors[:, 1].reshape(len(shots), len(val)).mean(axis=1).tolist()

        tasks = TaskDraws(training.train, settings, seed=training.seed)
        state = meta_train(self._rule, initial, tasks, settings, validate)
        networks = InitialNetworks(shots, state.best, initial.activation)
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
        """Return the head for every k."""
        use = "the learner `none` fine-tunes: run encode again, or remove `none` from fewshot.learners"
        return self._learned(trained_gaze_head(training, use), training)


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


def fine_tuned_errors_deg(
    networks: InitialNetworks, adaptation: Adaptation, progress: Callable[[int], None] = lambda done: None
) -> NDArray[np.float64]:
    """Fine-tune a network on the samples of each calibration, and measure the error on its person's query.

    Args:
        networks: initial networks.
        adaptation: M calibrations, and the settings adapt_steps, adapt_lr and query_entries.
        progress: called with the number of calibrations done.

    Returns:
        (M, 2) mean angles, in degrees, before and after the adaptation.

    Raises:
        UserError: the adaptation diverged.
    """
    calibrations, settings = adaptation.calibrations, adaptation.settings
    errors, done = np.full((len(calibrations), 2), np.nan), 0
    for k in dict.fromkeys(calibration.shots for calibration in calibrations):
        positions = np.flatnonzero([calibration.shots == k for calibration in calibrations])
        of_k = [calibrations[position] for position in positions]
        support, query = support_of(of_k), query_of(of_k, settings.query_entries)
        how = {"steps": settings.adapt_steps, "rate": settings.adapt_lr, "threads": adaptation.threads}
        for chunk, _, found in adapt(networks.of_k(k), networks.activation, support, query, **how):
            errors[positions[chunk.numpy()]] = found.numpy()
            done += len(chunk)
            progress(done)
    finite = np.isfinite(errors).all(axis=1)
    if not finite.all():
        lost = calibrations[int(np.argmin(finite))]
        raise UserError(f"adaptation of {lost.person} with k = {lost.shots} diverged: lower fewshot.adapt_lr")
    return errors
