"""Calibration of one person as a command, on synthetic codes.

Checked by breaking the code: query entries in the support, weights or steps of another k, biases of the wrong shape
in the file, the offset added instead of subtracted, a diverged network written, another learner's file used, the
head's own activation ignored.
"""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from stage_runs import call_faze

from faze.base.geometry import angular_error, vector_from_pitchyaw
from faze.config.validation import read_config
from faze.data.codes import CodeStore, write_codes
from faze.fewshot.interface import Adaptation, MetaTraining
from faze.fewshot.learner_file import Learned, load_fields, load_learned, save_fields
from faze.fewshot.learners import LEARNERS
from faze.fewshot.mlp import random_weights
from faze.fewshot.person_codes import Calibration, PersonCodes, read_person
from faze.fewshot.personal_estimator import PersonalEstimator

SETTINGS = {"shots": (1, 4), "adapt_steps": 50, "adapt_lr": 1e-4}
FEWSHOT = read_config().fewshot.model_copy(update=SETTINGS)


def write_person(path: Path, names: tuple[str, ...] = ("me",), entries: int = 20, nan: bool = False) -> Path:
    """Create people whose gaze head is off by 4 degrees in pitch, plus noise."""
    rng = np.random.default_rng(3)

    def codes() -> dict[str, np.ndarray]:
        gaze = rng.uniform(-0.3, 0.3, (entries, 2))
        seen = gaze + [np.radians(4), 0] + rng.normal(0, 0.005, gaze.shape)
        z_gaze = np.stack([vector_from_pitchyaw(seen), vector_from_pitchyaw(seen + 0.5)], axis=1)
        if nan:
            z_gaze[1] = np.nan
        return {"z_gaze": z_gaze, "gaze": gaze, "head": 0 * gaze, "gaze_hat": vector_from_pitchyaw(seen)}

    write_codes(path, "mine", ((name, "test", codes()) for name in names))
    return path


def write_maml(path: Path, inputs: int = 6, learner: str = "maml", **changes: object) -> Path:
    """Create two very different networks, for k = 1 and k = 4, with the learner's own settings."""
    both = [random_weights(1, inputs, 8, seed) for seed in (1, 2)]
    state = {name: torch.cat([getattr(w, name) for w in both]) for name in both[0]._fields}
    own = {"activation": "relu"} if learner == "none" else {}
    settings = FEWSHOT.model_dump() | {"shots": [1, 4]} | changes
    save_fields(Learned(learner, [1, 4], settings, state, **own), path)
    return path


@pytest.fixture
def run(tmp_path, monkeypatch) -> Callable[..., int]:
    monkeypatch.chdir(tmp_path)
    write_person(Path("mine.h5"))
    write_maml(Path("maml.pt"))

    def call(*arguments: object, codes: str = "mine.h5") -> int:
        return call_faze("calibrate", "--codes", codes, "--out", "my.pt", *arguments)

    return call


def me(path: str = "mine.h5") -> PersonCodes:
    return read_person(CodeStore(Path(path)), "me")


def load_mine() -> PersonalEstimator:
    return load_fields(PersonalEstimator, "my.pt", "a calibration")


def test_offset_needs_no_learner_and_says_what_it_gained(run, capsys):
    assert run("--shots", 9) == 0
    said = capsys.readouterr().out
    assert re.match(
        r"my.pt: me of mine, offset on 9 samples: 0\.\d\d degrees instead of [34]\.\d\d unadapted, on 11 ", said
    )
    held = torch.load("my.pt", weights_only=True)
    assert held["state"]["offset_rad"].tolist() == pytest.approx([np.radians(4), 0], abs=0.005)
    assert held["support"] == list(range(9)) and held["shots"] == 9 and held["query_entries"] == 11
    person = me()
    found = load_mine()
    after = found.gaze(person.seen(slice(None)))
    expected = np.degrees(angular_error(after, person.gaze)[9:].mean())
    assert found.error_deg == pytest.approx(expected) and expected < 0.6


@pytest.mark.parametrize(("learner", "k"), [("maml", 1), ("maml", 4), ("none", 4)])
def test_adapted_weights_are_those_that_adapt_measures(run, learner, k):
    """All entries after the first k are query entries, so the learner itself measures on the same entries."""
    write_maml(Path("maml.pt"), learner=learner)
    assert run("--shots", k, "--learner-file", "maml.pt") == 0
    settings = FEWSHOT.model_copy(update={"query_entries": 20 - k})
    draws = [Calibration(me(), 0, np.arange(k))]
    learned = load_learned("maml.pt")
    errors = LEARNERS[learner].errors(learned, Adaptation(draws, settings))
    found = load_mine()
    assert found.error_deg == pytest.approx(errors.adapted_deg[0], abs=1e-3)
    assert abs(errors.adapted_deg[0] - errors.start_deg[0]) > 0.1
    assert found.settings == {"steps": 50, "lr": 1e-4} and found.learner == learner


def test_the_file_is_applied_as_its_docstring_says(run):
    assert run("--shots", 4, "--learner-file", "maml.pt", "--query-entries", 5) == 0
    held, person = torch.load("my.pt", weights_only=True), me()
    state = {name: value.numpy().astype(float) for name, value in held["state"].items()}
    shapes = {"hidden_weight": (6, 8), "hidden_bias": (8,), "output_weight": (8, 3), "output_bias": (3,)}
    assert {name: value.shape for name, value in state.items()} == shapes
    x = person.code @ state["hidden_weight"] + state["hidden_bias"]
    hidden = 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0)))
    gaze = hidden @ state["output_weight"] + state["output_bias"]
    np.testing.assert_allclose(held["error_deg"], np.degrees(angular_error(gaze, person.gaze)[-5:].mean()), rtol=1e-4)
    unadapted = np.degrees(angular_error(person.gaze_hat, person.gaze)[-5:].mean())
    assert held["query_entries"] == 5 and held["unadapted_deg"] == pytest.approx(unadapted)


def test_every_sample_may_calibrate_and_then_nothing_measures(run, capsys):
    assert run("--shots", 20) == 0
    assert "no entry is left to measure the error on" in capsys.readouterr().out
    found = load_mine()
    assert found.error_deg is None and found.unadapted_deg is None
    assert (found.support, found.query_entries) == (list(range(20)), 0)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--shots", 21), "person me of mine has 20 entries, fewer than --shots 21"),
        (
            ("--shots", 3, "--learner-file", "maml.pt"),
            r"--shots 3: maml.pt was trained for k = 1, 4",
        ),
        (("--shots", 4, "--learner", "maml"), "--learner maml needs --learner-file"),
        (("--shots", 4, "--learner", "offset", "--learner-file", "maml.pt"), "contains the learner maml, not offset"),
        (("--shots", 4, "--learner-file", "mine.h5"), "mine.h5: "),
        (("--shots", 4, "--learner-file", "none.pt"), "none.pt"),
        (("--shots", 4, "--person", "you"), "mine.h5: contains no person you, only me"),
        (("--shots", 4, "--codes", "two.h5"), "two.h5: contains 2 people, me to you"),
        (("--shots", 4, "--codes", "none.h5"), "none.h5: cannot be read"),
        (("--shots", 4, "--codes", "nan.h5"), "z_gaze of 1 of 20 entries is not finite"),
        (("--shots", 4, "--learner-file", "wide.pt"), "has gaze codes of size 6"),
        (("--shots", 4, "--learner-file", "other.pt"), "does not know: of_others"),
        (("--shots", 4, "--out", "mine.h5"), "--out mine.h5: is also an input"),
        (("--shots", 4, "--learner-file", "wild.pt"), "adaptation of person me of mine with k = 4 diverged"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_writes_nothing(run, capsys, arguments, sentence):
    write_person(Path("two.h5"), names=("me", "you"))
    write_person(Path("nan.h5"), nan=True)
    write_maml(Path("wide.pt"), inputs=9)
    write_maml(Path("other.pt"), learner="of_others")
    write_maml(Path("wild.pt"), adapt_lr=1e30)
    assert run(*arguments) == 1
    said = capsys.readouterr().err.strip()
    assert "\n" not in said
    assert sentence in said
    assert not Path("my.pt").exists()


def write_bayes(path: Path) -> Path:
    """Train on other people, whose gaze head makes the same errors as that of `me`."""
    write_person(Path("others.h5"), tuple(f"{i:02d}" for i in range(12)))
    others = [read_person(CodeStore(Path("others.h5")), f"{i:02d}") for i in range(12)]
    settings = FEWSHOT.model_copy(update={"query_entries": 10})
    save_fields(LEARNERS["bayes"].meta_train(MetaTraining(others[:8], others[8:], settings, 0)), path)
    return path


def test_a_closed_form_serves_any_k(run, capsys):
    write_bayes(Path("bayes.pt"))
    assert run("--shots", 7, "--learner-file", "bayes.pt") == 0
    assert "bayes on 7 samples: 0." in capsys.readouterr().out
    found = load_mine()
    assert found.gaze(me().seen(slice(None))).shape == (20, 3) and not found.activation
