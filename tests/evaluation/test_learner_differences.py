"""Differences of learners from `offset`, and their adjusted tests."""

import itertools

import numpy as np
import pandas as pd
import pytest

from faze.config.parameters import Evaluate
from faze.evaluation.runs import recommend_learners
from faze.evaluation.tables import learner_differences

EVALUATE = Evaluate(confidence=0.95, resamples=100, margin_deg=0.3, learner_margin_deg=0.1)
PEOPLE = 12


def judged(
    by_learner: dict[str, dict[int, float]],
    datasets: tuple[str, ...] = ("mpiigaze",),
    tiers: tuple[str, ...] = ("baseline",),
    spread: float = 0.05,
    drift: tuple[float, ...] = (0.0,),
) -> pd.DataFrame:
    """Compare learners with an exact mean change at each k; people differ by degrees, changes by `spread`.

    The error of `maml` with each seed is larger by `drift`.
    """
    own, matrices = np.linspace(2.0, 8.0, PEOPLE), {}
    for tier, dataset in itertools.product(tiers, datasets):
        for position, (learner, change) in enumerate(by_learner.items()):
            for k, mean in change.items():
                wave = np.random.default_rng([position, k]).normal(size=PEOPLE)
                wave = spread * (wave - wave.mean()) / wave.std(ddof=1)
                seeds = np.array(drift)[:, None] * (learner == "maml")
                matrices[tier, dataset, learner, k] = pd.DataFrame(own + mean + wave + seeds)
    return learner_differences(matrices, tiers, EVALUATE)


def test_learners_are_paired_with_offset_by_person():
    found = judged({"maml": {9: -1.0}, "offset": {9: -0.8}, "none": {9: -0.8}})
    assert found["learner"].tolist() == ["maml", "none"]
    first = found.iloc[0]
    assert first["difference_deg"] == pytest.approx(-0.2)
    assert first["high_deg"] - first["low_deg"] < 0.2  # people differ by 6 degrees
    assert list(found["verdict"]) == ["different", "equivalent"]
    assert first["people"] == 12 and (first["learner_deg"], first["offset_deg"]) == pytest.approx((4.0, 4.2))


def test_all_learners_and_data_sets_are_judged_together():
    two = {"maml": {9: 0.0}, "offset": {9: 0.1}}
    alone = judged(two, spread=0.2)
    p = alone["difference_p"].iloc[0]
    assert 0.0126 < p < 0.05
    assert alone["difference_p_holm"].iloc[0] == p and alone["verdict"].iloc[0] == "different"
    both = judged(two, spread=0.2, datasets=("mpiigaze", "gazecapture"))
    assert both["difference_p_holm"].to_numpy() == pytest.approx([2 * p, 2 * p])
    # Another k or tier is another question.
    more = judged({"maml": {3: 0.0, 9: 0.0}, "offset": {3: 0.1, 9: 0.1}}, spread=0.2, tiers=("baseline", "amp"))
    at_nine = more[more["k"] == 9]
    assert at_nine["difference_p_holm"].to_numpy() == pytest.approx(at_nine["difference_p"].to_numpy())


def test_three_seeds_count_as_samples_too():
    [row] = judged({"maml": {9: -0.3}, "offset": {9: 0.0}}, drift=(-0.6, 0.0, 0.6)).to_dict("records")
    assert row["seeds"] == 3
    assert row["verdict"] == "not shown" and row["high_deg"] > 0.5  # each seed by itself would be sure of its sign


def test_the_recommended_learner_has_the_smallest_validation_error_at_each_k():
    errors = {"maml": {0: 4.0, 1: 4.5, 3: 3.4, 18: 2.5}, "bayes": {0: 4.0, 1: 4.2, 3: 3.1, 18: 2.6}}
    means = [(learner, k, deg) for learner, by_k in errors.items() for k, deg in by_k.items()]
    rows = [(learner, k, deg + of_run) for of_run in (0.5, -0.5) for learner, k, deg in means]
    val = pd.DataFrame(rows, columns=["learner", "k", "error_deg"])
    expected = [(1, "unadapted", 4.0, 4.0), (3, "bayes", 3.1, 4.0), (18, "maml", 2.5, 4.0)]
    assert [tuple(row.values()) for row in recommend_learners(val)] == expected
