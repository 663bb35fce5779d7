"""Files of earlier versions of faze still open; they are written here by their literal keys, not by today's code."""

import json
import sys
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from faze.config.stage_config import resolve, to_lines
from faze.config.yaml_files import merge, read_yaml
from faze.data.store.codes import CodeStore
from faze.data.store.strips import StripStore
from faze.fewshot.learner_file import load_learned
from faze.model.weights import load_model
from faze.stages import encode

ROOT = Path(__file__).resolve().parents[2]
SHAPES = json.loads(Path(__file__).with_name("old_weights.json").read_text(encoding="utf-8"))  # of growth 4
SIZES = {
    **{"growth": 4, "image_height_px": 32, "image_width_px": 128, "z_app": 64, "z_gaze": 2, "z_head": 16},
    **{"decoder_channels": 32, "normalize_axis": 1, "backprop_gaze": True},
}


@pytest.fixture
def weights() -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=random) / 10 for name, shape in SHAPES.items()}


@pytest.fixture
def checkpoint(tmp_path: Path, weights: dict[str, torch.Tensor]) -> Path:
    """With the states of numpy and Python too, which a training of today does not write."""
    rng = {
        "torch": torch.get_rng_state(),
        "numpy": "('MT19937', array([1, 2]), 623, 0, 0.0)",
        "python": "(3, (1, 2), None)",
    }
    state = {
        **{"format": 1, "model": weights, "model_config": SIZES, "optimizer": {"state": {}, "param_groups": []}},
        **{"scaler": {}, "step": 8, "pairs": 64, "log_bytes": 6266, "rng": rng, "identity": "8a12-80e4-ea1a"},
    }
    torch.save(state, tmp_path / "checkpoint.pt")
    return tmp_path / "checkpoint.pt"


@pytest.fixture
def pixels() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (3, 64, 256, 3), dtype=np.uint8)


@pytest.fixture
def store(tmp_path: Path, pixels: np.ndarray) -> Path:
    """Schema version 2 of strips."""
    labels = np.array([[0.1, 0.2, 0.3, 0.4]] * 3, np.float32)
    arrays = {
        **{"pixels": pixels, "labels": labels, "file_name": np.array([b"a.jpg", b"b.jpg", b"c.jpg"])},
        **{"frame_index": np.arange(3), "label_source": np.ones(3, np.uint8), "validity": np.full(3, 2, np.uint8)},
    }
    with h5py.File(tmp_path / "gazecapture.h5", "w") as file:
        file.attrs.update({"schema": "strips", "schema_version": 2, "dataset": "gazecapture"})
        file.attrs["label_sources"] = ["annotated", "supplementary", "estimated", "stored"]
        file.attrs["validities"] = ["valid", "off_screen", "unknown_screen"]
        group = file.create_group("00001")
        checksum = zlib.crc32(labels.tobytes(), zlib.crc32(pixels.tobytes()))
        group.attrs.update({"split": "test", "device": "iPhone 6s", "checksum": f"crc32:{checksum:08x}"})
        for name, array in arrays.items():
            group[name] = array
    return tmp_path / "gazecapture.h5"


def test_checkpoint(checkpoint: Path, weights: dict[str, torch.Tensor]) -> None:
    dted = load_model(checkpoint)
    assert all(getattr(dted.model, key) == value for key, value in SIZES.items())
    assert dted.state_dict().keys() == weights.keys()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in dted.state_dict().items())


def test_store(store: Path, pixels: np.ndarray) -> None:
    with StripStore(store) as strips:
        assert (strips.dataset, strips.persons(), strips.split("00001")) == ("gazecapture", ["00001"], "test")
        assert strips.file_names("00001") == ["a.jpg", "b.jpg", "c.jpg"]
        np.testing.assert_array_equal(strips.pixels("00001"), pixels)
        assert strips.verify("00001")


def test_both_are_encoded(checkpoint: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = merge(read_yaml(ROOT / "config" / "config.yaml"), {"model": SIZES | {"blocks": 4}})
    (tmp_path / "encode.yaml").write_text("\n".join(to_lines(resolve(config, "encode", "baseline", 0))))
    words = {"config": tmp_path / "encode.yaml", "checkpoint": checkpoint, "data": store, "out": tmp_path / "codes.h5"}
    monkeypatch.setattr(sys, "argv", ["encode", *(str(w) for k, v in words.items() for w in (f"--{k}", v))])
    assert encode.main() == 0
    assert CodeStore(tmp_path / "codes.h5")["00001"]["z_gaze"].shape == (3, 2, 3)


def test_codes(tmp_path: Path) -> None:
    """Without the digest of the checkpoint, as the first of them were."""
    shapes = {"z_app": (64,), "z_gaze": (2, 3), "z_head": (16, 3), "gaze": (2,), "head": (2,), "gaze_hat": (3,)}
    with h5py.File(tmp_path / "codes.h5", "w") as file:
        file.attrs.update({"schema": "codes", "dataset": "mpiigaze"})
        group = file.create_group("p00")
        group.attrs["split"] = "test"
        for name, shape in shapes.items():
            group[name] = np.full((5, *shape), 0.5, np.float32)
    codes = CodeStore(tmp_path / "codes.h5")["p00"]
    assert {name: codes[name].shape[1:] for name in shapes} == shapes


def test_learner(tmp_path: Path) -> None:
    shapes = {
        "hidden_weight": (1, 6, 64),
        "hidden_bias": (1, 1, 64),
        "output_weight": (1, 64, 3),
        "output_bias": (1, 1, 3),
    }
    state = {
        **{"learner": "maml", "shots": [3], "settings": {"seed": 0}, "activation": "selu", "left_out": []},
        **{"state": {name: torch.ones(shape) for name, shape in shapes.items()}, "checkpoint": "28f1bb9576f7fd47"},
        **{"history": [{"step": 20, "train_deg": [7.0], "val_deg": [6.0]}], "outer_steps": [20], "stop_steps": [20]},
    }
    torch.save(state, tmp_path / "maml.pt")
    learned = load_learned(tmp_path / "maml.pt", "maml", [3])
    assert {name: tuple(tensor.shape) for name, tensor in learned.state.items()} == shapes
