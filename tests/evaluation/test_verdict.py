"""The sentences of a verdict: their claims and numbers."""

import pandas as pd
import pytest

from faze.config.parameters import Evaluate
from faze.evaluation import verdict

NAN = float("nan")
EVALUATE = Evaluate(confidence=0.95, resamples=100, margin_deg=0.1, learner_margin_deg=0.1)


def contains(sentence: str, *texts: str) -> bool:
    return [text for text in texts if text not in sentence] == []


@pytest.mark.parametrize(
    ("same_step", "fastest"), [(["", "", "", ""], "b"), (["", "", "no effect", ""], "c"), (["", "x", "x", "x"], "b")]
)
def test_the_best_tier_is_neither_the_baseline_nor_one_without_effect(same_step, fastest):
    table = pd.DataFrame({"tier": list("xabc"), "speed_ratio": [1.0, 0.8, 0.95, 0.9], "same_step": same_step})
    assert verdict.best(table, "speed_ratio")["tier"] == fastest
    assert verdict.best(table[:1], "speed_ratio")["tier"] == "x"


def test_one_difference_decides():
    verdicts = ["identical", "equivalent", "not shown", "not judged", "different"]  # each together with those before it
    assert [verdict.overall(pd.DataFrame({"verdict": verdicts[: i + 1]})) for i in range(5)] == verdicts


def change(word: str, k: int = 0, **other: object) -> dict:
    shared = {"dataset": "mpiigaze", "k": k, "difference_deg": 0.08, "low_deg": -0.03, "high_deg": 0.19, "people": 15}
    return shared | {"verdict": word, "tost_p": 0.31, "seeds": 3} | other


@pytest.mark.parametrize(("rows", "expected"), [
    ([change("different"), change("equivalent", 9, difference_deg=-0.09)], ("differ", "in 1 of 2 comparisons", "+0.08°",
                                                                          "MPIIGaze, k = 0", "90 % interval −0.03 to")),
    ([change("not judged"), change("identical", 9)], ("not judged", "3 seeds", "+0.08°")),
    ([change("not shown", 9), change("identical")], ("not shown", "1 of 2 comparisons", "±0.1°", "k = 9", "+0.19")),
    ([change("equivalent", 9, tost_p=0.031), change("identical", tost_p=NAN)],
     ("unchanged", "±0.1°", "all 2 comparisons", "p = 0.031")),
    ([change("identical"), change("identical", 9)], ("identical", "all 2 comparisons")),
    ([change("not judged", low_deg=NAN, high_deg=NAN)], ("+0.08° (MPIIGaze, k = 0)",)),  # a single person
    ([change("different", factor="gaze", difference_deg=1.2)], ("+1.20° (MPIIGaze, gaze",)),
])  # fmt: skip
def test_each_verdict_has_its_sentence(rows, expected):
    sentence = verdict.describe_errors(pd.DataFrame(rows).assign(tier="amp"), "The error", "baseline", EVALUATE)
    assert contains(sentence, "The error of amp", *expected)


def test_tiers_with_the_same_verdict_share_a_sentence():
    words = {"amp": "not shown", "ddp": "different", "compile": "not shown", "recompute": "identical"}
    rows = pd.DataFrame([change(word, tier=tier) for tier, word in words.items()])
    sentences = verdict.describe_errors(rows, "The error", "baseline", EVALUATE).split("The error of ")[1:]
    assert [sentence.split(" is ")[0] for sentence in sentences] == ["ddp", "amp and compile", "recompute"]
    assert "in 1 of 1 comparison" in sentences[0] and "in 2 of 2 comparisons" in sentences[1]


def test_redirection_is_compared_with_its_controls():
    row = {"tier": "baseline", "dataset": "mpiigaze", "number": "gaze_error_deg"}
    rows = [row | {"variant": v, "mean": m} for v, m in {"redirected": 5.4, "not_turned": 18.5, "real": 3.8}.items()]
    rows += [row | {"variant": "redirected", "number": "head_error_deg", "mean": 99.0}]
    rows += [row | {"variant": "redirected", "tier": "recompute", "mean": 98.0}]
    sentence = verdict.describe_redirection(pd.DataFrame(rows), "baseline")
    assert contains(sentence, "by 5.4° on MPIIGaze", "18.5°", "3.8°") and "99" not in sentence and "98" not in sentence


def row(learner: str, difference: float, word: str = "different", dataset: str = "mpiigaze") -> dict:
    row = {"tier": "baseline", "dataset": dataset, "learner": learner, "k": 9, "verdict": word}
    degrees = {"learner_deg": 4.0, "offset_deg": 4.0, "difference_deg": difference, "low_deg": NAN, "high_deg": NAN}
    return row | degrees


@pytest.mark.parametrize(("rows", "expected", "absent"), [
    ([row("maml", -0.5), row("bayes", -0.7), row("none", 0.2)], ("`maml` by 0.50° and `bayes` by 0.70°",), "`none`"),
    ([row("maml", 0.5)], ("none on MPIIGaze",), "`maml`"),  # offset wins
    ([row("maml", -0.5, "not shown")], ("none on MPIIGaze",), "`maml`"),  # not by its mean alone
])  # fmt: skip
def test_learners_are_better_than_offset_only_if_that_is_shown(rows, expected, absent):
    sentence = verdict.describe_learners(pd.DataFrame(rows))
    assert contains(sentence, "k = 9", *expected) and absent not in sentence
