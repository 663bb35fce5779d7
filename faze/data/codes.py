"""The store of codes that the encoder computes from strips: one group per person (docs/reference/formats.md)."""

import io
from collections.abc import Iterable, Mapping
from pathlib import Path

import h5py
from numpy.typing import NDArray

from faze.base.files import reading, whole_file
from faze.data.strips import UNKNOWN_SOURCE

GAZE_HEAD = ("gaze1.weight", "gaze1.bias", "gaze2.weight", "gaze2.bias")


def write_codes(
    path: Path,
    dataset: str,
    persons: Iterable[tuple[str, str, Mapping[str, NDArray]]],
    gaze_head: Mapping[str, NDArray] | None = None,
    pixel_source: str = UNKNOWN_SOURCE,
    checkpoint: str = "",
) -> None:
    """Write a store with each person's name, split and arrays (codes and labels), and with the file's attributes."""
    content = io.BytesIO()  # HDF5 crashes if it cannot write to the disk
    with h5py.File(content, "w") as file:
        file.attrs.update({"dataset": dataset, "pixel_source": pixel_source, "checkpoint": checkpoint})
        file.attrs.update(gaze_head or {})
        for person, split, arrays in persons:
            group = file.create_group(person)
            group.attrs["split"] = split
            group.update(arrays)
    with whole_file(path) as temporary:
        temporary.write_bytes(content.getbuffer())


class CodeStore:
    """A store of codes; `store[person]` returns one person's codes and labels as arrays by name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with reading(path), h5py.File(path, locking=False) as file:
            self.dataset, self.pixel_source = file.attrs["dataset"], file.attrs["pixel_source"]
            self.checkpoint = file.attrs["checkpoint"]
            self.gaze_head = {name: file.attrs[name] for name in GAZE_HEAD if name in file.attrs}
            self.splits = {name: file[name].attrs["split"] for name in sorted(file)}

    def persons(self, split: str | None = None) -> list[str]:
        """Return the sorted names of the people in one split, or in all splits."""
        return [name for name, of_person in self.splits.items() if split in (None, of_person)]

    def __getitem__(self, person: str) -> dict[str, NDArray]:
        with h5py.File(self._path, locking=False) as file:
            return {name: array[:] for name, array in file[person].items()}
