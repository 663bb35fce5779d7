"""What a design is said to show, against simulated ablations.

Simulated rates of 2,000 draws have a standard error of 1.1 points at most. Seen red: the exact power of an error whose
degrees of freedom are known (0.12 instead of 0.01 at three seeds); a difference with the noise of one training only.
"""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from crossed import draw

from faze.evaluation.design import MOST_PEOPLE, MOST_SEEDS, POWER, Spread, designs, plan
from faze.evaluation.statistics import compare, equivalence_p, pooled_chance, standard_error
from faze.evaluation.verdict import describe_design


def simulated_power(spread: Spread, seeds: int, people: int, margin: float) -> float:
    deviations = np.sqrt([spread.seeds, spread.people, spread.rest])
    differences = draw(seeds, 2000, seeds, people, 0.0, *deviations)
    return np.mean(equivalence_p(differences.mean(axis=(-2, -1)), *standard_error(differences), margin) < 0.05)


def simulated_power_of_a_ladder(spread: Spread, seeds: int, people: int, margin: float, rungs: int) -> float:
    """A tier has half the variance of a difference of two."""
    deviations = np.sqrt([spread.seeds / 2, spread.people / 2, spread.rest / 2])
    shown = []
    for errors in draw(seeds, 1000 * (rungs + 1), seeds, people, 4.0, *deviations).reshape(1000, -1, seeds, people):
        chance = pooled_chance(errors)
        shown += [compare(errors[1] - errors[0], margin=margin, chance=chance).tost_p < 0.05]
    return float(np.mean(shown))


@pytest.mark.parametrize("seeds", [3, 5, 10, 20])
@pytest.mark.parametrize("deviations", [(0.0, 0.0, 0.4), (0.05, 0.0, 0.4), (0.1, 0.0, 0.4), (0.1, 0.2, 0.3)])
def test_the_power_is_that_of_simulated_ablations(seeds, deviations):
    spread = Spread(*np.square(deviations))
    for people, margin in ((15, 0.1), (60, 0.3)):
        said = plan(spread, seeds, people, rungs=1, margin=margin, alpha=0.05).power
        assert said == pytest.approx(simulated_power(spread, seeds, people, margin), abs=0.03)


def test_the_power_of_three_seeds_and_two_people_is_simulated_too():
    """Where each degree of freedom counts."""
    spread = Spread(0.0, 0.0, 0.3**2)
    said = plan(spread, 3, 2, rungs=1, margin=0.6, alpha=0.05).power
    assert said == pytest.approx(simulated_power(spread, 3, 2, 0.6), abs=0.03)


@pytest.mark.parametrize("rungs", [2, 5])
def test_the_power_counts_the_rungs_that_tell_chance(rungs):
    spread = Spread(0.1**2, 0.1**2, 0.4**2)
    said = plan(spread, 3, 15, rungs=rungs, margin=0.3, alpha=0.05).power
    assert said == pytest.approx(simulated_power_of_a_ladder(spread, 3, 15, 0.3, rungs), abs=0.04)
    assert said > plan(spread, 3, 15, rungs=1, margin=0.3, alpha=0.05).power + 0.05


def test_what_is_said_to_be_needed_is_enough_and_not_more():
    spread = Spread(0.1**2, 0.0, 0.4**2)
    found = plan(spread, 3, 15, rungs=1, margin=0.2, alpha=0.05)
    assert found.power < POWER
    fewer, enough = (simulated_power(spread, found.seeds_needed - less, 15, 0.2) for less in (1, 0))
    assert fewer < POWER + 0.02 and enough > POWER - 0.02
    assert simulated_power(spread, 3, 15, found.margin_deg) == pytest.approx(POWER, abs=0.03)
    alike = plan(Spread(0.03**2, 0.0, 0.4**2), 3, 15, rungs=1, margin=0.2, alpha=0.05)
    assert simulated_power(Spread(0.03**2, 0.0, 0.4**2), 3, alike.people_needed, 0.2) == pytest.approx(POWER, abs=0.03)


def test_what_no_number_would_do_is_more_than_the_most():
    assert plan(Spread(1.0, 0.0, 0.1), 3, 15, rungs=1, margin=0.1, alpha=0.05).people_needed == MOST_PEOPLE + 1
    assert plan(Spread(0.0, 1.0, 0.1), 3, 15, rungs=1, margin=0.1, alpha=0.05).seeds_needed == MOST_SEEDS + 1


def test_spreads_are_found_again():
    found = [Spread.of_differences(d) for d in draw(0, 2000, 4, 12, 0.3, 0.1, 0.2, 0.4)]
    means = np.mean([dataclasses.astuple(spread) for spread in found], axis=0)
    np.testing.assert_allclose(means, [0.1**2, 0.2**2, 0.4**2], rtol=0.3)  # none is below 0


def test_a_difference_has_the_chance_of_two_trainings_and_no_constant_of_a_person():
    trainings = draw(1, 2000, 4, 12, 5.0, 0.1, 2.0, 0.3)  # people differ by far more than trainings
    spreads = np.mean([dataclasses.astuple(Spread.of_trainings(errors)) for errors in trainings], axis=0)
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


def test_each_condition_is_planned_once_and_for_three_seeds_at_least():
    found = designs(trainings(3, 15), CONDITION, 1, rungs=1, margin=0.1, alpha=0.05)
    assert found[["k", "seeds", "people", "trainings"]].values.tolist() == [[0, 3, 15, 3]]
    said = describe_design(found, 0.1)
    assert said.startswith(
        "If a tier truly changes nothing, 3 seeds with 15 people of MPIIGaze show this to within ±0.1°"
    )
    assert "they rest on 3 trainings of the baseline." in said and "80 % of cases take about" in said


@pytest.mark.parametrize(("count", "people"), [(1, 15), (3, 1)])
def test_chance_that_was_not_seen_is_not_planned_with(count, people):
    found = designs(trainings(count, people), CONDITION, 1, rungs=1, margin=0.1, alpha=0.05)
    assert found.empty and describe_design(found, 0.1) == ""


def test_a_design_that_is_enough_asks_for_nothing():
    said = describe_design(designs(trainings(5, 60), CONDITION, 5, rungs=1, margin=1.0, alpha=0.05), 1.0)
    assert said.endswith("% of cases, at the hardest of its 1 comparison (MPIIGaze unadapted).")
