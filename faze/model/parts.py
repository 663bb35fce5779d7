"""The parts of DT-ED that a training can start from given weights, freeze, or train at rates of their own."""

from collections.abc import Sequence
from pathlib import Path

from faze.base.errors import UserError
from faze.config.parameters import Model, NormalizedCamera
from faze.model.dted import DTED, part_of
from faze.model.weights import differences, load_model

PARTS = ("encoder", "decoder", "gaze_head")  # with learning rates of their own
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


def load_start(path: Path, model: Model, camera: NormalizedCamera, trained: bool) -> DTED:
    """Load the network of a checkpoint, from which a training starts or which is only evaluated.

    Args:
        path: the checkpoint.
        model: the sizes that the network must have.
        camera: the virtual camera of the strips; it may differ from that of the checkpoint if the network is trained.
        trained: whether it is trained.

    Raises:
        UserError: the checkpoint cannot be used; the message lists the values that differ.
    """
    found = load_model(path)
    remedy = "set the checkpoint's values in the configuration"
    if found.camera and not trained and found.camera != camera:
        differ = ", ".join(differences("preprocess", found.camera, camera))
        raise UserError(f"{path}: was trained with strips of another virtual camera: {differ}; {remedy}")
    wanted = model.model_copy(update={"backprop_gaze": found.model.backprop_gaze})  # which changes only the training
    if found.model == wanted:
        return found
    differ = ", ".join(differences("model", found.model, wanted))
    raise UserError(f"{path}: does not fit the section model: {differ}; {remedy}")
