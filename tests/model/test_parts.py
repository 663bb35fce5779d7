"""Parts of the network: which parameters belong to them, freezing, and starting from given weights."""

from pathlib import Path

import pytest
import torch

from faze.base.errors import UserError
from faze.config.validation import read_config
from faze.model.dted import DTED, block_of, freeze, part_of
from faze.model.weights import load_start, save_weights

CONFIG = read_config()
CAMERA = CONFIG.preprocess.camera()


def network(**sizes: int) -> DTED:
    torch.manual_seed(sizes.pop("seed", 0))
    return DTED(CONFIG.model.model_copy(update=sizes))


def test_every_parameter_is_in_one_part() -> None:
    names = dict(network().named_parameters())
    parts = {name: part_of(name) for name in names}
    assert set(parts.values()) == {"encoder", "decoder", "gaze_head"}
    assert {name.split(".")[0] for name, part in parts.items() if part == "encoder"} == {"encoder", "fc_enc"}
    assert {name.split(".")[0] for name, part in parts.items() if part == "gaze_head"} == {"gaze1", "gaze2"}


def test_blocks_contain_the_layers_around_them() -> None:
    blocks = {name: block_of(name, 3) for name, _ in network().named_parameters()}
    assert blocks["encoder.initial.conv1.weight"] == blocks["encoder.trans1.composite.conv.weight"] == "encoder.block1"
    assert blocks["encoder.block1.compo4.conv.weight"] == "encoder.block1"
    assert blocks["decoder.last.conv3.weight"] == "decoder.block3"
    assert {name for name, block in blocks.items() if not block} == {
        f"{layer}.{kind}" for layer in ("fc_enc", "fc_dec", "gaze1", "gaze2") for kind in ("weight", "bias")
    }


def test_freezing_leaves_all_else_trainable() -> None:
    dted = network()
    freeze(dted, ["encoder.block1", "gaze_head"])
    frozen = {name for name, parameter in dted.named_parameters() if not parameter.requires_grad}
    assert {name.split(".")[0] for name in frozen} == {"encoder", "gaze1", "gaze2"}
    assert {name.split(".")[1] for name in frozen if name.startswith("encoder")} == {"initial", "block1", "trans1"}


def load(path: Path, trained: bool = True) -> DTED:
    return load_start(path, network().model, CAMERA, trained)


def test_a_checkpoint_of_the_same_sizes_is_loaded(tmp_path: Path) -> None:
    given = network(seed=1, backprop_gaze=False)  # which changes only the training
    save_weights(tmp_path / "given.pt", given)
    for theirs, ours in zip(given.parameters(), load(tmp_path / "given.pt").parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_other_sizes_are_refused(tmp_path: Path) -> None:
    save_weights(tmp_path / "given.pt", network(decoder_channels=16))
    with pytest.raises(UserError) as refused:
        load(tmp_path / "given.pt")
    assert "model.decoder_channels is 16 in the checkpoint, not 32" in str(refused.value)
    save_weights(tmp_path / "given.pt", network(normalize_axis=3, backprop_gaze=False))
    with pytest.raises(UserError, match=r"model section: model\.normalize_axis is 3 in the checkpoint, not 1; set"):
        load(tmp_path / "given.pt")


def test_another_virtual_camera_is_refused_only_without_training(tmp_path: Path) -> None:
    given = network()
    given.camera = CAMERA.model_copy(update={"focal_length_px": 650.0})
    save_weights(tmp_path / "given.pt", given)
    load(tmp_path / "given.pt", trained=True)
    with pytest.raises(UserError, match=r"preprocess\.focal_length_px is 650\.0 in the checkpoint, not 1300\.0; set"):
        load(tmp_path / "given.pt", trained=False)
