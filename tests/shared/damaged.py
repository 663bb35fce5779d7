"""Ways to damage files, for tests that the damage is detected."""

from pathlib import Path

import h5py
import numpy as np


def flip(path: Path, within: bytes) -> None:
    """Flip a bit in the middle of a byte sequence that the file contains."""
    content = bytearray(path.read_bytes())
    place = content.index(within) + len(within) // 2
    content[place] ^= 1 << 3
    path.write_bytes(content)


def cut(path: Path, size: int) -> None:
    """Leave only the first bytes of a file."""
    path.write_bytes(path.read_bytes()[:size])


def add_nobody(store: Path, person: str) -> None:
    """Add a test person without strips to a store of strips, which faze itself would never write."""
    with h5py.File(store, "r+") as file:
        group = file.create_group(person)
        group["pixels"], group["labels"] = np.zeros((0, 64, 256, 3), np.uint8), np.zeros((0, 4), np.float32)
        group.attrs["split"] = np.bytes_("test")
