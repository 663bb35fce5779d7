"""The parts of DT-ED that a training can start from given weights, freeze, or train at rates of their own."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from torch import nn

from faze.base.errors import UserError
from faze.config.parameters import PARTS
from faze.model.dted import DTED
from faze.model.weights import load_model

_MODULES = {"encoder": "encoder", "fc_enc": "encoder", "decoder": "decoder", "fc_dec": "decoder"}
_BLOCKS = {"encoder.initial": "encoder.block1", "decoder.last": "decoder.block{blocks}"}


def part_of(parameter: str) -> str:
    """Return the part of a parameter, by its name: encoder, decoder or gaze_head."""
    return _MODULES.get(parameter.split(".")[0], "gaze_head")


def block_of(parameter: str, blocks: int) -> str:
    """Return the dense block of a parameter, such as encoder.block1, with the layers around it; "" if it has none."""
    module = ".".join(parameter.split(".")[:2]).replace("trans", "block")
    return _BLOCKS.get(module, module if ".block" in module else "").format(blocks=blocks)


def freeze(dted: DTED, frozen: Sequence[str]) -> None:
    """Exclude parts and blocks from training."""
    for name, parameter in dted.named_parameters():
        if {part_of(name), block_of(name, dted.model.blocks)} & set(frozen):
            parameter.requires_grad_(False)


def start_from(dted: DTED, path: Path) -> None:
    """Copy the weights of a checkpoint into a network, whose sizes must be the same.

    Raises:
        UserError: the checkpoint cannot be used; if sizes differ, the message names the parts that fit and that do not.
    """
    found = load_model(path)
    ours, theirs = shapes(dted), shapes(found)
    if ours == theirs:
        dted.load_state_dict(found.state_dict())
        return
    fit = [part for part in PARTS if _of_part(ours, part) == _of_part(theirs, part)]
    wanted, given = dataclasses.asdict(dted.model), dataclasses.asdict(found.model)
    sizes = ", ".join(f"model.{key} {given[key]}, not {wanted[key]}" for key in wanted if given[key] != wanted[key])
    others = " and ".join(part for part in PARTS if part not in fit)
    raise UserError(
        f"{path}: no training can start from these weights, since the sizes of {others} differ "
        f"({' and '.join(fit) or 'no part'} would fit): the checkpoint has {sizes}; use its values in the section model"
    )


def shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the shape of each parameter."""
    return {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}


def _of_part(shapes: dict[str, tuple[int, ...]], part: str) -> dict[str, tuple[int, ...]]:
    return {name: shape for name, shape in shapes.items() if part_of(name) == part}
