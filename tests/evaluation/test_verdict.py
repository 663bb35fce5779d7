"""The words of a verdict."""

import pandas as pd
import pytest

from faze.evaluation import verdict
from faze.evaluation.wording import saving, signed


@pytest.mark.parametrize(("low", "ratio", "high", "said"), [
    (1.9, 2.0, 2.1, "2.00 times as fast"),
    (0.97, 1.02, 1.07, "No speed-up is shown"),
    (0.9, 0.94, 0.98, "slower"),
])  # fmt: skip
def test_speed_claims_no_more_than_its_interval(low, ratio, high, said):
    row = pd.Series({"speed_low": low, "speed_ratio": ratio, "speed_high": high})
    sentence = verdict.describe_speed(row, 0.95)
    assert said in sentence
    assert f"95 % interval {low:.2f} to {high:.2f}" in sentence


@pytest.mark.parametrize(
    ("ratio", "said"), [(1.6, "falls from 1.60 to 1.00"), (1.01, "the same"), (0.5, "2.00× as much")]
)
def test_memory_in_words(ratio, said):
    row, baseline = pd.Series({"memory_ratio": ratio, "peak_gib": 1.6 / ratio}), pd.Series({"peak_gib": 1.6})
    assert said in verdict.describe_memory(row, baseline)


@pytest.mark.parametrize(("ratio", "said"), [(1.6, "1.60× less"), (0.58, "1.72× as much"), (1.002, "1.00×")])
def test_saving_is_told_in_one_way(ratio, said):
    assert saving(ratio) == said


def test_one_difference_is_a_difference():
    words = ["identical", "equivalent", "not shown", "different"]  # each beside those before it
    assert [verdict.judge(pd.DataFrame({"verdict": words[: i + 1]})) for i in range(4)] == words


@pytest.mark.parametrize(("number", "text"), [(0.084, "+0.08"), (-0.026, "−0.03"), (-0.001, "0.00"), (0.0, "0.00")])
def test_signs(number, text):
    assert signed(number) == text


def change(verdict_word: str, k: int, seeds: int = 3, **other: object) -> dict:
    shared = {"dataset": "mpiigaze", "k": k, "difference_deg": 0.08, "low_deg": -0.03, "high_deg": 0.19, "people": 15}
    return shared | {"verdict": verdict_word, "margin_deg": 0.1, "tost_p": 0.31, "seeds": seeds} | other


NONE = pd.DataFrame(columns=["tier", *change("", 0)])
NOISE = pd.DataFrame([
    change("", 0, 1, tier="rounding", difference_deg=-0.31),
    change("", 9, 1, tier="rounding", difference_deg=0.2),
    change("", 9, 1, tier="seed", difference_deg=0.25),
])  # fmt: skip
TOLD = "MPIIGaze unadapted +0.08° (−0.03 to +0.19); in brackets the 90 % interval over"


def test_a_difference_is_told_with_its_interval_and_what_chance_alone_does():
    rows = pd.DataFrame([change("different", 0), change("equivalent", 9)])
    assert verdict.describe_error(rows, NOISE, 0.95) == (
        f"The error is different from the baseline's: {TOLD} people and seeds. For comparison: rounding alone by up "
        "to 0.31° (MPIIGaze unadapted) and another seed by up to 0.25° (MPIIGaze after 9 samples) move the baseline's "
        "error."
    )


def test_one_seed_gets_no_verdict_but_its_change():
    rows = pd.DataFrame([change("not judged", 0, 1), change("identical", 9, 1)])
    assert verdict.describe_error(rows, NONE, 0.95) == (
        f"The change of the error is not judged from 1 seed: {TOLD} people of these checkpoints."
    )


def test_what_is_not_shown_is_told_with_its_margin():
    rows = pd.DataFrame([change("identical", 9), change("not shown", 0)])
    told = verdict.describe_error(rows, NONE, 0.95)
    assert told == f"It is not shown that the error is unchanged to within ±0.1°: {TOLD} people and seeds."


def test_equivalence_gives_the_largest_p():
    rows = pd.DataFrame(
        [change("identical", 0) | {"tost_p": float("nan")}, change("equivalent", 9) | {"tost_p": 0.031}]
    )
    told = verdict.describe_error(rows, NONE, 0.95)
    assert "shown to be unchanged" in told
    assert "p = 0.031" in told
