"""Fine-tuning to calibrations of people, and the error on the way.

Shapes: M calibrations, R numbers of steps after which the error is measured.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.config.parameters import Fewshot
from faze.fewshot.draws import Calibration, PersonCodes, query_of, support_of
from faze.fewshot.kernel import adapt, trace_deg
from faze.fewshot.mlp import Activation, Weights, each, gaze_vector
from faze.fewshot.stopping import recorded_steps


@dataclass(frozen=True)
class InitialNetworks:
    """Where fine-tuning starts, for each k."""

    shots: Sequence[int]
    weights: Weights  # of a network for each entry of shots
    scales: Weights | None = None  # of adapt_lr for each parameter; None: 1
    activation: Activation = "selu"


@dataclass(frozen=True)
class Errors:
    """Mean angle over the query of each of M calibrations, in degrees."""

    adapted_deg: NDArray[np.float64]  # (M,)
    start_deg: NDArray[np.float64]  # (M,) before any step; NaN for a learner that takes none
    steps: NDArray[np.int64]  # (M,) of adaptation
    trace_deg: NDArray[np.float64]  # (M, R) after each of trace_steps
    trace_steps: Sequence[int]  # R


def fine_tuned_errors_deg(
    start: InitialNetworks,
    people: Sequence[PersonCodes],
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
        UserError: the gaze codes do not fit the network, or the adaptation diverged.
    """
    steps = recorded_steps(settings)
    errors, done = np.full((len(draws), len(steps)), np.nan), 0
    for models, initial, rates in _of_each_k(start, people, draws, settings):
        of_k = [draws[m] for m in models]
        for chunk, found in trace_deg(
            initial,
            support_of(people, of_k),
            query_of(people, of_k, settings.query_entries),
            steps=steps,
            rates=rates,
            threads=threads,
            activation=start.activation,
        ):
            errors[models[chunk.numpy()]] = found.numpy()
            done += len(chunk)
            progress(done)
    _check_finite(errors, people, draws)
    return errors


def fine_tuned_gaze(
    start: InitialNetworks,
    people: Sequence[PersonCodes],
    draws: Sequence[Calibration],
    settings: Fewshot,
    *,
    steps: Mapping[int, int],
    threads: int,
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Fine-tune as `fine_tuned_errors_deg` does, and estimate the gaze of every query entry.

    Args:
        start: networks.
        people: with at least settings.query_entries entries beside the pool.
        draws: M calibrations of them, of any of these k.
        settings: adapt_lr, query_entries.
        steps: of SGD, for each k.
        threads: chunks at work at once.

    Yields:
        Positions (m,) of some calibrations among the draws, and their estimates (m, query_entries, 3), unit vectors.
    """
    for models, initial, rates in _of_each_k(start, people, draws, settings):
        of_k = [draws[m] for m in models]
        support, count = support_of(people, of_k), steps[of_k[0].shots]
        options = {"steps": count, "lr": rates, "threads": threads, "activation": start.activation}
        for chunk, adapted in adapt(initial, support, **options):
            query = query_of(people, [of_k[m] for m in chunk.tolist()], settings.query_entries)
            vector = gaze_vector(adapted, query.code[query.row], start.activation).double().numpy()
            yield models[chunk.numpy()], vector / np.linalg.norm(vector, axis=-1, keepdims=True)


def _of_each_k(
    start: InitialNetworks, people: Sequence[PersonCodes], draws: Sequence[Calibration], settings: Fewshot
) -> Iterator[tuple[NDArray[np.int64], Weights, Weights]]:
    """Positions of the calibrations of each k, the network that they start from, and its rates."""
    _check_inputs(start.weights, people)
    for position, k in enumerate(start.shots):
        models = np.flatnonzero([draw.shots == k for draw in draws])
        if not len(models):
            continue
        only = torch.tensor([position])
        initial = start.weights.take(only)
        scales = each(torch.ones_like, initial) if start.scales is None else start.scales.take(only)
        yield models, initial, each(lambda scale: settings.adapt_lr * scale, scales)


def _check_inputs(weights: Weights, people: Sequence[PersonCodes]) -> None:
    inputs, found = weights.hidden_weight.shape[1], people[0].code.shape[1]
    if inputs != found:
        raise UserError(f"{people[0]} has gaze codes of {found} numbers, the learner of {inputs}: run meta_train again")


def _check_finite(errors: NDArray[np.float64], people: Sequence[PersonCodes], draws: Sequence[Calibration]) -> None:
    finite = np.isfinite(errors).all(axis=1)
    if not finite.all():
        lost = draws[int(np.argmin(finite))]
        raise UserError(f"adaptation of {people[lost.person]} with k = {lost.shots} diverged: lower fewshot.adapt_lr")
