"""Stores of made-up strips."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class PersonStrips:
    """The strips of one person: pixels (N, H, W, 3) uint8 RGB, labels (N, 4) rad."""

    person_id: str
    split: str
    pixels: NDArray[np.uint8]
    labels: NDArray[np.float32]


def write_strips(path: Path, dataset: str, people: Iterable[PersonStrips], pixel_source: str = "unknown") -> None:
    """Write a store with what training needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file.attrs.update({"dataset": dataset, "pixel_source": pixel_source})
        for person in people:
            group = file.create_group(person.person_id)
            group["pixels"], group["labels"] = person.pixels, person.labels
            group.attrs["split"] = person.split
