"""The sequential side of benchmarks/fewshot.py: the released procedure on one thread, or in two processes at once."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

import torch
from baselines import fewshot as baseline

from faze.fewshot.kernel import single_threaded_operations
from faze.fewshot.mlp import Weights
from faze.fewshot.person_codes import Calibration, PersonCodes


@dataclass(frozen=True)
class Clock:
    """A clock of wall time, or of processor time divided by the number of working threads, in seconds."""

    of_processor: bool

    def __call__(self, threads: int) -> float:
        """Return the current time in seconds, for work on the given number of threads."""
        return time.process_time() / threads if self.of_processor else time.perf_counter()


class Sequential:
    """The sequential side, in this process or in two processes at once."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        # Fresh interpreters: a fork would inherit our threads' locks.
        self.pool = ProcessPoolExecutor(2, get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,))

    def seconds(self, work: Callable[[], object]) -> float:
        """Time a call on one thread."""
        with single_threaded_operations():
            began = self.clock(1)
            work()
            return self.clock(1) - began

    def seconds_of_two(self, work: Callable[[], object]) -> float:
        """Time the same call in two processes, until both are done."""
        if self.clock.of_processor:
            return float("nan")
        began = time.perf_counter()
        for future in [self.pool.submit(work) for _ in range(2)]:
            future.result()
        return time.perf_counter() - began


def samples_of(person: PersonCodes) -> baseline.Samples:
    return baseline.Samples(torch.from_numpy(person.code), torch.from_numpy(person.gaze).float())


def network_of(weights: Weights) -> baseline.GazeNetwork:
    """Return the first of the networks in the format of the sequential side."""
    network = baseline.GazeNetwork(*weights.hidden_weight.shape[1:])
    (hidden_weight, *_), (hidden_bias, *_), (output_weight, *_), (output_bias, *_) = weights
    arrays = hidden_weight.T, hidden_bias[0], output_weight.T, output_bias[0]
    network.load_state_dict(dict(zip(network.state_dict(), arrays, strict=True)))
    return network


def adaptation_of(network: baseline.GazeNetwork, calibration: Calibration, **options: float) -> Callable:
    """Return a picklable function that adapts a network to a calibration as the sequential side does."""
    samples = samples_of(calibration.person)
    query = baseline.Samples(samples.code[-500:], samples.gaze[-500:])
    return partial(baseline.adapt, network, samples.take(calibration.support.tolist()), query, **options)


def meta_training_of(train: Sequence[PersonCodes], val: Sequence[PersonCodes], *, k: int, steps: int) -> Callable:
    """Return a picklable function that runs outer steps as the sequential side does."""
    people = [[samples_of(person) for person in group] for group in (train, val)]
    return partial(baseline.meta_train, baseline.GazeNetwork(), *people, k=k, steps=steps)
