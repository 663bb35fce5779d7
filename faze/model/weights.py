"""DT-ED checkpoints: faze's own format, and published state dictionaries.

A faze checkpoint contains {"format": 1, "model": state dictionary, "model_config": the model section, "camera": the
virtual camera of the training strips, ...}. The remaining entries, such as the optimiser state, are read only when
training resumes. The keys and shapes of the weights are those of the published checkpoint.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor

from faze.base.errors import UserError
from faze.config.parameters import Model, NormalizedCamera
from faze.model.dted import DTED, part_of
from faze.model.torch_file import read_mapping, write_mapping

FORMAT = 1


def load_model(path: Path | str, map_location: torch.device | str = "cpu") -> DTED:
    """Load a trained DT-ED from a checkpoint and put it in evaluation mode.

    Raise a UserError if the file is missing, corrupt or no faze checkpoint, or its weights do not match its sizes.
    """
    content = read_mapping(path, map_location)
    if content.get("format") != FORMAT:
        raise UserError(
            f"{path}: not a faze checkpoint of format {FORMAT}; to import a published one, run: faze import-checkpoint"
        )
    try:
        model = Model(**content["model_config"])
        camera = NormalizedCamera(**content["camera"]) if "camera" in content else None
    except ValidationError as error:
        raise UserError(f"{path}: {error}") from None
    dted = _load_weights(path, content["model"], model).to(map_location).eval()
    dted.camera = camera
    return dted


def load_start(path: Path, model: Model, camera: NormalizedCamera, trained: bool) -> DTED:
    """Load a checkpoint's network, either as the start of a training run (`trained`) or only for evaluation.

    Raise a UserError that lists the differences if its sizes are not those of `model`, or if the virtual camera of its
    training strips is not `camera`, which is required only for evaluation.
    """
    found = load_model(path)
    remedy = "set the checkpoint's values in the configuration"
    if found.camera and not trained and found.camera != camera:
        differ = ", ".join(differences("preprocess", found.camera, camera))
        raise UserError(f"{path} was trained on strips from a different virtual camera: {differ}; {remedy}")
    wanted = model.model_copy(update={"backprop_gaze": found.model.backprop_gaze})  # affects only training
    if found.model == wanted:
        return found
    differ = ", ".join(differences("model", found.model, wanted))
    raise UserError(f"{path}: does not match the configuration's model section: {differ}; {remedy}")


def import_published(path: Path | str, model: Model) -> DTED:
    """Load a published network of the given sizes from a file with a state dictionary.

    The dictionary may be under "state_dict" or "model", and its keys may begin with `module.`. Raise a UserError if the
    file cannot be read, or if tensors are missing, unknown or of the wrong shape; they are listed.
    """
    content = read_mapping(path)
    for key in ("state_dict", "model"):
        if isinstance(content.get(key), Mapping):
            content = content[key]
    return _load_weights(path, {str(key).removeprefix("module."): value for key, value in content.items()}, model)


def _load_weights(path: Path | str, state: Mapping[str, Tensor], model: Model) -> DTED:
    dted = DTED(model)
    try:
        dted.load_state_dict(state)
    except RuntimeError as error:  # lists every tensor that does not match, each on its own line
        listed = " ".join(str(error).split())
        raise UserError(f"{path}: the weights do not match the configuration's model section: {listed}") from None
    return dted


def network_hash(dted: DTED) -> str:
    """Return a hash (16 hex digits) of the encoder and gaze head; networks with equal hashes compute equal codes."""
    digest = hashlib.sha256()
    for name, parameter in dted.named_parameters():
        if part_of(name) != "decoder":
            digest.update(parameter.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def save_weights(path: Path | str, dted: DTED) -> None:
    """Write a checkpoint that contains only weights: every stage can use it, but training cannot resume from it."""
    write_mapping(path, {"format": FORMAT, "model": dict(dted.state_dict())} | description(dted))


def description(dted: DTED) -> dict[str, dict[str, object]]:
    """Return the entries of a checkpoint that describe the network."""
    camera = {"camera": dted.camera.model_dump()} if dted.camera else {}
    return {"model_config": dted.model.model_dump()} | camera


def differences(section: str, found: Model | NormalizedCamera, wanted: Model | NormalizedCamera) -> list[str]:
    """Describe each value in a checkpoint that differs from its counterpart in a section of the configuration."""
    theirs = found.model_dump()
    return [
        f"{section}.{key} is {theirs[key]} in the checkpoint, not {value}"
        for key, value in wanted.model_dump().items()
        if theirs[key] != value
    ]
