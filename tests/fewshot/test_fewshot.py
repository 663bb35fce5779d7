"""Calibration draws, tasks, and the learner `offset`."""

import dataclasses

import numpy as np
import pytest

from faze.base.geometry import vector_from_pitchyaw
from faze.config.parameters import Fewshot
from faze.config.validation import read_config
from faze.fewshot.fine_tuning import draw_tasks
from faze.fewshot.interface import Learned
from faze.fewshot.learners import LEARNERS
from faze.fewshot.person_codes import PersonCodes, draw_calibrations, unadapted_error_deg

DEFAULTS = read_config().fewshot
NUMBERS = 1000  # a code tells person and entry: person * NUMBERS + entry


def settings(**changes: object) -> Fewshot:
    return DEFAULTS.model_copy(update={"query_entries": 6, "meta_query": 4} | changes)


def people(count: int = 4, entries: int = 20, dataset: str = "gazecapture") -> list[PersonCodes]:
    found = []
    for person in range(count):
        number = NUMBERS * person + np.arange(entries)
        gaze = vector_from_pitchyaw(np.random.default_rng(person).normal(0, 0.2, (entries, 2)))
        code = np.repeat(number[:, None], 6, axis=1).astype(np.float32)
        found.append(PersonCodes(f"{person:05d}", dataset, "test", code, gaze, gaze, np.zeros((len(gaze), 2))))
    return found


def drawn(persons: list[PersonCodes], fewshot: Fewshot) -> dict[tuple[str, int, int], list[int]]:
    draws = draw_calibrations(persons, fewshot, repeats=fewshot.repeats)
    return {(d.person.name, len(d.support), d.repeat): d.support.tolist() for d in draws}


def test_calibrations_follow_from_seed_dataset_person_k_and_repeat_alone():
    all_of_them = drawn(people(), settings())
    assert len(all_of_them) == 4 * 4 * 10
    assert drawn(people()[::-1], settings()) == all_of_them
    alone = drawn(people()[2:3], settings(shots=(9, 3), repeats=2, adapt_lr=1.0, outer_steps=1))
    assert alone == {key: all_of_them[key] for key in alone}
    for changed in (drawn(people(), settings(seed=1)), drawn(people(dataset="mpiigaze"), settings())):
        assert changed.keys() == all_of_them.keys()
        assert changed != all_of_them


def test_calibrations_differ_are_without_replacement_and_spare_the_query():
    persons, fewshot = people(), settings()
    draws = draw_calibrations(persons, fewshot, repeats=fewshot.repeats)
    nines = [draw for draw in draws if len(draw.support) == 9]
    assert len({tuple(draw.support) for draw in nines}) == len(nines)
    assert {entry for draw in nines for entry in draw.support} == set(range(14))
    assert all(len(set(draw.support)) == 9 for draw in nines)


def test_tasks_are_different_people_with_disjoint_support_and_query():
    """The support of a smaller k is the beginning of that of a larger one."""
    seen, generators = set(), [np.random.default_rng(0) for _ in range(2)]
    for _ in range(50):
        support, query = draw_tasks(people(), settings(tasks=3, shots=(9, 2)), generators[0])
        assert support.count.tolist() == [9] * 3 + [2] * 3 and query.code[:3].equal(query.code[3:])
        assert support.code[3:, :2].equal(support.code[:3, :2])
        support, query = (
            samples._replace(code=samples.code[:3], gaze=samples.gaze[:3]) for samples in (support, query)
        )
        fewer, same = draw_tasks(people(), settings(tasks=3, shots=(3,)), generators[1])
        assert same.code.equal(query.code) and same.gaze.equal(query.gaze) and fewer.count.tolist() == [3] * 3
        assert fewer.code.equal(support.code[:, :3]) and fewer.gaze.equal(support.gaze[:, :3])
        both = np.concatenate([support.code[..., 0], query.code[..., 0]], axis=1)
        owners = both // NUMBERS
        assert both.shape == (3, 9 + 4) and (owners == owners[:, :1]).all() and len(set(owners[:, 0])) == 3
        assert all(len(set(task)) == 13 for task in both)
        seen |= set(both.ravel())
    assert len(seen) == 4 * 20


def turned(person: PersonCodes, offset_rad: np.ndarray, centre_rad: float) -> PersonCodes:
    pitchyaw = np.random.default_rng(5).uniform(-0.3, 0.3, (len(person.code), 2)) + [0, centre_rad]
    gaze, gaze_hat = vector_from_pitchyaw(pitchyaw), vector_from_pitchyaw(pitchyaw + offset_rad)
    return dataclasses.replace(person, gaze=gaze, gaze_hat=gaze_hat)


@pytest.mark.parametrize("centre_rad", [0.0, np.pi])
def test_offset_removes_a_constant_angular_offset(centre_rad):
    """Directions near the jump of yaw from 180 to -180 degrees are included."""
    fewshot, offset = settings(), LEARNERS["offset"]
    persons = [turned(p, np.array([0.05, -0.08]) * (i + 1), centre_rad) for i, p in enumerate(people())]
    draws = draw_calibrations(persons, fewshot, repeats=2)
    errors = offset.errors(Learned("offset", [1, 3, 5, 9], {}), draws, fewshot)
    assert errors.adapted_deg.max() < 1e-9
    assert np.isnan(errors.start_deg).all()
    assert min(unadapted_error_deg(person, fewshot.query_entries) for person in persons) > 4
