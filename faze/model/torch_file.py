"""Files that torch writes: tensors and plain values under names."""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch

from faze.base.errors import UserError
from faze.base.files import whole_file


def write_mapping(path: Path | str, content: Mapping[str, object]) -> None:
    """Write a mapping, whole or not at all. In memory first: torch makes a RuntimeError of a disk that is full."""
    memory = io.BytesIO()
    torch.save(content, memory)
    with whole_file(path) as temporary:
        temporary.write_bytes(memory.getbuffer())


def read_mapping(path: Path | str, map_location: torch.device | str = "cpu") -> Mapping[str, object]:
    """Read the mapping in a torch file; only tensors and plain values are unpickled, never code.

    Raises:
        UserError: the file is missing, torn or foreign.
    """
    try:
        _check_sums(path)
        content = torch.load(path, map_location=map_location, weights_only=True)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError:
        raise
    except Exception as error:  # the unpickler fails on foreign bytes with whatever error they lead it to
        reason = str(error).strip().split("\n")[0] or "it ends too early"
        raise UserError(f"{path}: no whole torch file of plain tensors ({reason}); write or fetch it again") from None
    if not isinstance(content, Mapping):
        raise UserError(f"{path}: holds no mapping of names to tensors")
    return content


def _check_sums(path: Path | str) -> None:
    """Compare all bytes with the CRC-32 that torch writes and does not read; files of before torch 1.6 are no zips."""
    with open(path, "rb") as file:
        if file.read(2) != b"PK":
            return
        with zipfile.ZipFile(file) as archive:  # of one that was cut torch may say "Invalid argument", without its name
            damaged = archive.testzip()
    if damaged:
        raise ValueError(f"its part {damaged} is not what was written")
