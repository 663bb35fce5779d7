"""Which learners differ: pairs, adjusted tests, crossings, words.

Seen red by breaking the code: people not paired (errors of one learner shuffled), p-values not adjusted, adjusted
within a data set only, the sign of a turned pair kept, an unshown crossing told as shown, `offset` winning by its mean
alone.
"""

import numpy as np
import pandas as pd
import pytest

from faze.config.parameters import Evaluate
from faze.evaluation.learner_pairs import against, crossings, learner_differences
from faze.evaluation.learner_verdict import describe_advice, describe_headline, describe_learners, describe_other_tiers
from faze.evaluation.tables import TIER_CELL, mean_errors

EVALUATE = Evaluate(confidence=0.95, resamples=100, margin_deg=0.3, learner_margin_deg=0.1, seed=0)
PEOPLE = 12


def persons(
    by_learner: dict[str, dict[int, float]],
    datasets: tuple[str, ...] = ("mpiigaze",),
    tiers: tuple[str, ...] = ("baseline",),
    spread: float = 0.05,
    seeds: tuple[int, ...] = (0,),
) -> pd.DataFrame:
    """Errors whose mean change by learner and k is exact; people differ by degrees, pairs by `spread`."""
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


@pytest.mark.parametrize(("seeds", "over"), [(1, "people)"), (2, "people)"), (3, "people and seeds)")])
def test_the_headline_says_over_what_the_intervals_are(seeds, over):
    """Those of pairs count seeds from three on. Seen red: always people."""
    pairs = judged({"maml": {9: -0.3}, "offset": {9: 0.0}}, seeds=tuple(range(seeds)))
    assert f"95 % intervals over {over}" in describe_headline(pairs, "baseline", 9, 0.95)


def words(by_learner: dict[str, dict[int, float]], **settings) -> str:
    table = persons(by_learner, **settings)
    pairs = learner_differences(table, list(by_learner), EVALUATE)
    largest = int(table["k"].max())
    return " ".join(
        describe_learners(pairs, mean_errors(table, TIER_CELL, EVALUATE), largest, EVALUATE.learner_margin_deg)
    )


def test_pairs_are_paired_by_person():
    pairs = judged({"maml": {9: -1.0}, "offset": {9: -0.8}, "none": {9: -0.8}})
    assert list(zip(pairs["learner"], pairs["other"], strict=True)) == [
        ("maml", "offset"), ("maml", "none"), ("offset", "none")
    ]  # fmt: skip
    first = pairs.iloc[0]
    assert first["difference_deg"] == pytest.approx(-0.2)
    assert first["high_deg"] - first["low_deg"] < 0.2  # people differ by 6 degrees
    assert list(pairs["verdict"]) == ["different", "different", "equivalent"]
    assert first["people"] == PEOPLE and first["learner_deg"] == pytest.approx(4.0)


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
    assert words({"maml": {9: 0.0}}) == ""


def test_against_turns_pairs():
    pairs = judged({"maml": {9: -1.0}, "offset": {9: -0.8}, "none": {9: -0.1}})
    turned = against(pairs, "offset").set_index("learner")
    assert set(turned.index) == {"maml", "none"}
    assert turned["difference_deg"].to_dict() == pytest.approx({"maml": -0.2, "none": 0.7})
    assert (turned["low_deg"] < turned["difference_deg"]).all() and (
        turned["difference_deg"] < turned["high_deg"]
    ).all()
    assert turned.loc["none", "learner_deg"] > turned.loc["none", "other_deg"]


def test_crossings_are_told_between_the_k_that_show_them():
    pairs = judged({"maml": {1: 0.5, 3: 0.01, 5: -0.01, 9: -0.5}, "offset": dict.fromkeys((1, 3, 5, 9), 0.0)})
    assert crossings(pairs) == [("maml", "offset", 1, 9, "offset", "maml", True)]
    noisy = judged({"maml": {1: 0.5, 9: -0.02}, "offset": {1: 0.0, 9: 0.0}})
    assert crossings(noisy) == [("maml", "offset", 1, 9, "offset", "maml", False)]
    assert crossings(judged({"maml": {1: 0.5, 9: 0.1}, "offset": {1: 0.0, 9: 0.0}})) == []


def test_offset_that_wins_is_called_the_winner():
    said = words({"maml": {9: -0.5}, "none": {9: -0.2}, "offset": {9: -1.0}})
    assert (
        "Mean error after 9 samples, smallest first: `offset` 4.00°, `maml` 4.50° and `none` 4.80°; unadapted 5.00°."
        in said
    )
    assert "only subtracts a person's mean offset, wins: it beats every other learner, namely `maml` by 0.50° (" in said
    assert "and `none` by 0.80° (" in said
    assert "Shown to differ: `maml` beats `none` by 0.30°." in said


def test_offset_that_is_beaten():
    said = words({"maml": {9: -1.0}, "none": {9: -0.2}, "offset": {9: -0.5}})
    assert "only subtracts a person's mean offset, is beaten by `maml` by 0.50° (" in said
    assert "`offset` beats `none` by 0.30° (" in said
    both = words({"maml": {9: -1.0}, "none": {9: -1.2}, "offset": {9: -0.5}})
    assert "mean offset, is beaten by `maml` by 0.50° (" in both and "and `none` by 0.70° (" in both


def test_offset_does_not_win_by_its_mean_alone():
    said = words({"maml": {9: 0.1}, "offset": {9: 0.0}}, spread=0.6)
    assert "has the smallest error: no learner is shown to beat it." in said
    assert "wins" not in said
    assert "Not shown to be better than `offset`, worse or as good: `maml` (+0.10°, −" in said
    close = words({"maml": {9: 0.0}, "offset": {9: 0.01}})
    assert "is not shown to be beaten by any learner." in close
    assert "Shown to be as good as `offset` to within ±0.1°: `maml`." in close


def test_without_offset_pairs_and_crossings_are_told():
    said = words({"maml": {1: 0.5, 9: -0.5}, "none": {1: 0.0, 9: 0.0}, "fomaml": {1: 0.5, 9: -0.51}})
    assert "offset" not in said
    assert "Shown to differ: `maml` beats `none` by 0.50° and `fomaml` beats `none` by 0.51°." in said
    assert "Shown not to differ by more than 0.1°: `maml` from `fomaml`." in said
    assert "The curves of `maml` and `none` cross between k = 1 and k = 9: with fewer samples `none` is better" in said
    assert "Neither a difference nor its absence is shown: `maml` from `none`." in words(
        {"maml": {9: 0.1}, "none": {9: 0.0}}, spread=0.6
    )


def test_other_tiers_that_judge_otherwise_are_named():
    same = judged({"maml": {9: -1.0}, "offset": {9: -0.5}}, tiers=("baseline", "amp"))
    assert describe_other_tiers(same, ["baseline", "amp"], 9) == "Every other tier judges every pair the same way."
    turned = same.copy()
    turned.loc[turned["tier"] == "amp", "difference_deg"] *= -1
    assert "otherwise in amp" in describe_other_tiers(turned, ["baseline", "amp"], 9)
    assert describe_other_tiers(same, ["baseline"], 9) == ""


def test_three_seeds_count_as_samples_too():
    table = persons({"maml": {9: -0.3}, "offset": {9: 0.0}}, seeds=(0, 1, 2))
    maml = table["learner"] == "maml"
    table.loc[maml, "error_deg"] += table.loc[maml, "seed"].map({0: -0.6, 1: 0.0, 2: 0.6})
    [row] = learner_differences(table, ["maml", "offset"], EVALUATE).to_dict("records")
    assert row["seeds"] == 3
    assert row["verdict"] == "not shown" and row["high_deg"] > 0.5  # each seed by itself would be sure of its sign


def test_the_advice_follows_val_people_at_each_k():
    rows = [("maml", 0, 4.0), ("bayes", 0, 4.0), ("maml", 1, 4.5), ("bayes", 1, 4.2)]
    rows += [
        ("maml", 3, 3.4),
        ("bayes", 3, 3.1),
        ("maml", 9, 2.9),
        ("bayes", 9, 2.75),
        ("maml", 18, 2.5),
        ("bayes", 18, 2.6),
    ]
    val = pd.DataFrame(rows, columns=["learner", "k", "error_deg"])
    assert describe_advice(val) == (
        "Which to take, by val people alone: leave the estimator unadapted at k = 1; take `bayes` at k = 3 and 9 "
        "(3.10° and 2.75° instead of 4.00° unadapted); take `maml` at k = 18 (2.50° instead of 4.00° unadapted)."
    )
    assert describe_advice(val.iloc[:0]) == ""
