"""The rule `estimator`. Fails with training on test people, errors of train people, mirroring that keeps the yaw."""

import json

import numpy as np
import pytest
import torch
from stage_runs import call_stage
from stores import PersonStrips, write_strips

from faze.base.geometry import mean_angle_deg, vector_from_pitchyaw
from faze.data.network_input import to_network
from faze.data.pairs import open_people
from faze.data.strips import read_store
from faze.redirection.estimator import blur, estimate, load_estimator, vary


def person(name: str, split: str, count: int, seed: int) -> PersonStrips:
    """Create strips with a red spot in the direction of the gaze and a blue one in the direction of the head."""
    rng = np.random.default_rng(seed)
    labels = rng.uniform(-0.3, 0.3, (count, 4)).astype(np.float32)
    y, x = np.mgrid[:64, :256]
    pixels = np.zeros((count, 64, 256, 3), np.uint8)
    for channel, angles in ((0, labels[:, :2]), (2, labels[:, 2:])):
        for strip, (pitch, yaw) in zip(pixels, angles, strict=True):
            away = ((y - 32 - 60 * pitch) / 6) ** 2 + ((x - 128 - 300 * yaw) / 12) ** 2
            strip[..., channel] = 255 * np.exp(-away)
    return PersonStrips(name, split, pixels, labels)


PEOPLE = [("a", "train", 60, 0), ("b", "train", 60, 1), ("c", "val", 20, 2), ("d", "test", 20, 3)]


@pytest.fixture
def stage(tmp_path):
    write_strips(tmp_path / "gazecapture.h5", "gazecapture", [person(*who) for who in PEOPLE])
    write_strips(tmp_path / "mpiigaze.h5", "mpiigaze", [person("p00", "test", 20, 4)])

    def run(out="estimator.pt", **settings) -> int:
        small = {"channels": 8, "strips": 6400, "batch": 16, "lr": 0.004} | settings
        files = {"data": "gazecapture.h5", "evaluated": "mpiigaze.h5", "out": out, "errors": "errors.json"}
        paths = {name: tmp_path / file for name, file in files.items()}
        return call_stage("estimator", tmp_path, {"estimator": small}, threads=1, **paths)

    run.folder = tmp_path
    return run


def test_it_learns_from_train_people_and_tells_its_error_on_the_others(stage):
    assert stage() == 0
    errors = json.loads((stage.folder / "errors.json").read_text())["errors"]
    of = [(error["dataset"], error["split"], error["people"]) for error in errors]
    assert of == [("gazecapture", "val", 1), ("gazecapture", "test", 1), ("mpiigaze", "test", 1)]
    # Looking straight ahead would be off by 13 degrees.
    assert all(e["gaze_deg"] < 7 and e["head_deg"] < 7 for e in errors)
    trained = load_estimator(stage.folder / "estimator.pt")
    tested = open_people(read_store(stage.folder / "gazecapture.h5"), (32, 128), split="test")
    found = estimate(trained, to_network(tested.gather(torch.arange(20))))
    for name, angles in (("gaze_deg", slice(2)), ("head_deg", slice(2, 4))):
        vectors = [vector_from_pitchyaw(rows[:, angles]) for rows in (found, tested.labels.double().numpy())]
        assert errors[1][name] == pytest.approx(mean_angle_deg(*vectors), rel=1e-3)


def test_the_same_training_gives_the_same_estimator(stage):
    assert stage("one.pt", strips=160) == stage("two.pt", strips=160) == 0
    one, two = (load_estimator(stage.folder / name).state_dict() for name in ("one.pt", "two.pt"))
    assert all(torch.equal(value, two[name]) for name, value in one.items())


def test_a_training_that_diverges_is_said(stage, capfd):
    assert stage(strips=320, lr=1e30) == 1
    assert "the training of the estimator diverged: train again with a lower estimator.lr" in capfd.readouterr().err
    assert not (stage.folder / "estimator.pt").exists()


def test_strips_are_mirrored_with_their_yaws():
    image, labels = torch.zeros(64, 3, 32, 128), torch.tensor([[0.1, 0.2, 0.3, 0.4]]).repeat(64, 1)
    image[..., :64] = 1.0  # bright on the left
    varied, of = vary(image, labels, 0)
    mirrored = varied[..., 64:].mean((1, 2, 3)) > varied[..., :64].mean((1, 2, 3))
    assert 16 < mirrored.sum() < 48
    assert (of[mirrored] == torch.tensor([0.1, -0.2, 0.3, -0.4])).all()
    assert (of[~mirrored] == labels[0]).all()
    assert (vary(image, labels, 0)[0] == varied).all() and (vary(image, labels, 1)[0] != varied).any()


def test_a_blur_spreads_a_point_by_its_deviation():
    image = torch.zeros(1, 3, 33, 33)
    image[..., 16, 16] = 1
    away = torch.arange(33) - 16
    weights = torch.exp(-(away**2) / 8.0) * (away.abs() <= 4)  # cut at two deviations
    weights /= weights.sum()
    torch.testing.assert_close(blur(image, 2.0), (weights[:, None] * weights).expand(1, 3, 33, 33))
    assert (blur(image, 0.0) == image).all()
