"""Learners that fine-tune a gaze network by gradient steps: the meta-trained ones, and the trained gaze head.

Shapes: M calibrations, K values of k, S parameters.
"""

from collections.abc import Callable, Sequence
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
from faze.fewshot.person_codes import Entries, draw_calibrations


class FineTuned:
    """A learner with one gaze network for each k, which is fine-tuned on k samples."""

    name: str
    learns_from_tasks = takes_steps = True

    def errors(self, learned: Learned, adaptation: Adaptation) -> Errors:
        """Fine-tune the network for each k on every calibration with that k, and measure the errors."""
        kernel, networks = kernel_for(learned.weights, learned.activation), learned.weights.pack()
        progress = Progress(f"adapt {self.name}", len(adaptation.calibrations), "models")
        start, adapted = fine_tuned_errors_deg(kernel, networks, learned.shots, adaptation, progress).T
        return Errors(adapted, start, adaptation.settings.adapt_steps)


class MetaLearner(FineTuned):
    """A network that is meta-trained for fine-tuning; see faze.fewshot.meta_training for the rules."""

    def __init__(self, rule: Rule) -> None:
        self.name = self._rule = rule

    def meta_train(self, training: MetaTraining) -> Learned:
        """Train the initial weights; validate by adapting to one calibration per k and val person."""
        settings, shots, val = training.settings, list(training.settings.shots), training.val
        if settings.init == "gaze_head":
            use = "meta-training starts from: run encode again, or set fewshot.init: random"
            initial, activation = repeat_gaze_head(training, use), "relu"
        else:
            inputs = training.train[0].code.shape[1]
            initial = random_weights(len(shots), inputs, settings.hidden, training.seed)
            activation = "selu"
        validation = Adaptation(draw_calibrations(val, settings, repeats=1), settings, training.threads)
        kernel = kernel_for(initial, activation)

        def validate(networks: Tensor) -> list[float] | None:
            if not val:
                return None
            errors = fine_tuned_errors_deg(kernel, networks, shots, validation)
            return errors[:, 1].reshape(len(shots), len(val)).mean(axis=1).tolist()

        people, networks = Entries(training.train, kernel.device), initial.pack().to(kernel.device)
        trained = meta_train(self._rule, kernel, networks, people, settings, training.seed, validate)
        weights = Weights.unpack(trained.networks.cpu(), initial.hidden_weight.shape[1])
        about = {"activation": activation, "history": trained.history, "outer_steps": trained.steps}
        return Learned(self.name, shots, plain(settings), weights.as_state(), **about)


class GazeHead(FineTuned):
    """The trained gaze head, fine-tuned with its own activation: the baseline for meta-learning."""

    name = "none"
    learns_from_tasks = False

    def meta_train(self, training: MetaTraining) -> Learned:
        """Return the head for every k."""
        use = "the learner `none` fine-tunes: run encode again, or remove `none` from fewshot.learners"
        state, settings = repeat_gaze_head(training, use).as_state(), training.settings
        return Learned(self.name, list(settings.shots), plain(settings), state, activation="relu")


def repeat_gaze_head(training: MetaTraining, use: str) -> Weights:
    """Return the trained gaze head for every k; `use` is part of the error message.

    Raises:
        UserError: the store of codes does not contain the gaze head.
    """
    if training.gaze_head is None:
        raise UserError(f"the store of codes does not contain the trained gaze head, which {use}")
    return Weights(*(parameter.repeat(len(training.settings.shots), 1, 1) for parameter in training.gaze_head))


def fine_tuned_errors_deg(
    kernel: AutogradKernel,
    networks: Tensor,
    shots: Sequence[int],
    adaptation: Adaptation,
    progress: Callable[[int], None] = lambda done: None,
) -> NDArray[np.float64]:
    """Fine-tune a network on the samples of each calibration, and measure the error on its person's query.

    Args:
        kernel: takes the steps.
        networks: the initial network for each of shots (K, S).
        shots: values of k.
        adaptation: M calibrations, and the settings adapt_steps, adapt_lr and query_entries.
        progress: called with the number of calibrations done.

    Returns:
        (M, 2) mean angles, in degrees, before and after the adaptation.

    Raises:
        UserError: the adaptation diverged.
    """
    calibrations, settings = adaptation.calibrations, adaptation.settings
    people = Entries((calibration.person for calibration in calibrations), kernel.device)
    support, query = people.support(calibrations), people.query(calibrations, settings.query_entries)
    initial = networks[[shots.index(calibration.shots) for calibration in calibrations]].to(kernel.device)

    def adapt(first: int) -> Tensor:
        chunk = slice(first, first + kernel.networks_per_call)
        own, rest = initial[chunk], query.of_networks(chunk)
        before = kernel.mean_angle_deg(own, rest)
        own = kernel.sgd(own, support.of_networks(chunk), steps=settings.adapt_steps, rate=settings.adapt_lr)
        return torch.stack([before, kernel.mean_angle_deg(own, rest)], dim=1)

    errors = []
    # OpenMP has a setting for each thread. Without this, every product in the pool would start a spinning team.
    with ThreadPoolExecutor(adaptation.threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for chunk in pool.map(adapt, range(0, len(calibrations), kernel.networks_per_call)):
            errors.append(chunk.double().cpu().numpy())
            progress(sum(map(len, errors)))
    found = np.concatenate(errors)
    is_finite = np.isfinite(found).all(axis=1)
    if not is_finite.all():
        lost = calibrations[int(np.argmin(is_finite))]
        raise UserError(f"adaptation of {lost.person} with k = {lost.shots} diverged: lower fewshot.adapt_lr")
    return found
