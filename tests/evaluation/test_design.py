"""The power of a design, compared with simulated ablations.

Rates simulated with 2,000 draws have a standard error of at most 1.1 points. Regression: the power was computed as if
the degrees of freedom of the error were known (0.12 instead of 0.01 at three seeds); the difference between two runs
had the noise of only one run.
"""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from crossed import draw

from faze.evaluation.statistics import (
    VarianceComponents,
    compare,
    design_power,
    design_table,
    equivalence_p,
    pool_noise,
    standard_error,
)


def power_of(variances: VarianceComponents, seeds: int, people: int, margin: float, tiers: int = 1) -> float:
    return design_power(variances, seeds, people, tiers=tiers, margin=margin, alpha=0.05).power


def simulated_power(variances: VarianceComponents, seeds: int, people: int, margin: float) -> float:
    deviations = np.sqrt([variances.seeds, variances.people, variances.residual])
    differences = draw(seeds, 2000, seeds, people, 0.0, *deviations)
    return np.mean(equivalence_p(differences.mean(axis=(-2, -1)), *standard_error(differences), margin) < 0.05)


def simulated_power_of_tiers(
    variances: VarianceComponents, seeds: int, people: int, margin: float, tiers: int
) -> float:
    """Return the power for simulated tiers, each with half the variance of the difference between two."""
    deviations = np.sqrt([variances.seeds / 2, variances.people / 2, variances.residual / 2])
    shown = []
    for errors in draw(seeds, 1000 * (tiers + 1), seeds, people, 4.0, *deviations).reshape(1000, -1, seeds, people):
        noise = pool_noise(errors)
        shown += [compare(errors[1] - errors[0], margin=margin, noise=noise).tost_p < 0.05]
    return float(np.mean(shown))


@pytest.mark.parametrize("seeds", [3, 5, 10, 20])
@pytest.mark.parametrize("deviations", [(0.0, 0.0, 0.4), (0.05, 0.0, 0.4), (0.1, 0.0, 0.4), (0.1, 0.2, 0.3)])
def test_the_power_is_that_of_simulated_ablations(seeds, deviations):
    variances = VarianceComponents(*np.square(deviations))
    for people, margin in ((15, 0.1), (60, 0.3)):
        found = power_of(variances, seeds, people, margin)
        assert found == pytest.approx(simulated_power(variances, seeds, people, margin), abs=0.03)


def test_the_power_of_three_seeds_and_two_people_is_simulated_too():
    """In this case, every degree of freedom matters."""
    variances = VarianceComponents(0.0, 0.0, 0.3**2)
    assert power_of(variances, 3, 2, 0.6) == pytest.approx(simulated_power(variances, 3, 2, 0.6), abs=0.03)


@pytest.mark.parametrize("tiers", [2, 5])
def test_the_power_depends_on_the_tiers_behind_the_noise_variance(tiers):
    variances = VarianceComponents(0.1**2, 0.1**2, 0.4**2)
    found = power_of(variances, 3, 15, 0.3, tiers)
    assert found == pytest.approx(simulated_power_of_tiers(variances, 3, 15, 0.3, tiers), abs=0.04)
    assert found > power_of(variances, 3, 15, 0.3) + 0.05


def test_the_needed_design_suffices_and_is_not_larger():
    variances = VarianceComponents(0.1**2, 0.0, 0.4**2)
    found = design_power(variances, 3, 15, tiers=1, margin=0.2, alpha=0.05)
    assert found.power < 0.8
    fewer, enough = (simulated_power(variances, found.seeds_needed - less, 15, 0.2) for less in (1, 0))
    assert fewer < 0.82 and enough > 0.78
    assert simulated_power(variances, 3, 15, found.margin_deg) == pytest.approx(0.8, abs=0.03)
    variances = VarianceComponents(0.03**2, 0.0, 0.4**2)
    small = design_power(variances, 3, 15, tiers=1, margin=0.2, alpha=0.05)
    assert simulated_power(variances, 3, small.people_needed, 0.2) == pytest.approx(0.8, abs=0.03)


def test_a_number_beyond_the_search_is_one_more_than_its_limit():
    design = {"seeds": 3, "people": 15, "tiers": 1, "margin": 0.1, "alpha": 0.05}
    assert design_power(VarianceComponents(1.0, 0.0, 0.1), **design).people_needed == 1001
    assert design_power(VarianceComponents(0.0, 1.0, 0.1), **design).seeds_needed == 101


def test_variance_components_are_recovered():
    found = [VarianceComponents.of_differences(d) for d in draw(0, 2000, 4, 12, 0.3, 0.1, 0.2, 0.4)]
    means = np.mean([dataclasses.astuple(variances) for variances in found], axis=0)
    np.testing.assert_allclose(means, [0.1**2, 0.2**2, 0.4**2], rtol=0.3)  # none is below 0


def test_a_difference_has_the_noise_of_two_trainings_and_no_level_of_a_person():
    trainings = draw(1, 2000, 4, 12, 5.0, 0.1, 2.0, 0.3)  # people differ by far more than trainings
    spreads = np.mean([dataclasses.astuple(VarianceComponents.of_trainings(errors)) for errors in trainings], axis=0)
    np.testing.assert_allclose(spreads, [2 * 0.1**2, 0.0, 2 * 0.3**2], rtol=0.15, atol=1e-12)


def trainings(count: int, people: int) -> pd.DataFrame:
    errors = draw(2, 1, count, people, 4.0, 0.05, 1.0, 0.3)[0]
    rows = [
        {"tier": f"t{t}", "seed": 0, "dataset": "mpiigaze", "learner": "unadapted", "k": 0, "person": f"p{p}"}
        | {"error_deg": errors[t, p]}
        for t in range(count)
        for p in range(people)
    ]
    return pd.DataFrame(rows)


CONDITION = pd.DataFrame([{"dataset": "mpiigaze", "learner": "unadapted", "k": 0}] * 2)


def test_each_condition_has_one_row_for_at_least_three_seeds():
    persons = pd.concat([trainings(4, 15), trainings(4, 15).assign(learner="maml", k=9)])
    for seeds, used in ((1, 3), (5, 5)):
        found = design_table(persons, CONDITION, seeds, tiers=2, margin=0.1, alpha=0.05)
        assert found[["k", "seeds", "people", "tiers", "trainings"]].values.tolist() == [[0, used, 15, 2, 4]]


@pytest.mark.parametrize(("count", "people"), [(1, 15), (3, 1)])
def test_single_trainings_and_people_have_no_power(count, people):
    assert design_table(trainings(count, people), CONDITION, 1, tiers=1, margin=0.1, alpha=0.05).empty
