"""The estimator that evaluates redirected strips: its training, reproducibility and refusals.

Checked by breaking the code: training on test people, mirroring that keeps the yaw's sign, errors measured on train
people.
"""

import functools
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from faze.base.errors import UserError
from faze.base.geometry import mean_angle_deg, vector_from_pitchyaw
from faze.config.stage_config import resolve, to_lines
from faze.config.yaml_files import merge, read_yaml
from faze.data.network_input import to_network
from faze.data.store.strips import PersonStrips, StripStore, write_strips
from faze.redirection.estimator import GazeHeadEstimator, blur, estimate, load_estimator, vary
from faze.stages import estimator

ROOT = Path(__file__).resolve().parents[2]


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
    return PersonStrips(name, split, None, pixels, labels)


PEOPLE = [("a", "train", 60, 0), ("b", "train", 60, 1), ("c", "val", 20, 2), ("d", "test", 20, 3)]


@pytest.fixture
def stage(tmp_path, monkeypatch):
    write_strips(tmp_path / "gazecapture.h5", "gazecapture", [person(*who) for who in PEOPLE])
    write_strips(tmp_path / "mpiigaze.h5", "mpiigaze", [person("p00", "test", 20, 4)])

    def run(out="estimator.pt", **settings) -> int:
        small = {"channels": 8, "strips": 6400, "batch": 16, "lr": 0.004, **settings}
        config = merge(read_yaml(ROOT / "config" / "config.yaml"), {"estimator": small})
        (tmp_path / "config.yaml").write_text("\n".join(to_lines(resolve(config, "estimator"))))
        words = {"config": "config.yaml", "data": "gazecapture.h5", "evaluated": "mpiigaze.h5", "out": out}
        words |= {"errors": "errors.json"}
        arguments = [word for key, name in words.items() for word in (f"--{key}", str(tmp_path / name))]
        monkeypatch.setattr(sys, "argv", ["estimator", *arguments, "--threads", "1"])
        return estimator.main()

    run.folder = tmp_path
    return run


def test_errors_are_measured_in_fp32_with_cudnn(stage, monkeypatch):
    """Regression: cuDNN was off while errors were measured."""
    cudnn, measure, seen = torch.backends.cudnn, estimator.measure_errors, []

    def measured(*given):
        seen.append((cudnn.enabled, cudnn.allow_tf32))
        return measure(*given)

    monkeypatch.setattr(estimator, "measure_errors", measured)
    assert stage(strips=16) == 0
    assert seen == [(True, False), (True, False)] and cudnn.enabled


def test_it_learns_from_train_people_and_tells_its_error_on_the_others(stage, capfd):
    assert stage() == 0
    errors = json.loads((stage.folder / "errors.json").read_text())["errors"]
    assert [(e["dataset"], e["split"], e["people"]) for e in errors] == [
        ("gazecapture", "val", 1),
        ("gazecapture", "test", 1),
        ("mpiigaze", "test", 1),
    ]
    # Looking straight ahead would be off by 13 degrees.
    assert all(e["gaze_deg"] < 7 and e["head_deg"] < 7 for e in errors)
    said = "gazecapture, 1 test people: gaze {gaze_deg:.2f}°, head {head_deg:.2f}°".format(**errors[1])
    assert said in capfd.readouterr().out
    trained = load_estimator(stage.folder / "estimator.pt")
    assert (trained.network.channels, trained.network.size) == (8, (32, 128))
    with StripStore(stage.folder / "gazecapture.h5") as strips:
        assert set(trained.trained_on) == {strips.person_digest(name) for name in ("a", "b")}
        image = to_network(torch.from_numpy(strips.pixels("d")), 32, 128)
        found, labels = estimate(trained.network, image), strips.labels("d").astype(float)
    for name, angles in (("gaze_deg", slice(2)), ("head_deg", slice(2, 4))):
        vectors = [vector_from_pitchyaw(rows[:, angles]) for rows in (found, labels)]
        assert errors[1][name] == pytest.approx(mean_angle_deg(*vectors), rel=1e-3)


def test_the_same_training_gives_the_same_estimator(stage):
    found, image = [], torch.rand(3, 3, 32, 128) * 2 - 1
    for name, seed in (("one.pt", 3), ("two.pt", 3), ("three.pt", 4)):
        assert stage(name, strips=160, seed=seed) == 0
        found.append(estimate(load_estimator(stage.folder / name).network, image))
    assert (found[0] == found[1]).all() and (found[0] != found[2]).any()


def test_people_of_its_training_are_refused_under_any_name(stage):
    assert stage(strips=32) == 0
    trained = load_estimator(stage.folder / "estimator.pt")
    write_strips(stage.folder / "other.h5", "mpiigaze", [person("p07", "test", 60, 1), person("p08", "test", 60, 9)])
    with StripStore(stage.folder / "other.h5") as strips:
        trained.check_unseen(stage.folder, strips, ["p08"])
        with pytest.raises(Exception, match=r"the estimator was trained on p07"):
            trained.check_unseen(stage.folder, strips, ["p07", "p08"])


def test_a_training_that_diverges_is_said(stage, capfd):
    assert stage(strips=320, lr=1e30) == 1
    assert "the training of the estimator diverged: train again with a lower estimator.lr" in capfd.readouterr().err
    assert not (stage.folder / "estimator.pt").exists()


def test_strips_are_mirrored_with_their_yaws(monkeypatch):
    settings = resolved()
    image, labels = torch.zeros(64, 3, 32, 128), torch.tensor([[0.1, 0.2, 0.3, 0.4]]).repeat(64, 1)
    image[..., :64] = 1.0  # bright on the left
    varied, of = vary(image, labels, settings, 0)
    mirrored = varied[..., 64:].mean((1, 2, 3)) > varied[..., :64].mean((1, 2, 3))
    assert 16 < mirrored.sum() < 48
    assert (of[mirrored] == torch.tensor([0.1, -0.2, 0.3, -0.4])).all()
    assert (of[~mirrored] == labels[0]).all()
    assert (vary(image, labels, settings, 0)[0] == varied).all() and (
        vary(image, labels, settings, 1)[0] != varied
    ).any()


def resolved():
    from faze.config.check import build
    from faze.config.parameters import Estimator

    return build(Estimator, read_yaml(ROOT / "config" / "config.yaml")["estimator"])


def test_a_blur_keeps_the_mean_and_spreads_a_point_by_its_deviation():
    image = torch.zeros(1, 3, 33, 33)
    image[..., 16, 16] = 1
    found = blur(image, 2.0)
    away = torch.arange(33) - 16
    weights = torch.exp(-(away**2) / 8.0) * (away.abs() <= 4)  # cut at two deviations
    weights /= weights.sum()
    torch.testing.assert_close(found, (weights[:, None] * weights).expand(1, 3, 33, 33))
    assert (blur(image, 0.0) == image).all()


WHOLE = {"format": 1, "channels": 2, "size": [16, 64], "trained_on": ["0123"]}


@functools.cache
def state() -> dict[str, torch.Tensor]:
    """Build the weights only when a test needs them: computing before threads are set would change the numbers."""
    return GazeHeadEstimator(2, (16, 64)).state_dict()


@pytest.mark.parametrize("content", [{"format": 1}, {"format": 2, "estimator": {}}, {"format": 1, "estimator": {}}])
def test_what_is_no_estimator_is_said(tmp_path, content):
    torch.save(content, tmp_path / "file.pt")
    with pytest.raises(Exception, match=r"file.pt: "):
        load_estimator(tmp_path / "file.pt")


@pytest.mark.parametrize(
    "changed",
    [
        *({"channels": 2**30}, {"channels": torch.ones(2)}, {"channels": -2}, {"size": [16]}, {"size": ["a", "b"]}),
        *({"estimator": 3}, {"trained_on": 3}, {"format": torch.ones(2)}),
    ],
)
def test_whatever_a_file_states_it_is_said(tmp_path, changed):
    """Regression: for a manipulated file, a terabyte of memory was requested or a traceback was shown."""
    torch.save(WHOLE | {"estimator": state()} | changed, tmp_path / "file.pt")
    with pytest.raises(UserError, match=r"file.pt: "):
        load_estimator(tmp_path / "file.pt")


@pytest.mark.parametrize("tensor", [torch.nan, torch.zeros(3)])
def test_weights_are_numbers_of_its_shapes(tmp_path, tensor):
    bias = torch.full((4,), tensor) if isinstance(tensor, float) else tensor
    torch.save(WHOLE | {"estimator": state() | {"angles.bias": bias}}, tmp_path / "file.pt")
    with pytest.raises(UserError, match="file.pt: the estimator"):
        load_estimator(tmp_path / "file.pt")


def test_an_estimator_of_another_dtype_estimates_alike(tmp_path):
    torch.save(WHOLE | {"estimator": {key: value.double() for key, value in state().items()}}, tmp_path / "file.pt")
    network, image = load_estimator(tmp_path / "file.pt").network, torch.ones(1, 3, 16, 64)
    wanted = GazeHeadEstimator(2, (16, 64)).eval()
    wanted.load_state_dict(state())
    assert torch.equal(network(image), wanted(image))
