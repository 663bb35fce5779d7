"""Meta-learning on the golden made-up people, short: far better than the gaze head, and than no meta-training."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from faze import config
from faze.fewshot.draws import Person, draw_calibrations, read_people
from faze.fewshot.learners import LEARNERS, Learned, unadapted_error_deg
from faze.sections import Fewshot
from faze.store import read_codes
from faze.validation import build

ROOT = Path(__file__).resolve().parents[2]
SHORT = dataclasses.replace(
    build(Fewshot, config.read(ROOT / "config" / "config.yaml")["fewshot"]),
    query_entries=500,
    meta_query=100,
    outer_lr=1e-3,
    inner_lr=1e-5,
    adapt_lr=1e-5,
    shots=(9,),
    outer_steps=300,
    validate_every_steps=300,
    repeats=2,
)


@pytest.fixture(scope="module")
def people(golden_dir: Path) -> Callable[[str], list[Person]]:
    def read(name: str) -> list[Person]:
        codes = read_codes(golden_dir / "meta_synth" / f"{name}_predictions.h5", default_split="test")
        return read_people(codes, "test", needed=509, reason="the paper's protocol").persons

    return read


@pytest.fixture(scope="module")
def maml(people) -> Learned:
    return LEARNERS["maml"].meta_train(people("gc_train"), people("gc_val"), SHORT, seed=0, threads=1)


def error_deg(learner: str, learned: Learned, persons: list[Person], settings: Fewshot = SHORT) -> float:
    draws = draw_calibrations(persons, settings, repeats=settings.repeats)
    return LEARNERS[learner].errors(learned, persons, draws, settings, threads=1).adapted_deg.mean()


@pytest.mark.parametrize("name", ["gc_test", "mpi"])
def test_nine_samples_mend_much_of_the_error(people, maml, name):
    persons = people(name)
    unadapted = np.mean([unadapted_error_deg(person, SHORT.query_entries) for person in persons])
    adapted = error_deg("maml", maml, persons)
    assert adapted < 0.75 * unadapted
    assert adapted < 3.3
    assert error_deg("offset", Learned("offset", [9], {}), persons) < 2.3


def test_meta_training_is_what_helps(people, maml):
    """The same network without it needs far more than nine samples."""
    persons = people("gc_test")[:3]
    untrained = LEARNERS["maml"].meta_train(
        people("gc_train"), [], dataclasses.replace(SHORT, outer_steps=1), seed=0, threads=1
    )
    assert error_deg("maml", untrained, persons) > 2 * error_deg("maml", maml, persons)


def test_validation_is_the_adapted_error_of_people_not_trained_on(people, maml):
    (record,) = maml.history
    assert record["val_deg"] == [pytest.approx(error_deg("maml", maml, people("gc_val"), one_repeat()), abs=1e-6)]


def one_repeat() -> Fewshot:
    return dataclasses.replace(SHORT, repeats=1)
