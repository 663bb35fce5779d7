"""Ways to damage files, for tests that the damage is detected."""

from pathlib import Path

import h5py
import numpy as np


def add_nobody(store: Path, person: str) -> None:
    """Add a test person without strips to a store of strips, which faze itself would never write."""
    with h5py.File(store, "r+") as file:
        group = file.create_group(person)
        group["pixels"], group["labels"] = np.zeros((0, 64, 256, 3), np.uint8), np.zeros((0, 4), np.float32)
        group.attrs["split"] = np.bytes_("test")
