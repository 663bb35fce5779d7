"""Parts of the network: which parameters belong to them, freezing, and starting from given weights."""

from pathlib import Path

import pytest
import torch

from faze.base.errors import UserError
from faze.config.check import build
from faze.config.parameters import PARTS, Model
from faze.config.validation import read_config
from faze.model.dted import DTED, part_of
from faze.model.parts import block_of, freeze, start_from
from faze.model.weights import save_weights


def network(**sizes: int) -> DTED:
    torch.manual_seed(sizes.pop("seed", 0))
    return DTED(build(Model, read_config([])["model"] | sizes))


def test_every_parameter_is_in_one_part() -> None:
    names = dict(network().named_parameters())
    parts = {name: part_of(name) for name in names}
    assert set(parts.values()) == set(PARTS)
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


def test_a_network_starts_from_a_checkpoint(tmp_path: Path) -> None:
    given, started = network(seed=1), network()
    save_weights(tmp_path / "given.pt", given)
    start_from(started, tmp_path / "given.pt", trained=True)
    for ours, theirs in zip(started.parameters(), given.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_other_sizes_are_refused_part_by_part(tmp_path: Path) -> None:
    save_weights(tmp_path / "given.pt", network(decoder_channels=16))
    with pytest.raises(UserError) as refused:
        start_from(network(), tmp_path / "given.pt", trained=True)
    assert str(refused.value) == (
        f"{tmp_path}/given.pt: does not fit the section model: model.decoder_channels is 16, not 32 (of its parts, "
        "decoder would not fit, encoder and gaze_head would). Set the checkpoint's values"
    )
    save_weights(tmp_path / "given.pt", network(normalize_axis=3, backprop_gaze=False))
    with pytest.raises(UserError, match=r"model: model\.normalize_axis is 3, not 1\. Set"):
        start_from(network(), tmp_path / "given.pt", trained=True)
    save_weights(tmp_path / "given.pt", network(backprop_gaze=False))
    start_from(network(), tmp_path / "given.pt", trained=True)
