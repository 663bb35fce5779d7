"""Learners that fine-tune a gaze network by gradient steps: the meta-trained ones, and the trained gaze head.

Shapes: M calibrations, K values of k, S parameters.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from faze.base.errors import UserError
from faze.base.progress import Progress
from faze.fewshot.interface import Adaptation, Errors, MetaTraining
from faze.fewshot.kernel import AutogradKernel, kernel_for
from faze.fewshot.learner_file import Learned, plain
from faze.fewshot.meta_training import Rule, meta_train
from faze.fewshot.mlp import Weights, random_weights
from faze.fewshot.person_codes import draw_calibrations, samples_of


class FineTuned:
    """A learner with one gaze network for each k, which is fine-tuned on k samples."""

    name: str
    learns_from_tasks = takes_steps = True

    def errors(self, learned: Learned, adaptation: Adaptation) -> Errors:
        """Fine-tune the network for each k on every calibration with that k, and measure the errors."""
        kernel = kernel_for(learned.weights, learned.activation)
        start, adapted = fine_tuned_errors_deg(kernel, learned.weights.pack(), learned.shots, adaptation).T
        return Errors(adapted, start, adaptation.settings.adapt_steps)


class MetaLearner(FineTuned):
    """A network that is meta-trained for fine-tuning; see faze.fewshot.meta_training for the rules."""

    def __init__(self, rule: Rule) -> None:
        self.name = self._rule = rule

    def meta_train(self, training: MetaTraining) -> Learned:
        """Train the initial weights; validate by adapting to one calibration per k and val person."""
        settings, shots, val = training.settings, list(training.settings.shots), training.val
        inputs = training.train[0].code.shape[1]
        if settings.init == "gaze_head":
            initial, activation = repeat_gaze_head(training), "relu"
        else:
            initial, activation = random_weights(len(shots), inputs, settings.hidden, training.seed), "selu"
        kernel = kernel_for(initial, activation)
        validation = Adaptation(draw_calibrations(val, settings, repeats=1), settings, training.threads)

        def validate(networks: Tensor) -> list[float] | None:
            if not val:
                return None
            adapted = fine_tuned_errors_deg(kernel, networks, shots, validation)[:, 1]
            return adapted.reshape(len(shots), len(val)).mean(axis=1).tolist()

        networks = initial.pack().to(kernel.device)
        trained = meta_train(self._rule, kernel, networks, training.train, settings, training.seed, validate)
        state = Weights.unpack(trained.networks.cpu(), inputs).as_state()
        return Learned(self.name, shots, plain(settings), state, trained.history, activation, trained.steps)


class GazeHead(FineTuned):
    """The trained gaze head, fine-tuned with its own activation: the baseline for meta-learning."""

    name = "none"
    learns_from_tasks = False

    def meta_train(self, training: MetaTraining) -> Learned:
        """Return the head for every k."""
        state, settings = repeat_gaze_head(training).as_state(), training.settings
        return Learned(self.name, list(settings.shots), plain(settings), state, activation="relu")


def repeat_gaze_head(training: MetaTraining) -> Weights:
    """Return the trained gaze head for every k; raise a UserError if the store of codes does not contain it."""
    if training.gaze_head is None:
        raise UserError(
            "the store of codes does not contain the trained gaze head: run encode again, or remove `none` from "
            "fewshot.learners and set fewshot.init: random"
        )
    return Weights(*(parameter.repeat(len(training.settings.shots), 1, 1) for parameter in training.gaze_head))


def fine_tuned_errors_deg(
    kernel: AutogradKernel, networks: Tensor, shots: Sequence[int], adaptation: Adaptation
) -> NDArray[np.float64]:
    """Fine-tune the network (K, S) of each calibration's k on its samples; measure the error on its person's query.

    Returns:
        (M, 2) mean angles, in degrees, before and after the adaptation.

    Raises:
        UserError: the adaptation diverged.
    """
    calibrations, settings = adaptation.calibrations, adaptation.settings
    initial = networks[[shots.index(calibration.shots) for calibration in calibrations]].to(kernel.device)
    query_entries, size = np.arange(-settings.query_entries, 0), kernel.networks_per_call
    progress, errors = Progress("adapt", len(calibrations), "calibrations"), []

    def adapt(first: int) -> Tensor:
        some, before = calibrations[first : first + size], initial[first : first + size]
        people = [calibration.person for calibration in some]
        support = samples_of(people, [calibration.support for calibration in some], kernel.device)
        query = samples_of(people, [query_entries] * len(some), kernel.device)
        after = kernel.sgd(before, support, steps=settings.adapt_steps, rate=settings.adapt_lr)
        return torch.stack([kernel.mean_angle_deg(before, query), kernel.mean_angle_deg(after, query)], dim=1)

    # OpenMP has a setting for each thread. Without this, every product in the pool would start a spinning team.
    with ThreadPoolExecutor(adaptation.threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for found in pool.map(adapt, range(0, len(calibrations), size)):
            errors += found.double().tolist()
            progress(len(errors))
    for calibration, found in zip(calibrations, errors, strict=True):
        if not np.isfinite(found).all():
            about = f"{calibration.person} with k = {calibration.shots}"
            raise UserError(f"adaptation of {about} diverged: lower fewshot.adapt_lr")
    return np.array(errors)
