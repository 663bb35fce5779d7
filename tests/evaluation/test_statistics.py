"""The equivalence test compared with published examples and simulated data.

Simulated rates have a standard error of 0.5 points at 5 % (2,000 draws) and 0.5 points at 90 % (4,000 draws).
"""

import numpy as np
import pandas as pd
import pytest
from crossed import draw
from scipy import stats

from faze.evaluation.statistics import SEEDS_FOR_A_TIER, bootstrap, compare, holm, pool_noise

# Student 1908, additional hours of sleep under two drugs, ten patients: R's documentation of t.test works this example.
SLEEP_1 = np.array([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0])
SLEEP_2 = np.array([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])
BOOTSTRAP = {"confidence": 0.95, "resamples": 4000}
ENDS = ("low_deg", "high_deg")


def test_three_seeds_add_both_variances():
    # Without interaction the grand mean's variance is var(seeds) / S + var(people) / P.
    seed_effect, person_effect = np.array([0.3, -0.1, 0.4]), np.linspace(-0.5, 0.7, 8)
    differences = seed_effect[:, None] + person_effect
    terms = seed_effect.var(ddof=1) / 3, person_effect.var(ddof=1) / 8
    variance = sum(terms)
    freedom = variance**2 / (terms[0] ** 2 / 2 + terms[1] ** 2 / 7)
    result = compare(differences, margin=1.0)
    reach = stats.t.ppf(0.95, freedom) * np.sqrt(variance)
    assert (result["high_deg"] - result["low_deg"]) / 2 == pytest.approx(reach, rel=1e-9)
    assert result["tost_p"] == pytest.approx(stats.t.sf((1.0 - abs(differences.mean())) / np.sqrt(variance), freedom))


def test_tost_agrees_with_r_toster_on_the_sleep_data():
    # TOSTER's t_TOST(extra ~ group, paired, bounds -1 and 1): its tables print t = -1.491161 and -6.633095 at 9 degrees
    # of freedom, p = 0.9149441 (lower) and 4.778596e-05 (upper), 90 % limits -2.293005 and -0.8669947.
    result = compare(SLEEP_1 - SLEEP_2, margin=1.0)
    assert result["tost_p"] == pytest.approx(0.9149441, abs=5e-8)
    assert [result[name] for name in ENDS] == pytest.approx([-2.293005, -0.8669947], abs=5e-7)
    assert result["difference_p"] == pytest.approx(2.832890e-3, abs=5e-10)


@pytest.mark.parametrize("seeds", [1, 3])
def test_equivalence_at_the_margin_is_shown_in_five_percent(seeds):
    spread = {"seed_sd": 0.04 * (seeds > 1), "person_sd": 0.02, "rest_sd": 0.06}
    at, beyond = (
        np.mean([compare(one, margin=0.1)["tost_p"] < 0.05 for one in draw(2, 2000, seeds, 15, true, **spread)])
        for true in (0.1, -0.15)
    )
    assert 0.035 <= at <= 0.065
    assert beyond < min(at, 0.02)


@pytest.mark.parametrize(("seeds", "people"), [(3, 15), (5, 12)])
@pytest.mark.parametrize("seed_sd", [0.0, 0.03, 0.3])
def test_intervals_cover_for_any_variance_between_seeds(seeds, people, seed_sd):
    found = pd.DataFrame([compare(one, margin=1) for one in draw(5, 4000, seeds, people, 0.2, seed_sd, 0.08, 0.13)])
    assert 0.88 <= ((found["low_deg"] < 0.2) & (found["high_deg"] > 0.2)).mean() <= 0.96


def test_bootstrap_resamples_whole_seeds_and_people_independently():
    # Seeds differ, people do not: only resampled seeds can widen the interval, to the outer seeds and no further.
    errors = np.array([1.0, 2.0, 3.0])[:, None] + np.zeros((1, 10))
    assert bootstrap(errors, **BOOTSTRAP) == pytest.approx((2.0, 1.0, 3.0), abs=0.35)
    # The interval over many people is that of the central limit theorem.
    people = np.random.default_rng(7).normal(5, 2, size=(1, 400))
    mean, low, high = bootstrap(people, **BOOTSTRAP)
    half = 1.96 * people.std(ddof=1) / 20
    assert (low, high) == pytest.approx((mean - half, mean + half), abs=0.02)


def test_one_person_has_no_interval():
    mean, *ends = bootstrap(np.array([[3.0], [5.0]]), **BOOTSTRAP)
    assert mean == 4.0 and np.isnan(ends).all()
    for seeds in (1, SEEDS_FOR_A_TIER):
        alone = compare([[0.02]] * seeds, margin=0.1)
        assert np.isnan([alone[name] for name in (*ENDS, "tost_p", "difference_p")]).all() and not alone["identical"]


def test_a_tiny_change_of_everybody_is_not_identical():
    result = compare(np.full((1, 10), 1e-9), margin=0.1)
    assert not result["identical"] and result["tost_p"] < 1e-9
    assert not compare([1e-9, -1e-9], margin=0.1)["identical"]  # though their mean is 0
    same = compare(np.zeros((3, 8)), margin=0.1)
    assert same["identical"] and same["difference_deg"] == same["low_deg"] == 0 and np.isnan(same["tost_p"])


def ablations(draws: int, tiers: int, seeds: int, *deviations: float) -> np.ndarray:
    """Simulate the errors (draws, 1 + tiers, S, 20) of tiers that differ by chance alone."""
    return draw(9, draws * (tiers + 1), seeds, 20, 4.0, *deviations).reshape(draws, tiers + 1, seeds, 20)


def test_noise_is_pooled_over_all_distinct_tiers():
    """Effects of people and seeds that all tiers share are not noise. Regression: the baseline's effects were
    counted."""
    found = [pool_noise(errors + np.arange(3)[:, None])[0] for errors in ablations(400, 4, 3, 0.1, 0.2, 0.3)]
    variances = [0.3**2 + 20 * 0.1**2, 0.3**2 + 3 * 0.2**2, 0.3**2]  # of seeds, people and both
    assert np.mean(found, axis=0) == pytest.approx(2 * np.array(variances), rel=0.05)
    errors = ablations(1, 2, 3, 0.1, 0.2, 0.3)[0]
    (repeated, tiers), (once, _) = pool_noise(errors[[0, 0, 1, 2, 2, 2]]), pool_noise(errors)
    assert tiers == 2 and (repeated == once).all()
    assert pool_noise(errors[[1, 1]]) is None and pool_noise(errors[:, :2]) is None


@pytest.mark.parametrize("seed_sd", [0.0, 0.13, 0.5])
def test_false_differences_are_as_rare_as_the_p_value(seed_sd):
    """This includes the tail for Holm's first step. Regression: at 3 seeds, false differences were 4 times as
    common."""
    small = 0.05 / 16
    found = [
        compare(errors[1] - errors[0], margin=0.3, noise=pool_noise(errors))["difference_p"]
        for errors in ablations(2500, 4, 3, seed_sd, 0.0, 0.24)
    ]
    assert np.mean(np.less(found, small)) < 2 * small
    assert 0.015 <= np.mean(np.less(found, 0.05)) <= 0.065


def test_holm_steps_down():
    """In R, p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm") is 0.03 0.06 0.06 0.02."""
    adjusted = holm(pd.Series([0.01, 0.04, np.nan, 0.03, 0.005]))
    np.testing.assert_allclose(adjusted, [0.03, 0.06, np.nan, 0.06, 0.02])
    assert holm(pd.Series([0.6, 0.7])).tolist() == [1.0, 1.0] and holm(pd.Series([], dtype=object)).empty
