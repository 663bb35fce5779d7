"""Few-shot learning on the golden synthetic people equals the sequential procedure and matches published errors.

Checked by breaking the code: SGD's rate a tenth larger, and the next person's calibration.
"""

import dataclasses
import importlib.util
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor

from faze.config.check import build
from faze.config.parameters import Fewshot, FewshotSection
from faze.config.yaml_files import read_yaml
from faze.data.store.codes import CodeStore
from faze.fewshot.fine_tuning import fine_tuned_errors_deg
from faze.fewshot.interface import Adaptation, MetaTraining
from faze.fewshot.kernel import adapt, same_rates
from faze.fewshot.learner_file import Learned
from faze.fewshot.learners import LEARNERS
from faze.fewshot.mlp import InitialNetwork, InitialNetworks, SampleSets, map_weights
from faze.fewshot.person_codes import (
    Calibration,
    PersonCodes,
    draw_calibrations,
    query_of,
    read_people,
    support_of,
    unadapted_error_deg,
)

ROOT = Path(__file__).resolve().parents[2]
PAPER = dataclasses.replace(
    build(FewshotSection, read_yaml(ROOT / "config" / "config.yaml")["fewshot"]),
    query_entries=500,
    meta_query=100,
    outer_lr=1e-3,
    inner_lr=1e-5,
    adapt_lr=1e-5,
    record_steps=(),
)
SHORT = dataclasses.replace(PAPER, shots=(9,), outer_steps=300, validate_every_steps=300, repeats=2)
FULL = dataclasses.replace(PAPER, shots=(1, 3, 9), outer_steps=2000, validate_every_steps=2000)
# FACTS F, 2000 outer steps, 1000 steps of adaptation: degrees of seeds 0, 1, 2.
PUBLISHED = {
    ("maml", "gc_test"): {1: (3.734, 3.734, 3.596), 3: (3.336, 3.382, 3.703), 9: (2.599, 2.603, 2.672)},
    ("maml", "mpi"): {1: (3.596, 3.695, 3.568), 3: (3.389, 3.410, 3.722), 9: (2.656, 2.664, 2.749)},
    ("reference", "gc_test"): {1: (3.803, 4.207, 3.723), 3: (3.469, 3.183, 3.347), 9: (2.633, 2.600, 2.566)},
    ("reference", "mpi"): {1: (3.733, 4.087, 3.569), 3: (3.518, 3.218, 3.391), 9: (2.719, 2.628, 2.605)},
}


@pytest.fixture(scope="module")
def people(golden_dir: Path) -> Callable[[str], list[PersonCodes]]:
    def read(name: str) -> list[PersonCodes]:
        codes = CodeStore(golden_dir / "meta_synth" / f"{name}_predictions.h5", default_split="test")
        return read_people(codes, "test", needed=509, reason="the paper's protocol")[0]

    return read


@pytest.fixture(scope="module")
def maml(people) -> Learned:
    return LEARNERS["maml"].meta_train(MetaTraining(people("gc_train"), people("gc_val"), SHORT, seed=0))


@pytest.fixture(scope="module")
def sequential() -> ModuleType:
    """The baseline of benchmarks/fewshot.py, which shares no code with faze.fewshot."""
    path = ROOT / "benchmarks" / "baselines" / "fewshot.py"
    spec = importlib.util.spec_from_file_location("sequential_fewshot", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert not re.search(r"^\s*(import|from) faze", path.read_text(), re.MULTILINE)
    return module


def error_deg(learner: str, learned: Learned, persons: list[PersonCodes], settings: Fewshot = SHORT) -> float:
    draws = draw_calibrations(persons, settings, repeats=settings.repeats)
    return LEARNERS[learner].errors(learned, Adaptation(draws, settings)).adapted_deg.mean()


@pytest.mark.parametrize("name", ["gc_test", "mpi"])
def test_nine_samples_mend_much_of_the_error(people, maml, name):
    persons = people(name)
    unadapted = np.mean([unadapted_error_deg(person, SHORT.query_entries) for person in persons])
    adapted = error_deg("maml", maml, persons)
    assert adapted < 0.75 * unadapted
    assert adapted < 3.3
    assert error_deg("offset", Learned("offset", [9], {}), persons) < 2.3


@pytest.mark.parametrize("learner", ["affine", "bayes", "gp"])
def test_closed_forms_beat_offset_at_every_k(people, learner):
    """Fails at k = 3 if the covariance between people is ten times as large."""
    settings = dataclasses.replace(SHORT, shots=(1, 3, 9))
    learned = LEARNERS[learner].meta_train(MetaTraining(people("gc_train"), people("gc_val"), settings, seed=0))
    for k in settings.shots:
        of_k = dataclasses.replace(settings, shots=(k,))
        for persons in (people("gc_test"), people("mpi")):
            ours = error_deg(learner, learned, persons, of_k)
            assert ours < error_deg("offset", Learned("offset", [k], {}), persons, of_k) - 0.01, (k, ours)


def test_meta_training_is_what_helps(people, maml):
    """The same network without meta-training needs far more than nine samples."""
    persons = people("gc_test")[:3]
    once = dataclasses.replace(SHORT, outer_steps=1)
    untrained = LEARNERS["maml"].meta_train(MetaTraining(people("gc_train"), [], once, seed=0))
    assert error_deg("maml", untrained, persons) > 2 * error_deg("maml", maml, persons)


def test_validation_is_the_adapted_error_of_people_not_trained_on(people, maml):
    (record,) = maml.history
    once = dataclasses.replace(SHORT, repeats=1)
    assert record["val_deg"] == [pytest.approx(error_deg("maml", maml, people("gc_val"), once), abs=1e-6)]


RECORDED = tuple(range(0, 1001, 100))


def sequential_errors(
    sequential: ModuleType, networks: InitialNetworks, person: PersonCodes, support: np.ndarray
) -> list[float]:
    """Adapt a single network in the precision of its weights, and return its errors at the RECORDED steps."""
    dtype = networks.weights.hidden_weight.dtype
    network = sequential.GazeNetwork().to(dtype)
    (hidden_weight,), (hidden_bias,), (output_weight,), (output_bias,) = networks.weights
    weights = [hidden_weight.T, hidden_bias[0], output_weight.T, output_bias[0]]
    network.load_state_dict(dict(zip(network.state_dict(), weights, strict=True)))
    samples = sequential.Samples(torch.from_numpy(person.code).to(dtype), torch.from_numpy(person.gaze).to(dtype))
    query = sequential.Samples(samples.code[-500:], samples.gaze[-500:])
    exact = {"steps": 1000, "lr": 1e-5, "every": 100, "loss": sequential.exact_mean_angle_deg}
    return sequential.adapt(network, samples.take(support.tolist()), query, **exact)[1]


@pytest.mark.parametrize(("k", "mean_deg", "single_deg"), [(1, 0.005, 0.03), (3, 0.05, 0.4), (9, 0.005, 0.05)])
def test_adapted_errors_equal_the_sequential_implementations(
    people, maml, sequential, tmp_path, k, mean_deg, single_deg
):
    """With equal draws and weights, errors every 100 steps agree to within three times the noise of rounding or more.

    Near an optimum, steps overshoot and return, so that rounding in float32 grows, most at k = 3: codes nudged by 6e-8
    move the mean of ten people by 0.0003, 0.014 and 0.0013 degrees, and one person's by 0.002, 0.12 and 0.011. The
    next test is exact.
    """
    settings = dataclasses.replace(SHORT, shots=(k,), record_steps=RECORDED[1:-1])
    persons = people("gc_test")[:5] + people("mpi")[:5]
    draws = draw_calibrations(persons, settings, repeats=1)
    np.save(tmp_path / "draws.npy", [draw.support for draw in draws])
    networks = dataclasses.replace(maml.networks, shots=[k])
    read = np.load(tmp_path / "draws.npy")
    mine = [dataclasses.replace(draw, support=support) for draw, support in zip(draws, read, strict=True)]
    found = fine_tuned_errors_deg(networks, Adaptation(mine, settings))
    expected = [sequential_errors(sequential, networks, *one) for one in zip(persons, read, strict=True)]
    np.testing.assert_allclose(found.mean(axis=0), np.mean(expected, axis=0), atol=mean_deg, rtol=0)
    np.testing.assert_allclose(found, expected, atol=single_deg, rtol=0)


@pytest.mark.parametrize("k", [1, 3, 9])
def test_in_double_precision_each_calibration_equals_the_sequential_implementations(people, maml, sequential, k):
    """Errors agree to 1e-8 degrees for 200 steps; at k = 3, rounding has grown to 0.06 degrees after 400 steps."""
    settings, persons = dataclasses.replace(SHORT, shots=(k,)), people("gc_test")[:2]
    draws = draw_calibrations(persons, settings, repeats=1)
    weights = map_weights(Tensor.double, maml.networks.weights)
    support, query = support_of(draws), query_of(draws, 500)
    exact = torch.from_numpy(np.stack([person.gaze for person in persons]))
    at = torch.from_numpy(np.stack([draw.support for draw in draws]))
    support = SampleSets(support.code.double(), torch.stack([g[i] for g, i in zip(exact, at, strict=True)]))
    query = query._replace(code=query.code.double(), gaze=exact[:, -500:].contiguous())
    network = InitialNetwork(weights, same_rates(1e-5, weights), "selu")
    chunks = list(adapt(network, support, steps=RECORDED, threads=1, query=query))
    networks = dataclasses.replace(maml.networks, weights=weights)
    expected = [sequential_errors(sequential, networks, p, d.support) for p, d in zip(persons, draws, strict=True)]
    found = torch.cat([torch.stack(errors, dim=1) for *_, errors in chunks]).numpy()
    np.testing.assert_allclose(found[:, :3], np.array(expected)[:, :3], atol=1e-8, rtol=0)
    np.testing.assert_allclose(found, expected, atol=0.15, rtol=0)


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
                errors = LEARNERS[learner].errors(learned, Adaptation(draws, FULL))
                found.setdefault((name, k), []).append(errors.adapted_deg.mean())
    for (name, k), mine in found.items():
        table = PUBLISHED[learner, name][k]
        print(f"{learner} {name} k = {k}: {np.round(mine, 3)}, table {table}")
        assert abs(np.mean(mine) - np.mean(table)) < ALLOWED_DEG[k], (name, k, mine, table)
