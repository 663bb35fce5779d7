"""Few-shot learning on the golden synthetic people matches the released procedure's errors.

The people are in FAZE_GOLDEN_DIR. Checked by breaking the code: SGD's rate a tenth larger.
"""

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import h5py
import numpy as np
import pytest

from faze.config.parameters import Fewshot
from faze.config.validation import read_config
from faze.data.codes import CodeStore, write_codes
from faze.fewshot.interface import Learned, MetaTraining
from faze.fewshot.learners import LEARNERS
from faze.fewshot.person_codes import Calibration, PersonCodes, draw_calibrations, read_people, unadapted_error_deg


def changed(settings: Fewshot, **changes: object) -> Fewshot:
    return settings.model_copy(update=changes)


RATES = {"outer_lr": 1e-3, "inner_lr": 1e-5, "adapt_lr": 1e-5}
PAPER = changed(read_config().fewshot, query_entries=500, meta_query=100, **RATES)
SHORT = changed(PAPER, shots=(9,), outer_steps=300, validate_every_steps=300, repeats=2)
FULL = changed(PAPER, shots=(1, 3, 9), outer_steps=2000, validate_every_steps=2000)
# FACTS F, 2000 outer steps, 1000 steps of adaptation: degrees of seeds 0, 1, 2.
PUBLISHED = {
    ("maml", "gc_test"): {1: (3.734, 3.734, 3.596), 3: (3.336, 3.382, 3.703), 9: (2.599, 2.603, 2.672)},
    ("maml", "mpi"): {1: (3.596, 3.695, 3.568), 3: (3.389, 3.410, 3.722), 9: (2.656, 2.664, 2.749)},
    ("reference", "gc_test"): {1: (3.803, 4.207, 3.723), 3: (3.469, 3.183, 3.347), 9: (2.633, 2.600, 2.566)},
    ("reference", "mpi"): {1: (3.733, 4.087, 3.569), 3: (3.518, 3.218, 3.391), 9: (2.719, 2.628, 2.605)},
}


@pytest.fixture(scope="module")
def people(golden_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[PersonCodes]]:
    folder = tmp_path_factory.mktemp("codes")

    def read(name: str) -> list[PersonCodes]:
        path = folder / f"{name}.h5"
        with h5py.File(golden_dir / "meta_synth" / f"{name}_predictions.h5") as file:
            arrays = {person: {key: array[:] for key, array in group.items()} for person, group in file.items()}
        write_codes(path, f"{name}_predictions", ((person, "test", arrays[person]) for person in sorted(arrays)))
        return read_people(CodeStore(path), "test", needed=509, reason="the paper's protocol")[0]

    return read


@pytest.fixture(scope="module")
def maml(people) -> Learned:
    return LEARNERS["maml"].meta_train(MetaTraining(people("gc_train"), people("gc_val"), SHORT, seed=0))


def error_deg(learner: str, learned: Learned, persons: list[PersonCodes], settings: Fewshot = SHORT) -> float:
    draws = draw_calibrations(persons, settings, repeats=settings.repeats)
    return LEARNERS[learner].errors(learned, draws, settings).adapted_deg.mean()


@pytest.mark.parametrize("name", ["gc_test", "mpi"])
def test_nine_samples_mend_much_of_the_error(people, maml, name):
    persons = people(name)
    unadapted = np.mean([unadapted_error_deg(person, SHORT.query_entries) for person in persons])
    adapted = error_deg("maml", maml, persons)
    assert adapted < 0.75 * unadapted
    assert adapted < 3.3
    assert error_deg("offset", Learned("offset", [9], {}), persons) < 2.3


@pytest.mark.parametrize("learner", ["affine", "bayes"])
def test_closed_forms_beat_offset_at_every_k(people, learner):
    """Fails at k = 3 if the covariance between people is ten times as large."""
    settings = changed(SHORT, shots=(1, 3, 9))
    learned = LEARNERS[learner].meta_train(MetaTraining(people("gc_train"), people("gc_val"), settings, seed=0))
    for k in settings.shots:
        of_k = changed(settings, shots=(k,))
        for persons in (people("gc_test"), people("mpi")):
            ours = error_deg(learner, learned, persons, of_k)
            assert ours < error_deg("offset", Learned("offset", [k], {}), persons, of_k) - 0.01, (k, ours)


# The spread of the table's own three seeds, pooled over its learners and data sets, is 0.19, 0.17 and 0.05 degrees; a
# mean of three differs from another by 0.8 of that, and three times this is what is allowed.
ALLOWED_DEG = {1: 0.47, 3: 0.42, 9: 0.12}


def released_draws(people: Sequence[Sequence[PersonCodes]], shots: int) -> list[list[Calibration]]:
    """Draw ten calibrations per person and data set with Python's own generator, started with the released seed."""
    generator = random.Random(4089213955)  # once for each k, before the first data set (FACTS 1c)
    return [
        [
            Calibration(person, repeat, np.array(generator.sample(range(len(person.code) - 500), shots)))
            for person in persons
            for repeat in range(10)
        ]
        for persons in people
    ]


@pytest.mark.parametrize("learner", ["maml", "reference"])
def test_errors_after_2000_outer_steps_lie_within_the_seed_noise_of_the_table(people, learner):
    """For each data set and k, compare the mean over three seeds with that of the three published values.

    The calibrations are drawn as for the published table, since at k = 1 the draws alone change the mean over all
    people by 0.1 degrees.
    """
    train, found = people("gc_train"), {}
    names = ("gc_test", "mpi")
    everyone = [people(name) for name in names]
    for seed in range(3):
        learned = LEARNERS[learner].meta_train(MetaTraining(train, [], FULL, seed))
        for k in FULL.shots:
            for name, draws in zip(names, released_draws(everyone, k), strict=True):
                errors = LEARNERS[learner].errors(learned, draws, FULL)
                found.setdefault((name, k), []).append(errors.adapted_deg.mean())
    for (name, k), mine in found.items():
        table = PUBLISHED[learner, name][k]
        print(f"{learner} {name} k = {k}: {np.round(mine, 3)}, table {table}")
        assert abs(np.mean(mine) - np.mean(table)) < ALLOWED_DEG[k], (name, k, mine, table)
