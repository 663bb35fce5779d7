"""How long the jobs of a run of the workflow take, and what is left of it: for people to read. Standard library only.

A job is expected to take what it took the last time, by its benchmark file, at the pace of today's jobs. A job that has
never run takes as long as others of its rule, and a rule that has never run has a first guess.
"""

import csv
import heapq
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SETTLED_S = 60.0  # seconds of jobs that weigh as much as the assumption that today's pace is the last run's


@dataclass(frozen=True)
class Job:
    """A job that is to run: its name for people, the cores that it holds, and the numbers of the jobs it waits for."""

    rule: str
    name: str
    cores: int
    after: frozenset[int]
    last_s: float | None  # wall seconds of its last run; None: it has not run
    guess_s: float


class Forecast:
    """What is left of a run whose jobs are told as they start and finish.

    Args:
        jobs: number -> job.
        cores: that jobs share.
    """

    def __init__(self, jobs: Mapping[int, Job], cores: int) -> None:
        self._jobs, self._cores = jobs, cores
        self.running: dict[int, float] = {}  # number -> when it started
        self._took_s: dict[int, float] = {}  # of the finished ones

    def start(self, number: int, now_s: float) -> None:
        """Say that a job starts."""
        if number in self._jobs:
            self.running[number] = now_s

    def stop(self, number: int, now_s: float, finished: bool = True) -> None:
        """Say that a job has finished, or failed."""
        began_s = self.running.pop(number, None)
        if finished and number in self._jobs:
            self._took_s[number] = 0.0 if began_s is None else now_s - began_s

    def name(self, number: int) -> str:
        """Name a job for people."""
        return self._jobs[number].name

    def left(self, now_s: float) -> tuple[float, bool]:
        """Give the seconds until the last job ends, and whether more than a tenth of the work left is guessed."""
        pace, of_rules = self._pace(), self._of_rules()
        expected_s, guessed_s = {}, 0.0
        for number, job in self._jobs.items():
            if number in self._took_s:
                continue
            takes_s = of_rules.get(job.rule, job.guess_s) if job.last_s is None else job.last_s * pace
            spent_s = now_s - self.running[number] if number in self.running else 0.0
            # One that takes longer than expected is expected to end soon, by what it has taken.
            expected_s[number] = max(takes_s - spent_s, 0.1 * spent_s)
            guessed_s += expected_s[number] if job.last_s is None else 0.0
        return self._side_by_side(expected_s), guessed_s > 0.1 * sum(expected_s.values())

    def _pace(self) -> float:
        """Seconds of today for one of the last run's."""
        both = [(took_s, last_s) for i, took_s in self._took_s.items() if (last_s := self._jobs[i].last_s) is not None]
        return (sum(took_s for took_s, _ in both) + SETTLED_S) / (sum(last_s for _, last_s in both) + SETTLED_S)

    def _of_rules(self) -> dict[str, float]:
        """Mean seconds of each rule's jobs that have run, in this run or the last one."""
        known: dict[str, list[float]] = {}
        for number, job in self._jobs.items():
            took_s = self._took_s.get(number, job.last_s)
            if took_s is not None:
                known.setdefault(job.rule, []).append(took_s)
        return {rule: statistics.fmean(times_s) for rule, times_s in known.items()}

    def _side_by_side(self, expected_s: Mapping[int, float]) -> float:
        """Play the jobs through: each starts once what it waits for has ended and its cores are free."""
        waits_for = {i: {other for other in self._jobs[i].after if other in expected_s} for i in expected_s}
        ready = [i for i in expected_s if i in self.running] + [
            i for i in expected_s if i not in self.running and not waits_for[i]
        ]
        followers: dict[int, list[int]] = {}
        for number, others in waits_for.items():
            for other in others:
                followers.setdefault(other, []).append(number)
        clock_s, free, ends = 0.0, self._cores, []
        while ready or ends:
            waiting = []
            for number in ready:
                if self._jobs[number].cores <= free or number in self.running or not ends:
                    free -= self._jobs[number].cores
                    heapq.heappush(ends, (clock_s + expected_s[number], number))
                else:
                    waiting.append(number)
            clock_s, ended = heapq.heappop(ends)
            free += self._jobs[ended].cores
            ready = waiting
            for number in followers.get(ended, ()):
                waits_for[number].discard(ended)
                if not waits_for[number] and number not in self.running:
                    ready.append(number)
        return clock_s


def read_seconds(benchmark: Path) -> float | None:
    """Read the wall seconds in a job's benchmark file; None where it has none that can be read."""
    try:
        with benchmark.open(newline="", encoding="utf-8") as file:
            return float(next(csv.DictReader(file, delimiter="\t"))["s"])
    except (OSError, StopIteration, KeyError, TypeError, ValueError, csv.Error):
        return None


def first_guess_s(rule: str, config: Mapping[str, Any], defaults: Mapping[str, Any]) -> float:
    """Guess the seconds of a rule's job that nothing is known of, from the configuration."""
    if rule not in GUESSES:
        return 0.0
    fixed_s, growing_s, work = GUESSES[rule]
    return fixed_s + growing_s * work(config) / work(defaults)


def _frames(config: Mapping[str, Any]) -> float:
    people = config["synthetic"]
    frames, few = people["frames_per_person"], people["gazecapture_train_frames"]
    everybody = frames * sum(count for key, count in people.items() if key.endswith("_people"))
    return everybody - (frames - (few or frames)) * people["gazecapture_train_people"]


def _activations(config: Mapping[str, Any]) -> float:
    model = config["model"]
    return model["growth"] * model["image_height_px"] * model["image_width_px"]


# Of a job of the default ablation on two cores: its seconds whatever it works on, those that grow, and with what.
GUESSES: dict[str, tuple[float, float, Callable[[Mapping[str, Any]], float]]] = {
    "synthesise": (2, 77, _frames),
    "landmarks": (10, 590, _frames),
    "preprocess": (4, 7, _frames),
    "inspect": (3, 4, _frames),
    "train": (5, 190, lambda config: config["train"]["pairs"] * _activations(config)),
    "benchmark": (10, 250, lambda config: config["benchmark"]["rounds"] * len(config["run"]["tiers"])),
    "encode": (3, 4, lambda config: _frames(config) * _activations(config)),
    "meta_train": (3, 10, lambda config: config["fewshot"]["outer_steps"]),
    "adapt": (3, 6, lambda config: config["fewshot"]["adapt_steps"] * config["fewshot"]["repeats"]),
    "walk": (3, 4, lambda config: config["walk"]["people"] * config["walk"]["frames"]),
    "estimator": (4, 80, lambda config: config["estimator"]["strips"]),
    "oracle": (3, 25, lambda config: config["redirect"]["strips"]),
    "redirect": (5, 12, lambda config: config["redirect"]["strips"] * _activations(config)),
    "evaluate": (3, 3, lambda config: config["evaluate"]["resamples"]),
    "report": (12, 0, _frames),
    "compare": (4, 0, _frames),
    "track": (11, 0, _frames),
    "weights": (4, 0, _frames),
}
