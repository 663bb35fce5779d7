"""Three ways to choose the k samples to request from a person: at random, one per grid cell, or by the learner.

    python benchmarks/sample_choice.py results/default/baseline/seed0 --k 3 9

The script reads the run's codes and the files of those learners that report an uncertainty. It adapts each learner to
the same test people with samples chosen in the three ways, --repeats times each. `random` and `grid` draw from the
whole pool, as fewshot.person_codes does. `chosen` uses no labels: from a random half of the pool, the learner takes the
samples that lower its mean variance the most. It is offered only half of the pool, so that repeats differ. Differences
are paired by person. Each has its own interval over people (Student's t), not adjusted for the number of comparisons.
"""

import argparse
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.evaluation.statistics import compare
from faze.evaluation.wording import signed
from faze.fewshot.interface import Adaptation
from faze.fewshot.learner_file import Learned, load_learned
from faze.fewshot.learners import LEARNERS
from faze.fewshot.person_codes import Calibration, PersonCodes, draw_calibrations, open_codes, read_people
from faze.fewshot.residual_model import ResidualModel

WAYS = ("random", "grid", "chosen")
ALPHA = 0.05


def main() -> None:
    """Print a table of the errors by data set, learner, k and method, and of the paired differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of one tier and seed")
    parser.add_argument("--k", type=int, nargs="+", default=[3, 9])
    parser.add_argument("--repeats", type=int, default=10)
    args = parser.parse_args()
    models = [name for name, learner in LEARNERS.items() if isinstance(learner, ResidualModel)]
    files = [path for name in models if (path := args.run / "fewshot" / f"{name}.pt").exists()]
    if not files:
        parser.error(f"{args.run}: no learner there tells an uncertainty: run meta_train of one of {', '.join(models)}")
    print("| data set | learner | k | random, grid, chosen | grid − random | chosen − random | chosen − grid |")
    print("|---|---|---|---|---|---|---|")
    for path in sorted(args.run.glob("codes/*.h5")):
        codes = open_codes(path, default_split="test")
        for learned in (load_learned(path, None, []) for path in files):
            people, _ = read_people(codes, "test", needed=max(args.k) + learned.fewshot.query_entries, reason="--k")
            for k in args.k:
                errors = {way: errors_deg(people, learned, k, way, args.repeats) for way in WAYS}
                told = ", ".join(f"{errors[way].mean():.2f}" for way in WAYS)
                pairs = [(errors["grid"], errors["random"]), (errors["chosen"], errors["random"])]
                pairs.append((errors["chosen"], errors["grid"]))
                differences = " | ".join(difference(first - second) for first, second in pairs)
                print(f"| {codes.dataset} | {learned.learner} | {k} | {told} | {differences} |", flush=True)


def difference(paired: NDArray[np.float64]) -> str:
    """Format the mean of differences (P,), in degrees, with its interval, such as −0.05 (−0.10 to +0.01)."""
    found = compare(paired, margin=1.0, alpha=ALPHA / 2)  # half the level: a two-sided interval
    return f"{signed(found.difference)} ({signed(found.low)} to {signed(found.high)})"


def errors_deg(people: list[PersonCodes], learned: Learned, k: int, way: str, repeats: int) -> NDArray[np.float64]:
    """Return each person's mean error (P,) over calibrations whose samples were chosen by one method."""
    settings = dataclasses.replace(learned.fewshot, shots=(k,), repeats=repeats)
    if way == "chosen":
        calibrations = list(chosen(people, learned, k, repeats))
    else:
        calibrations = draw_calibrations(people, dataclasses.replace(settings, draws=way), repeats=repeats)
    errors = LEARNERS[learned.learner].errors(learned, Adaptation(calibrations, settings)).adapted_deg
    of = np.array([people.index(calibration.person) for calibration in calibrations])
    return np.array([errors[of == position].mean() for position in range(len(people))])


def chosen(people: list[PersonCodes], learned: Learned, k: int, repeats: int) -> Iterator[Calibration]:
    """Let the learner choose k samples from random halves of each person's pool."""
    learner = LEARNERS[learned.learner]
    for person in people:
        pool = len(person.code) - learned.fewshot.query_entries
        for repeat in range(repeats):
            rng = np.random.default_rng([learned.fewshot.seed, repeat])
            half = np.sort(rng.choice(pool, size=max(k, pool // 2), replace=False))
            yield Calibration(person, repeat, half[learner.choose(learned, person.seen(half), k)])


if __name__ == "__main__":
    main()
