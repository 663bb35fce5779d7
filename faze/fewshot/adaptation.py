"""Fine-tuning to calibrations of people, and the error on the way.

Shapes: M calibrations, R numbers of steps after which the error is measured.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from faze.fewshot.draws import Calibration, Person, query_of, support_of
from faze.fewshot.kernel import trace_deg
from faze.fewshot.mlp import Activation, Weights, each
from faze.fewshot.stopping import recorded_steps
from faze.sections import Fewshot


@dataclass(frozen=True)
class Start:
    """Where fine-tuning starts, for each k."""

    shots: Sequence[int]
    weights: Weights  # of a network for each entry of shots
    scales: Weights | None = None  # of adapt_lr for each parameter; None: 1
    activation: Activation = "selu"


def fine_tuned_errors_deg(
    start: Start,
    people: Sequence[Person],
    draws: Sequence[Calibration],
    settings: Fewshot,
    *,
    threads: int,
    progress: Callable[[int], None] = lambda done: None,
) -> NDArray[np.float64]:
    """Fine-tune the network of each calibration's k on its samples; measure on its person's query.

    Args:
        start: networks.
        people: with at least settings.query_entries entries beside the pool.
        draws: M calibrations of them, of any of these k.
        settings: adapt_steps, adapt_lr, record_steps, query_entries.
        threads: chunks at work at once.
        progress: called with the number of calibrations done.

    Returns:
        (M, R) mean angles after each of stopping.recorded_steps, in degrees.

    Raises:
        ValueError: the gaze codes do not fit the network, or the adaptation diverged.
    """
    _check_inputs(start.weights, people)
    steps = recorded_steps(settings)
    errors, done = np.full((len(draws), len(steps)), np.nan), 0
    for position, k in enumerate(start.shots):
        models = np.flatnonzero([draw.shots == k for draw in draws])
        if not len(models):
            continue
        of_k = [draws[m] for m in models]
        only = torch.tensor([position])
        initial = start.weights.take(only)
        scales = each(torch.ones_like, initial) if start.scales is None else start.scales.take(only)
        for chunk, found in trace_deg(
            initial,
            support_of(people, of_k),
            query_of(people, of_k, settings.query_entries),
            steps=steps,
            rates=each(lambda scale: settings.adapt_lr * scale, scales),
            threads=threads,
            activation=start.activation,
        ):
            errors[models[chunk.numpy()]] = found.numpy()
            done += len(chunk)
            progress(done)
    _check_finite(errors, people, draws)
    return errors


def _check_inputs(weights: Weights, people: Sequence[Person]) -> None:
    inputs, found = weights.hidden_weight.shape[1], people[0].code.shape[1]
    if inputs != found:
        raise ValueError(
            f"{people[0]} has gaze codes of {found} numbers, the learner of {inputs}: run meta_train again"
        )


def _check_finite(errors: NDArray[np.float64], people: Sequence[Person], draws: Sequence[Calibration]) -> None:
    finite = np.isfinite(errors).all(axis=1)
    if not finite.all():
        lost = draws[int(np.argmin(finite))]
        raise ValueError(f"adaptation of {people[lost.person]} with k = {lost.shots} diverged: lower fewshot.adapt_lr")
