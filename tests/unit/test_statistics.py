import numpy as np
import pytest
from scipy import stats

from faze.evaluation.verdict import verdict_words
from faze.statistics import bootstrap_mean, bootstrap_reduction, compare, tost_power

# Student 1908, additional hours of sleep under two drugs, ten patients: R's documentation of t.test works this example.
SLEEP_1 = np.array([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0])
SLEEP_2 = np.array([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])
BOOTSTRAP = {"confidence": 0.95, "resamples": 4000, "seed": 0}


def draw(rng, seeds, people, mean, seed_sd, person_sd, rest_sd):
    return (
        mean
        + seed_sd * rng.normal(size=(seeds, 1))
        + person_sd * rng.normal(size=(1, people))
        + rest_sd * rng.normal(size=(seeds, people))
    )


def test_paired_test_agrees_with_the_published_example():
    result = compare(SLEEP_1 - SLEEP_2, margin=0.5, alpha=0.025)
    assert result.difference == pytest.approx(-1.58)
    assert (result.low, result.high) == pytest.approx((-2.4598858, -0.7001142), abs=1e-7)
    assert result.difference_p == pytest.approx(0.002833, abs=5e-7)
    assert result.verdict == "different"


@pytest.mark.parametrize("margin", [0.5, 1.5, 2.0, 3.0])
def test_tost_is_two_one_sided_t_tests(margin):
    differences = SLEEP_1 - SLEEP_2
    above = stats.ttest_1samp(differences, -margin, alternative="greater").pvalue
    below = stats.ttest_1samp(differences, margin, alternative="less").pvalue
    result = compare(differences, margin=margin)
    assert result.tost_p == pytest.approx(max(above, below), rel=1e-9)
    assert (result.verdict == "equivalent") == (max(above, below) < 0.05)
    assert (result.verdict == "equivalent") == (-margin < result.low and result.high < margin)


def test_two_seeds_are_one_mean_per_person():
    rng = np.random.default_rng(1)
    differences = rng.normal(size=(2, 9))
    both, mean = compare(differences, margin=0.7), compare(differences.mean(axis=0), margin=0.7)
    assert (both.tost_p, both.low, both.high) == pytest.approx((mean.tost_p, mean.low, mean.high))
    assert not both.about_tier


def test_three_seeds_add_both_variances():
    # Without interaction the grand mean's variance is var(seeds) / S + var(people) / P.
    seed_effect, person_effect = np.array([0.3, -0.1, 0.4]), np.linspace(-0.5, 0.7, 8)
    differences = seed_effect[:, None] + person_effect
    variance = seed_effect.var(ddof=1) / 3 + person_effect.var(ddof=1) / 8
    terms = seed_effect.var(ddof=1) / 3, person_effect.var(ddof=1) / 8
    freedom = variance**2 / (terms[0] ** 2 / 2 + terms[1] ** 2 / 7)
    result = compare(differences, margin=1.0)
    assert result.about_tier
    reach = stats.t.ppf(0.95, freedom) * np.sqrt(variance)
    assert (result.high - result.low) / 2 == pytest.approx(reach, rel=1e-9)
    assert result.tost_p == pytest.approx(stats.t.sf((1.0 - abs(differences.mean())) / np.sqrt(variance), freedom))


@pytest.mark.parametrize(("true", "low", "high"), [(0.1, 0.035, 0.065), (0.15, 0.0, 0.02)])
def test_equivalence_at_the_margin_is_found_in_five_percent(true, low, high):
    rng = np.random.default_rng(2)
    draws = true + 0.12 * rng.normal(size=(2000, 15))
    rate = np.mean([compare(d, margin=0.1).verdict == "equivalent" for d in draws])
    assert low <= rate <= high


def test_equivalence_at_the_margin_is_rarely_found_with_three_seeds():
    rng = np.random.default_rng(3)
    draws = (draw(rng, 3, 15, 0.1, 0.04, 0.05, 0.08) for _ in range(1000))
    rate = np.mean([compare(d, margin=0.1).verdict == "equivalent" for d in draws])
    assert 0.02 <= rate <= 0.08


def test_power_without_a_difference_is_as_computed():
    rng = np.random.default_rng(4)
    draws = 0.12 * rng.normal(size=(2000, 15))
    rate = np.mean([compare(d, margin=0.1).verdict == "equivalent" for d in draws])
    assert rate == pytest.approx(tost_power(0.1, 0.12 / np.sqrt(15), 14), abs=0.04)
    # Normal limit: the margin is z(0.95) + z(0.90) standard errors for 80 %.
    assert tost_power(1.6449 + 1.2816, 1.0, 1e9) == pytest.approx(0.8, abs=1e-3)


@pytest.mark.parametrize("seed_sd", [0.0, 0.1, 0.3])
def test_interval_of_a_change_covers_whatever_seeds_do(seed_sd):
    rng = np.random.default_rng(5)
    results = [compare(draw(rng, 3, 15, 0.2, seed_sd, 0.15, 0.15), margin=0.1) for _ in range(500)]
    covered = np.mean([r.low <= 0.2 <= r.high for r in results])
    assert 0.86 <= covered <= 0.97


def test_bootstrap_covers_the_mean_over_new_people_and_seeds():
    rng = np.random.default_rng(6)
    settings = {"confidence": 0.95, "resamples": 400, "seed": 0}
    intervals = [bootstrap_mean(draw(rng, 3, 15, 4.0, 0.1, 0.7, 0.2), **settings) for _ in range(300)]
    assert 0.91 <= np.mean([i.low <= 4.0 <= i.high for i in intervals]) <= 0.985


def test_bootstrap_resamples_whole_seeds_and_people_independently():
    # Seeds differ, people do not: only resampled seeds can widen the interval, to the outer seeds and no further.
    errors = np.array([1.0, 2.0, 3.0])[:, None] + np.zeros((1, 10))
    interval = bootstrap_mean(errors, **BOOTSTRAP)
    assert (interval.mean, interval.low, interval.high) == pytest.approx((2.0, 1.0, 3.0), abs=0.35)
    assert bootstrap_mean(errors[:1], **BOOTSTRAP) == bootstrap_mean(errors[0], **BOOTSTRAP)
    # The interval over many people is that of the central limit theorem.
    people = np.random.default_rng(7).normal(5, 2, size=400)
    interval = bootstrap_mean(people, **BOOTSTRAP)
    half = 1.96 * people.std(ddof=1) / 20
    assert (interval.low, interval.high) == pytest.approx((people.mean() - half, people.mean() + half), abs=0.02)


def test_one_person_has_no_interval():
    interval = bootstrap_mean([[3.0], [5.0]], **BOOTSTRAP)
    assert interval.mean == 4.0
    assert np.isnan(interval.low) and np.isnan(interval.high)
    assert verdict_words(compare([0.02], margin=0.1)) == "not shown, needs more people"


def test_reduction_is_paired():
    before = np.random.default_rng(8).uniform(2, 9, size=12)
    halved = bootstrap_reduction(before / 2, before, **BOOTSTRAP)
    assert (halved.mean, halved.low, halved.high) == pytest.approx((0.5, 0.5, 0.5))
    other = bootstrap_reduction(np.full(12, 2.0), before, **BOOTSTRAP)
    assert other.mean == pytest.approx(1 - 2 / before.mean())
    assert other.low < other.mean < other.high


def test_words_of_each_case():
    rng = np.random.default_rng(9)
    identical = compare(np.zeros((3, 8)), margin=0.1)
    assert np.isnan(identical.tost_p)
    equivalent = compare(draw(rng, 3, 12, 0.0, 0.01, 0.02, 0.02), margin=0.1)
    different = compare(draw(rng, 3, 12, 0.5, 0.01, 0.02, 0.02), margin=0.1)
    assert [verdict_words(c) for c in (identical, equivalent, different)] == ["identical", "equivalent", "different"]
    one_seed = compare(0.05 + np.linspace(-0.4, 0.4, 12), margin=0.1)
    assert verdict_words(one_seed) == "not shown, needs at least 2 more seeds"
    three_seeds = compare(np.array([-0.1, 0.02, 0.1])[:, None] + np.linspace(-0.05, 0.05, 12), margin=0.1)
    assert verdict_words(three_seeds).startswith("not shown, needs about ")
    assert verdict_words(three_seeds).endswith(" more seeds")
    spread_people = compare(np.linspace(-1, 1, 6) + np.zeros((3, 1)), margin=0.1)
    assert verdict_words(spread_people).startswith("not shown, needs more people")


def test_a_tiny_change_of_everybody_is_not_identical():
    result = compare(np.full((1, 10), 1e-9), margin=0.1)
    assert result.verdict == "equivalent"
    assert compare(np.full((4, 10), 0.25), margin=0.1).verdict == "different"


def test_the_named_number_of_seeds_is_about_enough():
    rng = np.random.default_rng(10)
    spread = {"seed_sd": 0.12, "person_sd": 0.03, "rest_sd": 0.1}
    seen = [compare(draw(rng, 4, 15, 0.0, **spread), margin=0.1) for _ in range(60)]
    typical = int(np.median([r.more_seeds for r in seen if r.more_seeds is not None]))
    assert typical > 1
    found = [compare(draw(rng, 4 + typical, 15, 0.0, **spread), margin=0.1).verdict for _ in range(300)]
    assert 0.6 <= np.mean([verdict == "equivalent" for verdict in found]) <= 0.95
