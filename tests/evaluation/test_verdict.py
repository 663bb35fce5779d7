"""The words of a verdict."""

import pandas as pd
import pytest

from faze.evaluation import verdict
from faze.evaluation.wording import saving, signed

NONE = pd.DataFrame()
SPEED = {"speed_confidence": 0.95, "speed_over": "rounds", "rounds": 5}


@pytest.mark.parametrize(("low", "ratio", "high", "said"), [
    (1.9, 2.0, 2.1, "2.00 times as fast"),
    (0.97, 1.02, 1.07, "No speed-up is shown"),
    (0.9, 0.94, 0.98, "slower"),
])  # fmt: skip
def test_speed_claims_no_more_than_its_interval(low, ratio, high, said):
    row = pd.Series(SPEED | {"speed_low": low, "speed_ratio": ratio, "speed_high": high})
    sentence = verdict.describe_speed(row, NONE)
    assert said in sentence and "a step" in sentence.lower() and "train" not in sentence.lower()
    assert f"(95 % interval {low:.2f} to {high:.2f}, over 5 rounds of fresh processes)" in sentence


def test_speed_says_when_processes_are_not_in_its_interval():
    """Seen red: blocks of one process each, told as if they spoke for all."""
    row = pd.Series(SPEED | {"speed_over": "blocks", "speed_low": 1.9, "speed_ratio": 2.0, "speed_high": 2.1})
    assert verdict.describe_speed(row, NONE) == (
        "A step of the whole ladder is 2.00 times as fast as the baseline's (95 % interval 1.90 to 2.10). The interval "
        "is over blocks of the same processes: what differs between processes is not in it."
    )


def peaks(low: float, middle: float, high: float, **more: object) -> pd.Series:
    known = {"peak_gib": middle, "peak_gib_low": low, "peak_gib_high": high, "rounds": 5, "speed_confidence": 0.95}
    return pd.Series(known | {"memory_low": float("nan"), "memory_high": float("nan")} | more)


def test_less_memory_is_told_with_its_spread_its_interval_and_the_noise():
    same = pd.DataFrame({"amp": peaks(1.5, 1.55, 1.58), "tf32": peaks(1.5, 1.57, 1.61)}).T
    row = peaks(0.9, 1.0, 1.1, memory_differs=True, memory_ratio=1.6, memory_low=1.5, memory_high=1.7)
    assert verdict.describe_memory(row, peaks(1.5, 1.6, 1.7), same) == (
        "Peak memory falls from 1.600 GiB (1.500 to 1.700) to 1.000 GiB (0.900 to 1.100): 1.60× less (95 % interval "
        "1.50 to 1.70); median, least and most of 5 rounds of fresh processes. Noise: amp and tf32 do the same step as "
        "the baseline here, at 1.550 GiB (1.500 to 1.580) and 1.570 GiB (1.500 to 1.610)."
    )


def test_more_memory_is_told_in_its_own_direction():
    row = peaks(3.1, 3.2, 3.3, memory_differs=True, memory_ratio=0.5, memory_low=0.4, memory_high=0.625)
    told = verdict.describe_memory(row, peaks(1.5, 1.6, 1.7), NONE)
    assert "grows from 1.600 GiB" in told and "2.00× as much (95 % interval 1.60 to 2.50)" in told


def test_peaks_that_overlap_are_no_change_of_memory():
    """Seen red: 1.06 times less, of a rung that cannot act."""
    row = peaks(0.9, 1.0, 1.1, memory_differs=False, memory_ratio=1.06)
    told = verdict.describe_memory(row, peaks(1.0, 1.06, 1.1), NONE)
    assert told.startswith("No change of peak memory is shown: 1.000 GiB (0.900 to 1.100), the baseline 1.060 GiB")
    assert "less" not in told and "as much" not in told


def test_a_single_round_has_no_spread():
    """Seen red: 1.000 GiB (1.000 to 1.000), least and most of 1 round."""
    row = peaks(1.0, 1.0, 1.0, memory_differs=False, memory_ratio=1.06, rounds=1)
    assert verdict.describe_memory(row, peaks(1.06, 1.06, 1.06), NONE) == (
        "No change of peak memory is shown: 1.000 GiB, the baseline 1.060 GiB; of one process each, whose noise is not "
        "known."
    )


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


@pytest.mark.parametrize(("verdicts", "said"), [
    (["equivalent", "equivalent"], "That redirection is unchanged is shown: gaze and head within ±0.5°."),
    (["identical", "identical"], "Gaze and head are redirected as by the baseline, to the bit."),
    (["different", "equivalent"], "It is different from the baseline's, by up to +1.20° (gaze, MPIIGaze)."),
    (["not shown", "equivalent"], "That it is unchanged is not shown: by up to +1.20° (gaze, MPIIGaze)."),
    (["not shown", "different"], "It is different from the baseline's, by up to −0.10° (head, MPIIGaze)."),
])  # fmt: skip
def test_redirection_is_told_beside_its_controls_with_its_verdict(verdicts, said):
    errors = {"both": 5.4, "still": 18.5, "real": 3.8, "oracle": 3.7}
    row = {"tier": "recompute", "dataset": "mpiigaze", "number": "gaze_error_deg"}
    head = row | {"variant": "both", "number": "head_error_deg", "mean": 99.0}
    other = row | {"variant": "both", "tier": "baseline", "mean": 98.0}
    means = pd.DataFrame([*(row | {"variant": v, "mean": deg} for v, deg in errors.items()), head, other])
    changes = pd.DataFrame({"tier": ["recompute", "recompute", "amp"], "dataset": "mpiigaze", "factor": ["gaze", "head", "gaze"],
                            "difference_deg": [1.2, -0.1, 9.0], "margin_deg": 0.5,
                            "verdict": [*verdicts, "not judged"]})  # fmt: skip
    assert verdict.describe_redirection(means, changes, "recompute") == (
        "The gaze of redirected strips misses what was asked by 5.4° on MPIIGaze, as an independent estimator sees it; "
        f"of strips that are not turned by 18.5° on MPIIGaze, of real ones by 3.8° on MPIIGaze. {said}"
    )
    alone = verdict.describe_redirection(means.assign(tier="baseline"), changes, "baseline")
    assert alone.endswith("of real ones by 3.8° on MPIIGaze.")
