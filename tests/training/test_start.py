"""Trainings that start from given weights, freeze parts of the network, or only evaluate."""

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from stage_training import ROOT, Training, write_store

from faze.base.run_log import read_events
from faze.commands import import_checkpoint
from faze.model.dted import part_of
from faze.model.weights import load_model

GOLDEN_SIZES = {"growth": 4, "blocks": 4, "image_height_px": 64, "image_width_px": 256}
SHORT = {"pairs": 32, "log_every_pairs": 16, "validate_every_pairs": 32}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("data") / "gazecapture.h5")


@pytest.fixture(scope="module")
def first(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Training:
    training = Training(tmp_path_factory.mktemp("first"), data, "baseline", **SHORT)
    training.finish()
    return training


def moved_parts(training: Training, before: Training) -> set[str]:
    old = before.weights()
    return {part_of(name) for name, weight in training.weights().items() if not torch.equal(weight, old[name])}


@pytest.mark.parametrize("tier", ["baseline", "ddp", "recompute"])
def test_frozen_parts_keep_the_weights_of_the_start(tier: str, data: Path, first: Training, tmp_path: Path) -> None:
    sections = {"run": {"tiers": ["baseline", "ddp", "recompute"]}}
    frozen = {"start": str(first.out), "frozen": ["encoder", "gaze_head"]}
    training = Training(tmp_path, data, tier, sections=sections, **SHORT, **frozen)
    training.finish()
    assert moved_parts(training, first) == {"decoder"}
    logged = [event["values"] for event in read_events(training.log) if event["event"] == "metrics"]
    assert {key for key in logged[0] if key.startswith("train/lr")} == {"train/lr/decoder"}


def test_without_pairs_the_weights_are_only_validated(data: Path, first: Training, tmp_path: Path) -> None:
    training = Training(tmp_path, data, "baseline", **SHORT | {"pairs": 0}, start=str(first.out))
    training.finish()
    assert moved_parts(training, first) == set()
    (metrics,) = (event for event in read_events(training.log) if event["event"] == "metrics")
    of_first = [event for event in read_events(first.log) if event["event"] == "metrics"][-1]
    assert metrics["step"] == 0
    assert metrics["values"] == {key: x for key, x in of_first["values"].items() if key.startswith("val/")}


def test_a_checkpoint_states_the_camera_of_its_training(data: Path, first: Training, tmp_path: Path) -> None:
    sections = {"preprocess": {"focal_length_px": 650.0, "distance_mm": 300.0}}
    training = Training(tmp_path, data, "baseline", sections=sections, **SHORT, start=str(first.out))
    training.finish()
    found = [load_model(each.out).camera for each in (first, training)]
    assert [(camera.focal_length_px, camera.distance_mm) for camera in found] == [(1300.0, 600.0), (650.0, 300.0)]


def test_the_published_layout_starts_a_training(data: Path, tmp_path: Path) -> None:
    """The golden state dictionary has the names and shapes of the released code."""
    with np.load(ROOT / "tests/golden/dted_small.npz") as arrays:
        golden = {key.removeprefix("sd/"): torch.tensor(arrays[key]) for key in arrays.files if key.startswith("sd/")}
    torch.save({f"module.{key}": value for key, value in golden.items()}, tmp_path / "published.pth.tar")
    (tmp_path / "sizes.yaml").write_text(yaml.safe_dump({"name": "sizes", "model": GOLDEN_SIZES}))
    import_checkpoint.main(
        tmp_path / "published.pth.tar", configfile=[tmp_path / "sizes.yaml"], out=tmp_path / "start.pt"
    )
    sections = {"model": GOLDEN_SIZES}
    training = Training(
        tmp_path, data, "baseline", sections=sections, **SHORT | {"pairs": 0}, start=str(tmp_path / "start.pt")
    )
    training.finish()
    assert all(torch.equal(weight, golden[name].float()) for name, weight in training.weights().items())
