"""Calibration draws, people who are left out, and the learner `offset`."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from faze.base.geometry import vector_from_pitchyaw
from faze.config.check import build
from faze.config.parameters import Fewshot, FewshotSection
from faze.config.yaml_files import read_yaml
from faze.data.store.codes import CodeStore, write_codes
from faze.fewshot.fine_tuning import best_steps, fine_tuned_errors_deg, recorded_steps
from faze.fewshot.interface import Adaptation, MetaTraining
from faze.fewshot.learner_file import Learned
from faze.fewshot.learners import LEARNERS
from faze.fewshot.meta_training import OuterState
from faze.fewshot.mlp import InitialNetworks, Weights, gaze_of, gaze_vector, random_weights
from faze.fewshot.person_codes import (
    PersonCodes,
    TaskDraws,
    draw_calibrations,
    query_of,
    read_people,
    support_of,
    unadapted_error_deg,
)

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = 1000  # a code tells person and entry: person * NUMBERS + entry


def settings(**changes: object) -> Fewshot:
    fewshot = build(FewshotSection, read_yaml(ROOT / "config" / "config.yaml")["fewshot"])
    return dataclasses.replace(fewshot, query_entries=6, meta_query=4, **changes)


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
    return {(d.person.name, d.shots, d.repeat): d.support.tolist() for d in draws}


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
    nines = [draw for draw in draws if draw.shots == 9]
    assert len({tuple(draw.support) for draw in nines}) == len(nines)
    assert {entry for draw in nines for entry in draw.support} == set(range(14))
    assert all(len(set(draw.support)) == 9 for draw in nines)
    support, query = support_of(nines), query_of(nines, fewshot.query_entries)
    for draw, of_support, of_query in zip(nines, support.code[..., 0], query.code[query.row, :, 0], strict=True):
        first = NUMBERS * int(draw.person.name)
        assert of_support.tolist() == [first + entry for entry in draw.support]
        assert of_query.tolist() == [first + entry for entry in range(14, 20)]


def test_a_grid_takes_one_sample_of_each_cell():
    """Random draws miss some of the nine clusters in a 3 x 3 grid. Fails if cells are ordered only by yaw."""
    persons = []
    for person in people(entries=96):
        cluster = np.append(np.random.default_rng(int(person.name)).permutation(90) % 9, [0] * 6)
        pitchyaw = 0.2 * np.stack([cluster // 3, cluster % 3], axis=1) + np.linspace(0, 0.01, 96)[:, None]
        persons.append(dataclasses.replace(person, gaze=vector_from_pitchyaw(pitchyaw)))
    missed = {}
    for kind in ("grid", "random"):
        draws = draw_calibrations(persons, settings(shots=(9,), draws=kind), repeats=10)
        rounded = [np.round(d.person.gaze[d.support] / 0.19) for d in draws]
        missed[kind] = np.mean([9 - len(np.unique(cells[:, :2], axis=0)) for cells in rounded])
        assert len({tuple(d.support) for d in draws}) == len(draws)
        assert max(d.support.max() for d in draws) < 90
    assert missed["grid"] == 0
    assert missed["random"] > 2


def test_a_grid_does_not_care_where_yaw_jumps():
    """The same directions, rotated by half a turn, give the same draws. Fails if cells are cut at 180 degrees."""
    (person,) = people(entries=96)[:1]
    pitchyaw = np.random.default_rng(0).uniform(-0.3, 0.3, (96, 2))
    found = []
    for yaw in (0, np.pi):
        turned = dataclasses.replace(person, gaze=vector_from_pitchyaw(pitchyaw + [0, yaw]))
        found.append(draw_calibrations([turned], settings(shots=(4,), draws="grid"), repeats=3))
    for straight, turned in zip(*found, strict=True):
        assert straight.support.tolist() == turned.support.tolist()


@pytest.mark.parametrize("k", range(1, 15))
def test_a_grid_has_k_different_samples_of_any_pool(k):
    """The pool of 14 entries is exhausted at k = 14."""
    for draw in draw_calibrations(people(), settings(shots=(k,), draws="grid"), repeats=3):
        assert len(set(draw.support)) == len(draw.support) == k
        assert draw.support.max() < 14


def test_tasks_are_different_people_with_disjoint_support_and_query():
    draw = TaskDraws(people(), settings(tasks=3, shots=(9,)), seed=0)
    seen = set()
    for _ in range(50):
        support, query = (batch.code[..., 0].numpy() for batch in draw())
        assert support.shape == (3, 9)
        assert query.shape == (3, 4)
        both = np.concatenate([support, query], axis=1)
        owners = both // NUMBERS
        assert (owners == owners[:, :1]).all()
        assert len(set(owners[:, 0])) == 3
        assert all(len(set(task)) == 13 for task in both)
        seen |= set(both.ravel())
    assert len(seen) == 4 * 20


def test_tasks_of_a_smaller_k_are_the_first_of_those_of_a_larger():
    draws = [TaskDraws(people(), settings(tasks=3, shots=(k,)), seed=7) for k in (9, 3)]
    for _ in range(3):
        (support, query), (fewer, same) = (draw() for draw in draws)
        assert query.code.equal(same.code)
        assert support.code[:, :3].equal(fewer.code)
        assert support.gaze[:, :3].equal(fewer.gaze)
    other = TaskDraws(people(), settings(tasks=3, shots=(9,)), seed=8)
    assert not other()[0].code.equal(TaskDraws(people(), settings(tasks=3, shots=(9,)), seed=7)()[0].code)


def stored(path: Path, entries: dict[str, int], spoilt: str | None = None) -> Path:
    def codes(name: str, count: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(len(name) + count)
        z_gaze, gaze = rng.normal(size=(count, 2, 3)), rng.normal(0, 0.2, (count, 2))
        if name == spoilt:
            z_gaze[3, 1, 2] = np.nan
        return {"z_gaze": z_gaze, "gaze": gaze, "head": 0 * gaze, "gaze_hat": vector_from_pitchyaw(gaze)}

    write_codes(path, "gazecapture", ((name, "test", codes(name, count)) for name, count in entries.items()))
    return path


def test_people_with_too_few_entries_are_left_out_by_name(tmp_path):
    codes = CodeStore(stored(tmp_path / "codes.h5", {"00001": 15, "00002": 14, "00003": 16}))
    found, left_out = read_people(codes, "test", needed=15, reason="the query")
    assert [person.name for person in found] == ["00001", "00003"]
    assert found[0].code.shape == (15, 6)
    assert left_out == ["person 00002 of gazecapture is left out: 14 entries, fewer than the 15 required by the query"]


def test_a_code_that_is_not_finite_names_its_person(tmp_path):
    codes = CodeStore(stored(tmp_path / "codes.h5", {"00001": 15, "00002": 15}, spoilt="00002"))
    with pytest.raises(ValueError, match=r"person 00002 of gazecapture: z_gaze of 1 of 15 .*first: entry 3"):
        read_people(codes, "test", needed=15, reason="the query")


def test_a_person_with_no_entry_at_all_is_left_out(tmp_path):
    """Regression: a person without entries caused an error, since an empty array cannot be reshaped with -1."""
    codes = CodeStore(stored(tmp_path / "codes.h5", {"00001": 15, "00002": 0}, spoilt="none"))
    found, left_out = read_people(codes, "test", needed=15, reason="the query")
    assert [person.name for person in found] == ["00001"]
    assert left_out == ["person 00002 of gazecapture is left out: 0 entries, fewer than the 15 required by the query"]


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
    errors = offset.errors(Learned("offset", [1, 3, 5, 9], {}), Adaptation(draws, fewshot))
    assert errors.adapted_deg.max() < 1e-9
    assert np.isnan(errors.start_deg).all()
    assert min(unadapted_error_deg(person, fewshot.query_entries) for person in persons) > 4


def test_offset_is_the_mean_over_the_samples():
    """Two samples, off by 0 and 2 units of yaw, leave no error for queries that are off by 1 unit."""
    gaze = np.zeros((5, 2))
    gaze_hat = np.array([[0, 0], [0, 0.2], [0, 0.1], [0, 0.1], [0, 0.3]])
    person = dataclasses.replace(
        people(1, 5)[0], gaze=vector_from_pitchyaw(gaze), gaze_hat=vector_from_pitchyaw(gaze_hat)
    )
    fewshot = dataclasses.replace(settings(shots=(2,)), query_entries=3)
    draws = draw_calibrations([person], fewshot, repeats=1)
    errors = LEARNERS["offset"].errors(Learned("offset", [2], {}), Adaptation(draws, fewshot))
    assert errors.adapted_deg[0] == pytest.approx(np.degrees(0.2) / 3)
    assert unadapted_error_deg(person, 3) == pytest.approx(np.degrees(0.5) / 3)


def test_each_k_starts_from_its_own_network_whatever_the_order():
    """The networks always predict straight ahead or 30 degrees up; the people look straight ahead."""
    straight, up = [0.0, 0.0, 1.0], vector_from_pitchyaw([np.pi / 6, 0]).tolist()
    state = {
        "hidden_weight": torch.zeros(2, 6, 4),
        "hidden_bias": torch.zeros(2, 1, 4),
        "output_weight": torch.zeros(2, 4, 3),
        "output_bias": torch.tensor([[up], [straight]]),
    }
    persons = [dataclasses.replace(p, gaze=np.tile(straight, (20, 1))) for p in people()]
    for shots in ((5, 2), (2, 5)):
        draws = draw_calibrations(persons, settings(shots=shots), repeats=2)
        errors = LEARNERS["maml"].errors(Learned("maml", [5, 2], {}, state), Adaptation(draws, settings()))
        np.testing.assert_array_equal(errors.start_deg, errors.trace_deg[:, 0])
        np.testing.assert_allclose(errors.start_deg, [30.0 if d.shots == 5 else 0.0 for d in draws], atol=1e-4)


def test_gaze_codes_of_another_size_are_refused():
    state = {"hidden_weight": torch.zeros(1, 9, 4)} | {
        name: torch.zeros(1, *shape)
        for name, shape in {"hidden_bias": (1, 4), "output_weight": (4, 3), "output_bias": (1, 3)}.items()
    }
    persons, fewshot = people(), settings(shots=(2,))
    draws = draw_calibrations(persons, fewshot, repeats=1)
    with pytest.raises(ValueError, match="person 00000 of gazecapture has gaze codes of size 6"):
        LEARNERS["maml"].errors(Learned("maml", [2], {}, state), Adaptation(draws, fewshot))


def looking(up_rad: float, models: int = 1) -> Weights:
    """Create networks that predict a constant angle upwards for any code."""
    up = torch.tensor(vector_from_pitchyaw([up_rad, 0]), dtype=torch.float32)
    shapes = [(models, 6, 4), (models, 1, 4), (models, 4, 3)]
    return Weights(*map(torch.zeros, shapes), up.repeat(models, 1, 1))


def straight_on(count: int = 4) -> list[PersonCodes]:
    return [dataclasses.replace(p, gaze=np.tile([0.0, 0.0, 1.0], (20, 1))) for p in people(count)]


def test_the_stopping_rule_takes_the_recorded_steps_that_are_best_for_val_people():
    """One step is best and further steps overshoot, so the fixed rule ends with larger errors. Fails with argmax."""
    fewshot = settings(shots=(2,), adapt_steps=4, record_steps=(1, 2), stopping="validation")
    # The bias, of length 1, moves by rate x 57.3 across: 9 of the 10 degrees; three more steps sway about the target.
    fewshot = dataclasses.replace(fewshot, adapt_lr=np.tan(np.radians(9)) * np.pi / 180)
    networks = InitialNetworks([2], looking(np.radians(10)))
    draws = draw_calibrations(straight_on(), fewshot, repeats=2)
    errors = fine_tuned_errors_deg(networks, Adaptation(draws, fewshot))
    assert recorded_steps(fewshot) == (0, 1, 2, 4)
    best = best_steps(errors, draws, [2], recorded_steps(fewshot))
    assert best == [1]
    learned = Learned("maml", [2], {}, networks.weights._asdict(), stop_steps=best)
    by_rule = LEARNERS["maml"].errors(learned, Adaptation(draws, fewshot))
    fixed = LEARNERS["maml"].errors(learned, Adaptation(draws, dataclasses.replace(fewshot, stopping="fixed")))
    assert set(by_rule.steps) == set(best) != {4}
    assert set(fixed.steps) == {4}
    assert by_rule.adapted_deg.mean() < fixed.adapted_deg.mean()
    np.testing.assert_array_equal(fixed.adapted_deg, fixed.trace_deg[:, -1])
    of_two = draw_calibrations(straight_on(), settings(shots=(5, 2)), repeats=2)
    errors = np.array([[3.0, 2.0, 1.0, 4.0]] * 8 + [[4.0, 2.0, 3.0, 5.0]] * 7 + [[0.0, 0.1, 0.1, 0.1]])
    assert best_steps(errors, of_two, [5, 2], (0, 1, 2, 4)) == [2, 1]  # a single person does not decide


@pytest.mark.parametrize(
    ("stop_steps", "sentence"),
    [([], "without val people"), ([3], r"should stop after \[3\] steps")],
)
def test_the_stopping_rule_without_a_choice_is_refused(stop_steps, sentence):
    fewshot = settings(shots=(2,), adapt_steps=4, record_steps=(1, 2), stopping="validation")
    learned = Learned("maml", [2], {}, looking(0.1)._asdict(), stop_steps=stop_steps)
    draws = draw_calibrations(straight_on(), fewshot, repeats=1)
    with pytest.raises(ValueError, match=sentence):
        LEARNERS["maml"].errors(learned, Adaptation(draws, fewshot))


@pytest.mark.parametrize("stopping", ["fixed", "validation"])
def test_weights_are_validated_with_the_stopping_rule_that_tests_use(stopping):
    """The recorded val error of the kept weights is that at the last step, or at the best one."""
    fewshot = settings(shots=(1, 2), adapt_steps=1, record_steps=(), stopping=stopping, adapt_lr=0.05)
    fewshot = dataclasses.replace(fewshot, outer_steps=4, validate_every_steps=2, tasks=2, hidden=4)
    train, val = people(3), people(2)
    learned = LEARNERS["maml"].meta_train(MetaTraining(train, val, fewshot, 0))
    found = fine_tuned_errors_deg(learned.networks, Adaptation(draw_calibrations(val, fewshot, repeats=1), fewshot))
    means = found.reshape(2, len(val), -1).mean(axis=1)  # by k and step
    assert (means[:, -1] > means.min(axis=1) + 0.1).all()
    recorded = {record["step"]: record["val_deg"] for record in learned.history}
    kept = [recorded[step][k] for k, step in enumerate(learned.outer_steps)]
    assert kept == pytest.approx(means[:, -1] if stopping == "fixed" else means.min(axis=1), rel=1e-4)


def test_of_each_k_the_weights_of_its_lowest_val_error_are_kept():
    """Fails if `<` is reversed, or if the same step is chosen for all k."""
    state = OuterState.first(looking(0.0, models=2))
    for step, val_deg in enumerate([[5.0, 5.0], [3.0, 4.0], [4.0, 2.0], [3.0, 2.0]], start=1):
        state.weights.output_bias.fill_(step)
        state.step = step
        state.record([0.0, 0.0], val_deg)
    assert state.best_steps == [2, 3]
    assert state.best.output_bias[:, 0, 0].tolist() == [2.0, 3.0]
    state = OuterState.first(looking(0.0, models=2))
    for step in (1, 2):
        state.weights.output_bias.fill_(step)
        state.step = step
        state.record([0.0, 0.0], None)
    assert state.best_steps == [2, 2]
    assert state.best.output_bias[:, 0, 0].tolist() == [2.0, 2.0]


def test_learnt_rates_act_at_test():
    """A rate scale of 0 leaves parameters unchanged: those of the whole network, or those of one kind."""
    fewshot = settings(shots=(2,), adapt_steps=5, record_steps=(), adapt_lr=1e-5)
    weights, persons = random_weights(1, 6, 4, seed=0), people()[1:]  # the first has a code of zeros, so no direction
    draws = draw_calibrations(persons, fewshot, repeats=1)

    def errors(**scales: float) -> np.ndarray:
        scaled = {f"rate_scale_{n}": torch.full_like(p, scales.get(n, 1.0)) for n, p in weights._asdict().items()}
        learned = Learned("meta_sgd", [2], {}, weights._asdict() | scaled)
        found = LEARNERS["meta_sgd"].errors(learned, Adaptation(draws, fewshot))
        return found.adapted_deg - found.start_deg

    plain = LEARNERS["maml"].errors(Learned("maml", [2], {}, weights._asdict()), Adaptation(draws, fewshot))
    np.testing.assert_array_equal(errors(), plain.adapted_deg - plain.start_deg)
    assert np.abs(errors(**dict.fromkeys(Weights._fields, 0.0))).max() == 0
    assert np.abs(errors(hidden_weight=0.0) - errors()).max() > 1e-4


def test_gaze_of_a_network_is_a_unit_vector():
    weights, code = random_weights(3, 6, 8, seed=0), torch.randn(3, 5, 6)
    gaze = gaze_of(weights, code, "selu")
    np.testing.assert_allclose(np.linalg.norm(gaze, axis=-1), 1.0)
    vector = gaze_vector(weights, code, "selu").numpy()
    np.testing.assert_allclose(np.cross(gaze, vector), 0.0, atol=1e-6)
    assert (np.sum(gaze * vector, axis=-1) > 0).all()


def test_an_outer_state_begins_before_any_step():
    state = OuterState.first(random_weights(2, 6, 8, seed=0))
    assert state.step == 0 and state.best_steps == [0, 0] and state.history == []
