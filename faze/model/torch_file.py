"""Torch files that contain mappings from names to tensors and plain values."""

import io
import pickle
from collections.abc import Mapping
from pathlib import Path

import torch

from faze.base.errors import UserError
from faze.base.files import reading, whole_file


def write_mapping(path: Path | str, content: Mapping[str, object]) -> None:
    """Write a mapping atomically; serialise it in memory first, since torch.save raises RuntimeError on a full disk."""
    memory = io.BytesIO()
    torch.save(content, memory)
    with whole_file(path) as temporary:
        temporary.write_bytes(memory.getbuffer())


def read_mapping(path: Path | str, map_location: torch.device | str = "cpu") -> Mapping[str, object]:
    """Read the mapping in a torch file; only tensors and plain values are unpickled, never code.

    Raise a UserError if the file is missing or corrupt, or contains other objects.
    """
    with reading(path):
        try:
            content = torch.load(path, map_location=map_location, weights_only=True)
        except (pickle.UnpicklingError, LookupError, EOFError):  # torch's message recommends running the file's code
            raise ValueError("it is not a torch file, or contains more than tensors and plain values") from None
    if not isinstance(content, Mapping) or not all(isinstance(key, str) for key in content):
        raise UserError(f"{path}: does not contain a mapping from names to tensors")
    return content
