"""Differences between learners: pairs, adjusted tests, crossings.

Checked by breaking the code: people not paired (errors of one learner shuffled), p-values not adjusted, or adjusted
within one data set, the sign of a swapped pair kept, a crossing that is not significant marked as significant.
"""

import numpy as np
import pandas as pd
import pytest

from faze.config.parameters import Evaluate
from faze.evaluation.summary import recommended_learners
from faze.evaluation.tables import against, crossings, learner_differences

EVALUATE = Evaluate(confidence=0.95, resamples=100, margin_deg=0.3, learner_margin_deg=0.1, seed=0)
PEOPLE = 12


def persons(
    by_learner: dict[str, dict[int, float]],
    datasets: tuple[str, ...] = ("mpiigaze",),
    tiers: tuple[str, ...] = ("baseline",),
    spread: float = 0.05,
    seeds: tuple[int, ...] = (0,),
) -> pd.DataFrame:
    """Return errors with an exact mean change for each learner and k. People differ by degrees, changes by `spread`."""
    rows = []
    names = [f"p{i:02d}" for i in range(PEOPLE)]
    own = np.linspace(2.0, 8.0, PEOPLE)
    for tier in tiers:
        for seed in seeds:
            for dataset in datasets:
                where = {"tier": tier, "seed": seed, "dataset": dataset}
                rows += [
                    where | {"person": n, "learner": "unadapted", "k": 0, "error_deg": o}
                    for n, o in zip(names, own, strict=True)
                ]
                for position, (learner, change) in enumerate(by_learner.items()):
                    for k, mean in change.items():
                        wave = np.random.default_rng([position, k]).normal(size=PEOPLE)
                        wave = spread * (wave - wave.mean()) / wave.std(ddof=1)
                        rows += [
                            where | {"person": n, "learner": learner, "k": k, "error_deg": e}
                            for n, e in zip(names, own + mean + wave, strict=True)
                        ]
    return pd.DataFrame(rows).assign(start_error_deg=np.nan)


def judged(by_learner: dict[str, dict[int, float]], **settings) -> pd.DataFrame:
    return learner_differences(persons(by_learner, **settings), list(by_learner), EVALUATE)


def test_pairs_are_paired_by_person():
    pairs = judged({"maml": {9: -1.0}, "offset": {9: -0.8}, "none": {9: -0.8}})
    assert list(zip(pairs["learner"], pairs["other"], strict=True)) == [
        ("maml", "offset"), ("maml", "none"), ("offset", "none")
    ]  # fmt: skip
    first = pairs.iloc[0]
    assert first["difference_deg"] == pytest.approx(-0.2)
    assert first["high_deg"] - first["low_deg"] < 0.2  # people differ by 6 degrees
    assert list(pairs["verdict"]) == ["different", "different", "equivalent"]
    assert first["people"] == 12 and (first["learner_deg"], first["other_deg"]) == pytest.approx((4.0, 4.2))


def test_many_pairs_are_judged_together_on_all_data_sets():
    two = {"maml": {9: 0.0}, "offset": {9: 0.1}}
    alone = judged(two, spread=0.2)
    p = alone["difference_p"].iloc[0]
    assert 0.0126 < p < 0.05
    assert alone["difference_p_holm"].iloc[0] == p and alone["verdict"].iloc[0] == "different"
    both = judged(two, spread=0.2, datasets=("mpiigaze", "gazecapture"))
    assert both["difference_p_holm"].to_numpy() == pytest.approx([2 * p, 2 * p])
    six = judged(two | {"none": {9: 0.05}}, spread=0.2, datasets=("mpiigaze", "gazecapture"))
    assert six["difference_p"].min() == pytest.approx(p)
    assert six["difference_p_holm"].min() == pytest.approx(6 * p)
    assert "different" not in set(six["verdict"])
    # Another k or tier is another question.
    more = judged({"maml": {3: 0.0, 9: 0.0}, "offset": {3: 0.1, 9: 0.1}}, spread=0.2, tiers=("baseline", "amp"))
    at_nine = more[more["k"] == 9]
    assert at_nine["difference_p_holm"].to_numpy() == pytest.approx(at_nine["difference_p"].to_numpy())


def test_identical_errors_need_no_test():
    pairs = judged({"maml": {9: 0.0}, "fomaml": {9: 0.0}}, spread=0.0)
    assert pairs["verdict"].tolist() == ["identical"]
    assert pairs[["difference_p_holm", "tost_p_holm"]].isna().all(axis=None)


def test_a_single_learner_has_no_pair():
    pairs = judged({"maml": {9: 0.0}})
    assert pairs.empty and "verdict" in pairs


def test_against_swaps_pairs():
    pairs = judged({"maml": {9: -1.0}, "offset": {9: -0.8}, "none": {9: -0.1}})
    swapped = against(pairs, "offset").set_index("learner")
    assert set(swapped.index) == {"maml", "none"}
    assert swapped["difference_deg"].to_dict() == pytest.approx({"maml": -0.2, "none": 0.7})
    assert (swapped["low_deg"] < swapped["difference_deg"]).all() and (
        swapped["difference_deg"] < swapped["high_deg"]
    ).all()
    assert swapped.loc["none", "learner_deg"] > swapped.loc["none", "other_deg"]


def test_crossings_are_between_the_k_with_a_shown_difference():
    pairs = judged({"maml": {1: 0.5, 3: 0.01, 5: -0.01, 9: -0.5}, "offset": dict.fromkeys((1, 3, 5, 9), 0.0)})
    assert crossings(pairs) == [("maml", "offset", 1, 9, True)]
    noisy = judged({"maml": {1: 0.5, 9: -0.02}, "offset": {1: 0.0, 9: 0.0}})
    assert crossings(noisy) == [("maml", "offset", 1, 9, False)]
    assert crossings(judged({"maml": {1: 0.5, 9: 0.1}, "offset": {1: 0.0, 9: 0.0}})) == []


def test_three_seeds_count_as_samples_too():
    table = persons({"maml": {9: -0.3}, "offset": {9: 0.0}}, seeds=(0, 1, 2))
    maml = table["learner"] == "maml"
    table.loc[maml, "error_deg"] += table.loc[maml, "seed"].map({0: -0.6, 1: 0.0, 2: 0.6})
    [row] = learner_differences(table, ["maml", "offset"], EVALUATE).to_dict("records")
    assert row["seeds"] == 3
    assert row["verdict"] == "not shown" and row["high_deg"] > 0.5  # each seed by itself would be sure of its sign


def test_the_recommended_learner_has_the_smallest_validation_error_at_each_k():
    errors = {"maml": {0: 4.0, 1: 4.5, 3: 3.4, 18: 2.5}, "bayes": {0: 4.0, 1: 4.2, 3: 3.1, 18: 2.6}}
    rows = [(learner, k, deg) for learner, by_k in errors.items() for k, deg in by_k.items()]
    val = pd.DataFrame(rows, columns=["learner", "k", "error_deg"])
    expected = [(1, "unadapted", 4.0, 4.0), (3, "bayes", 3.1, 4.0), (18, "maml", 2.5, 4.0)]
    assert [tuple(row.values()) for row in recommended_learners(val)] == expected
    assert recommended_learners(val.iloc[:0]) == []
