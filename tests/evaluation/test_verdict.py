"""The cards at the top of the page: what is not shown has no number."""

import pandas as pd
import pytest

from faze.config.parameters import Evaluate
from faze.evaluation import summary
from faze.evaluation.tables import WORDS

NAN = float("nan")
EVALUATE = Evaluate(confidence=0.95, resamples=100, margin_deg=0.1, learner_margin_deg=0.1)


def tiers(**changed: dict) -> pd.DataFrame:
    """Return the performance of a baseline and of two tiers that are shown to be better; `changed` is by tier."""
    shared = {"rounds": 5, "comparisons": 2, "speed_over": "rounds", "speed_confidence": 0.95, "same_step": ""}
    rows = {"baseline": {"speed_ratio": 1.0, "speed_low_of_all": 1.0, "memory_ratio": 1.0, "memory_differs": False}}
    rows["fast"] = {"speed_ratio": 2.16, "speed_low_of_all": 1.9, "memory_ratio": 1.2, "memory_differs": True}
    rows["lean"] = {"speed_ratio": 1.10, "speed_low_of_all": 1.01, "memory_ratio": 3.0, "memory_differs": True}
    table = [shared | row | changed.get(tier, {}) | {"tier": tier} for tier, row in rows.items()]
    return pd.DataFrame(table).assign(speed_high_of_all=9.0, peak_gib=0.4, memory_change="much less")


NEVER = {"speed_low_of_all": 0.43, "memory_differs": False}
SAME = {"same_step": "no effect"}
ONE = {"speed_over": "blocks", "memory_differs": False, "rounds": 1}


@pytest.mark.parametrize(("changed", "speed", "memory"), [
    ({}, ("Fastest tier: fast", "2.16×"), ("Smallest peak memory: lean", "much less")),
    ({"fast": NEVER}, ("Fastest tier: lean", "1.10×"), ("Smallest peak memory: lean", "much less")),
    ({"lean": {"memory_ratio": 0.5}}, ("Fastest tier: fast", "2.16×"), ("Smallest peak memory: fast", "much less")),
    ({"fast": NEVER, "lean": NEVER}, ("Fastest tier", "none shown"), ("Smallest peak memory", "none shown")),
    ({"fast": SAME, "lean": SAME}, ("Fastest tier", "none shown"), ("Smallest peak memory", "none shown")),
    ({"fast": ONE, "lean": ONE}, ("Fastest tier", "none shown"), ("Smallest peak memory", "none shown")),
])  # fmt: skip
def test_only_a_tier_that_is_shown_to_be_better_has_a_number(changed, speed, memory):
    """Regression: on a busy machine, the first card said 2.16×, with an interval of 0.43 to 10.8."""
    found = summary.speed_and_memory(tiers(**changed))
    assert [card[:2] for card in found] == [speed, memory]
    for title, value, note in found:
        assert "none" not in value or not any(f"{ratio}" in title + note for ratio in (2.16, 1.1, 0.43))
    assert "none" in found[0][1] or ("interval 1." in found[0][2] and "best tier of 2" in found[0][2])


def test_one_difference_decides():
    words = ["identical", "equivalent", "not shown", "not judged", "different"]  # each together with those before it
    assert [pd.Categorical(words[: i + 1], WORDS, ordered=True).min() for i in range(5)] == words


def change(verdict: str, difference_deg: float, low_deg: float = -0.03, seeds: int = 3) -> dict:
    ends = {"difference_deg": difference_deg, "low_deg": low_deg, "high_deg": low_deg + 0.4}
    return {"tier": "amp", "dataset": "mpiigaze", "k": 9, "verdict": verdict, "seeds": seeds} | ends


@pytest.mark.parametrize(("rows", "word", "notes"), [
    ([change("equivalent", 0.02), change("different", -0.09)], "different",
     ("−0.09° (amp, MPIIGaze, k = 9, 90 % interval −0.03 to +0.37)", "±0.1°", "3 seeds")),
    ([change("not judged", 0.08, NAN, seeds=1)], "not judged", ("+0.08° (amp, MPIIGaze, k = 9)", "these checkpoints")),
    ([], "not compared", ("run.tiers",)),
])  # fmt: skip
def test_the_card_of_the_error_has_the_verdict_and_the_largest_change(rows, word, notes):
    words = pd.Categorical([row["verdict"] for row in rows], WORDS, ordered=True)
    title, value, note = summary.error(pd.DataFrame(rows).assign(verdict=words), "baseline", EVALUATE)
    assert (title, value) == ("Error compared with baseline", word) and all(text in note for text in notes)


def test_the_best_learner_is_chosen_on_val_people():
    """The card shows the errors of that learner on test people, even if another one is better there."""
    degrees = {("unadapted", 0): 5.0, ("maml", 9): 3.0, ("bayes", 9): 3.5}
    rows = [
        (name, *cell, deg + extra) for name, extra in (("phone", 0), ("mpiigaze", 1)) for cell, deg in degrees.items()
    ]
    errors = pd.DataFrame(rows, columns=["dataset", "learner", "k", "mean_deg"])
    chosen = [{"k": 1, "learner": "maml"}, {"k": 9, "learner": "bayes"}]
    title, value, note = summary.best_learner(errors, chosen)
    assert (title, value) == ("Best learner: bayes", "5.00° → 3.50°")
    assert "on phone; 6.00° → 4.50° on MPIIGaze" in note and "val people" in note
    for none in ([], [{"k": 9, "learner": "unadapted"}]):
        assert summary.best_learner(errors, none)[:2] == ("Best learner", "none shown")
