"""The parts of DT-ED that a training can start from given weights, freeze, or train at rates of their own."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from torch import nn

from faze.base.errors import UserError
from faze.config.parameters import PARTS
from faze.model.dted import DTED, part_of
from faze.model.weights import load_model

_BLOCKS = {"encoder.initial": "encoder.block1", "decoder.last": "decoder.block{blocks}"}


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
        UserError: the checkpoint cannot be used; if sizes differ, the message lists the parts that fit and the others.
    """
    found = load_model(path)
    ours, theirs = shapes(dted), shapes(found)
    wanted, given = dataclasses.asdict(dted.model), dataclasses.asdict(found.model)
    # Without an effect on sizes, backprop_gaze changes only the training, but normalize_axis the network itself.
    differ = [key for key in wanted if wanted[key] != given[key] and key != "backprop_gaze"]
    if ours == theirs and not differ:
        dted.load_state_dict(found.state_dict())
        return
    fit = [part for part in PARTS if _of_part(ours, part) == _of_part(theirs, part)]
    sizes = ", ".join(f"model.{key} is {given[key]} in the checkpoint, not {wanted[key]}" for key in differ)
    others = " and ".join(part for part in PARTS if part not in fit)
    which = f" (of its parts, {others} would not fit, {' and '.join(fit) or 'none'} would)" if others else ""
    raise UserError(f"{path}: does not fit the section model: {sizes}{which}. Set the checkpoint's values")


def shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the shape of each parameter."""
    return {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}


def _of_part(shapes: dict[str, tuple[int, ...]], part: str) -> dict[str, tuple[int, ...]]:
    return {name: shape for name, shape in shapes.items() if part_of(name) == part}
