"""Calibration of one person as a command, on synthetic codes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from stage_runs import call_faze

from faze.base.geometry import angular_error, vector_from_pitchyaw
from faze.config.validation import read_config
from faze.data.codes import CodeStore, write_codes
from faze.fewshot.interface import Learned
from faze.fewshot.learners import LEARNERS, PersonalEstimator, load_fields, load_learned, save_fields
from faze.fewshot.mlp import PARTS, random_network
from faze.fewshot.person_codes import Calibration, PersonCodes, read_person
from faze.tracking import MlflowClient

FEWSHOT = read_config().fewshot.model_copy(update={"shots": (1, 4), "adapt_steps": 50, "adapt_lr": 1e-4})


def write_people(path: str, *names: str) -> None:
    """Create people with 20 entries, whose gaze head is off by 4 degrees in pitch, plus noise."""
    rng = np.random.default_rng(3)

    def codes() -> dict[str, np.ndarray]:
        gaze = rng.uniform(-0.3, 0.3, (20, 2))
        seen = gaze + [np.radians(4), 0] + rng.normal(0, 0.005, gaze.shape)
        z_gaze = np.stack([vector_from_pitchyaw(seen), vector_from_pitchyaw(seen + 0.5)], axis=1)
        return {"z_gaze": z_gaze, "gaze": gaze, "head": 0 * gaze, "gaze_hat": vector_from_pitchyaw(seen)}

    write_codes(Path(path), "mine", ((name, "test", codes()) for name in names))


def write_learner(path: str, learner: str = "maml") -> None:
    """Create two very different networks, for k = 1 and k = 4, with the learner's own settings."""
    both = [random_network(6, 8, seed) for seed in (1, 2)]
    state = {name: torch.cat([network[name] for network in both]) for name in PARTS}
    own = {"activation": "relu"} if learner == "none" else {}
    settings = FEWSHOT.model_dump() | {"shots": [1, 4]}
    save_fields(Learned(learner, [1, 4], settings, state, **own), Path(path))


@pytest.fixture
def run(tmp_path, monkeypatch) -> Callable[..., int]:
    monkeypatch.chdir(tmp_path)
    write_people("mine.h5", "me")
    return lambda *words, codes="mine.h5": call_faze("calibrate", "--codes", codes, "--out", "my.pt", *words)


def read_both() -> tuple[PersonCodes, PersonalEstimator]:
    return read_person(CodeStore(Path("mine.h5")), "me"), load_fields(PersonalEstimator, "my.pt", "a calibration", "")


def test_offset_needs_no_learner_and_says_what_it_gained(run, capsys):
    assert run("--shots", 9) == 0
    told = capsys.readouterr().out
    assert "person me of mine: offset on 9 samples: error 0." in told and ") on 11 other " in told
    person, found = read_both()
    assert found.state["offset_rad"].tolist() == pytest.approx([np.radians(4), 0], abs=0.005)
    [logged] = MlflowClient("sqlite:///results/mlflow.db").search_runs(["1"])
    assert logged.info.run_name == "calibration-me" and logged.data.params["shots"] == "9"
    assert logged.data.metrics["error/held_out_deg"] == found.error_deg
    assert found.support == list(range(9)) and found.shots == 9 and found.query_entries == 11
    expected = np.degrees(angular_error(found.gaze(person.seen(slice(None))), person.gaze)[9:].mean())
    assert found.error_deg == pytest.approx(expected) and expected < 0.6 and found.unadapted_deg > 3


@pytest.mark.parametrize(("learner", "k"), [("maml", 1), ("none", 4)])
def test_the_adapted_network_is_the_one_that_adapt_measures_and_its_file_is_documented(run, learner, k):
    """All entries after the first k are query entries, so the learner itself measures on the same entries."""
    write_learner("learned.pt", learner)
    assert run("--shots", k, "--learner-file", "learned.pt") == 0
    person, found = read_both()
    settings = FEWSHOT.model_copy(update={"query_entries": 20 - k})
    samples = [Calibration(person, 0, np.arange(k))]
    errors = LEARNERS[learner].errors(load_learned("learned.pt"), samples, settings)
    assert found.error_deg == pytest.approx(errors.adapted_deg[0], abs=1e-3)
    assert abs(errors.adapted_deg[0] - errors.start_deg[0]) > 0.1
    state = {name: value.numpy().astype(float) for name, value in found.state.items()}
    x = person.code @ state["hidden_weight"] + state["hidden_bias"]
    selu = 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0)))
    hidden = np.maximum(x, 0) if learner == "none" else selu
    gaze = hidden @ state["output_weight"] + state["output_bias"]
    np.testing.assert_allclose(found.error_deg, np.degrees(angular_error(gaze, person.gaze)[k:].mean()), rtol=1e-4)


def test_what_cannot_be_done_is_one_sentence_and_writes_nothing(run, capsys):
    write_people("two.h5", "me", "you")
    write_learner("maml.pt")
    cases = {
        ("--shots", 20): "person me of mine has 20 entries: --shots 20 leaves none",
        ("--shots", 3, "--learner-file", "maml.pt"): "--shots 3: maml was trained for k = 1, 4",
        ("--shots", 4, "--codes", "two.h5"): "two.h5: choose one of its people with --person: me, you",
    }
    for words, sentence in cases.items():
        assert run(*words) == 1
        assert sentence in capsys.readouterr().err and not Path("my.pt").exists()
