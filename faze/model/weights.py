"""DT-ED checkpoints: faze's own and published state dictionaries.

A faze checkpoint contains {"format": 1, "model": state dictionary, "model_config": the model section, "camera": the
virtual camera of its strips, ...}. The remaining entries, such as the optimiser state and the random state, are only
read when training resumes. The keys and shapes of the weights are those of the published checkpoint.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor

from faze.base.errors import UserError
from faze.config.parameters import Model, NormalizedCamera
from faze.model.dted import DTED, part_of
from faze.model.torch_file import read_mapping, write_mapping

FORMAT = 1
MOST_FAULTS = 100  # in a message; a network has 51 tensors


def load_model(path: Path | str, map_location: torch.device | str = "cpu") -> DTED:
    """Load the trained DT-ED from a checkpoint and put it in evaluation mode.

    Raises:
        UserError: the file is missing, corrupt or not a faze checkpoint, or its weights do not match the sizes stored
            in it.
    """
    content = read_mapping(path, map_location)
    if content.get("format") != FORMAT:
        raise UserError(
            f"{path}: not a faze checkpoint of format {FORMAT}; to import a published one, run: faze import-checkpoint"
        )
    for key in ("model", "model_config"):
        if not isinstance(content.get(key), Mapping):
            raise UserError(f"{path}: contains no {key}; train again")
    try:
        model = Model(**content["model_config"])
        camera = NormalizedCamera(**content["camera"]) if "camera" in content else None
    except (ValidationError, TypeError) as error:
        raise UserError(f"{path}: {error}") from None
    dted = _fill(path, content["model"], model).to(map_location).eval()
    dted.camera = camera
    return dted


def import_published(path: Path | str, model: Model) -> DTED:
    """Load a published checkpoint; every tensor must match.

    Args:
        path: a state dictionary, at the top level or under "state_dict" or "model", with or without `module.` before
            its keys.
        model: the sizes of the published network.

    Raises:
        UserError: the file cannot be read, or tensors are missing, unknown, misshapen or not finite; the message lists
            them.
    """
    content = read_mapping(path, "cpu")
    for key in ("state_dict", "model"):
        if isinstance(content.get(key), Mapping):
            content = content[key]
    return _fill(path, content, model)


def network_hash(dted: DTED) -> str:
    """Hash encoder and gaze head (16 hex digits): networks with the same hash compute the same codes and gaze."""
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


def strict_state(path: Path | str, state: Mapping[str, Tensor], model: Model) -> dict[str, Tensor]:
    """Check a state dictionary against the model; return it as float32, without the prefix `module.` in its keys.

    Raises:
        UserError: tensors are missing, unknown, of another shape or not finite; the message lists them.
    """
    if not all(isinstance(key, str) for key in state):
        raise UserError(f"{path}: the keys of its weights are not text; train again")
    if all(key.startswith("module.") for key in state):
        state = {key.removeprefix("module."): value for key, value in state.items()}
    expected = _described(path, model).state_dict()
    faults = list(_faults(state, expected))
    if faults:
        listed = [fault[:200] for fault in faults[:MOST_FAULTS]]
        listed += [f"and {len(faults) - MOST_FAULTS} more"] if len(faults) > MOST_FAULTS else []
        raise UserError(f"{path}: the weights do not fit the model section of the configuration: {'; '.join(listed)}")
    return {key: state[key].float() for key in expected}


def check_same_model(path: Path | str, found: Model, wanted: Model) -> None:
    """Check that the model section of a checkpoint is the configured one.

    Raises:
        UserError: they differ; the message lists each key with both values.
    """
    if found != wanted:
        differing = "; ".join(differences("model", found, wanted))
        raise UserError(f"{path}: its model differs from the configuration: {differing}; train again")


def differences(section: str, found: Model | NormalizedCamera, wanted: Model | NormalizedCamera) -> list[str]:
    """Describe each value of a checkpoint that differs from that in a section of the configuration."""
    theirs = found.model_dump()
    return [
        f"{section}.{key} is {theirs[key]} in the checkpoint, not {value}"
        for key, value in wanted.model_dump().items()
        if theirs[key] != value
    ]


def _faults(state: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> Iterator[str]:
    for key, tensor in wanted.items():
        if key not in state:
            yield f"{key} is missing"
        elif not isinstance(state[key], Tensor) or not state[key].is_floating_point():
            yield f"{key} is not a tensor of floating-point numbers"
        elif state[key].shape != tensor.shape:
            yield f"{key} has shape {tuple(state[key].shape)}, not {tuple(tensor.shape)}"
        elif not state[key].isfinite().all():
            yield f"{key} contains nan or infinity"
    for key in state:
        if key not in wanted:
            yield f"{key} is unknown"


def _fill(path: Path | str, state: Mapping[str, Tensor], model: Model) -> DTED:
    state = strict_state(path, state, model)
    dted = _described(path, model)
    dted.load_state_dict(state, strict=True, assign=True)
    return dted


def _described(path: Path | str, model: Model) -> DTED:
    """Build a network on the meta device, which allocates no memory, whatever the sizes in the file."""
    try:
        with torch.device("meta"):
            return DTED(model)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except (RuntimeError, OverflowError, TypeError):  # torch counts bytes in 64 bits
        raise UserError(f"{path}: contains impossible network sizes; train again") from None
