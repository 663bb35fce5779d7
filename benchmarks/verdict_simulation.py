"""How often a verdict is wrong, and how often one is reached: simulated ablations where no tier has any effect.

    python benchmarks/verdict_simulation.py

Each ablation goes through the page's code (tables.changes, verdict.overall, statistics.design_power). Training runs
differ by chance alone: every run has one error that is common to all people, and another one for each person. Data sets
and k have independent errors, so the four comparisons of a tier are as likely to err as they can be. The standard
deviations are those of six training runs of the default experiment (docs/explanation/verdict.md): 0.34 to 0.85 degrees
for the difference of one person, 0 to 0.18 degrees for that of one seed.
"""

import argparse
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from faze.base.progress import Progress
from faze.base.result_paths import ResultPaths
from faze.config.parameters import Evaluate
from faze.evaluation import UNADAPTED, verdict
from faze.evaluation.runs import Ablation
from faze.evaluation.statistics import VarianceComponents, design_power
from faze.evaluation.tables import changes

TIERS = ("baseline", "amp", "ddp", "fused_sgd", "autotune")
DATASETS = ("mpiigaze", "gazecapture")
CONDITIONS = tuple(itertools.product(DATASETS, ((UNADAPTED, 0), ("maml", 9))))
PERSON_DEG = 0.55  # standard deviation of a difference of one person and seed
SEED_DEG = (0.0, 0.1, 0.18)  # of a difference of one seed, over all people


def ablations(count: int, seeds: int, people: int, seed_deg: float) -> Iterator[pd.DataFrame]:
    """Draw the errors of every test person in each of `count` ablations."""
    rng = np.random.default_rng([seeds, people, round(1000 * seed_deg)])
    rows = [
        {"tier": tier, "seed": seed, "dataset": dataset, "person": f"p{person:02d}", "learner": learner, "k": k}
        for tier, seed, (dataset, (learner, k)), person in itertools.product(
            TIERS, range(seeds), CONDITIONS, range(people)
        )
    ]
    table = pd.DataFrame(rows)
    shape = (len(TIERS), seeds, len(CONDITIONS), people)
    for _ in range(count):
        of_training, of_person = (rng.normal(size=size) / np.sqrt(2) for size in ((*shape[:3], 1), shape))
        yield table.assign(error_deg=(5 + seed_deg * of_training + PERSON_DEG * of_person).ravel())


def simulate(count: int, seeds: int, people: int, seed_deg: float, evaluate: Evaluate) -> dict[str, float]:
    """Compute the rates of verdicts in simulated ablations.

    Returns:
        different: share of ablations in which any tier is called different; verdicts: share of tiers with a verdict
        word; shown: share of comparisons that are shown to be equivalent; power: the value that the page prints for
        this share.
    """
    ablation = Ablation(ResultPaths("simulated"), TIERS, range(seeds), ("maml",), 60, DATASETS)
    words, equivalent = [], []
    for persons in ablations(count, seeds, people, seed_deg):
        found = changes(persons, ablation, evaluate)
        words.append([verdict.overall(verdict.decisive(found, tier)) for tier in TIERS[1:]])
        equivalent.append((found["tost_p"] < 1 - evaluate.confidence).mean())
    counts = np.array(words)
    result = {"different": (counts == "different").any(axis=1).mean(), "verdicts": (counts != "not judged").mean()}
    if seeds < 3:
        return result | {"shown": np.nan, "power": np.nan}
    variances = VarianceComponents(seed_deg**2, 0.0, PERSON_DEG**2)
    levels = {"margin": evaluate.margin_deg, "alpha": 1 - evaluate.confidence}
    power = design_power(variances, seeds, people, tiers=len(TIERS) - 1, **levels).power
    return result | {"shown": np.mean(equivalent), "power": power}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table of simulated rates, and of the power that the page prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ablations", type=int, default=500)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 3, 5, 10])
    parser.add_argument("--designs", nargs="+", default=["30:0.3", "30:0.5"], help="people:margin in degrees")
    args = parser.parse_args(arguments)
    print("| seeds | people | margin | seed spread | any tier different | verdict words | shown | power as printed |")
    print("|---|---|---|---|---|---|---|---|")
    cases = list(itertools.product(args.designs, args.seeds, SEED_DEG))
    progress = Progress("verdict_simulation", len(cases), "designs")
    for done, (design, seeds, seed_deg) in enumerate(cases, 1):
        people, margin = int(design.partition(":")[0]), float(design.partition(":")[2])
        evaluate = Evaluate(confidence=0.95, resamples=1, margin_deg=margin, learner_margin_deg=margin, seed=0)
        found = simulate(args.ablations, seeds, people, seed_deg, evaluate)
        shown = "- | -" if np.isnan(found["shown"]) else f"{found['shown']:.3f} | {found['power']:.3f}"
        rates = f"{100 * found['different']:.1f} % | {100 * found['verdicts']:.0f} % | {shown}"
        print(f"| {seeds} | {people} | ±{margin:g}° | {seed_deg:g}° | {rates} |", flush=True)
        progress(done)


if __name__ == "__main__":
    main()
