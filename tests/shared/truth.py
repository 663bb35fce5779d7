"""The ground truth of synthetic people, which no stage reads."""

from pathlib import Path

import h5py
from numpy.typing import NDArray


def read_truth(path: Path) -> dict[str, dict[str, NDArray]]:
    """Read all arrays by person and name."""
    with h5py.File(path) as file:
        return {person: {name: array[()] for name, array in file[person].items()} for person in sorted(file)}
