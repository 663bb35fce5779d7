"""The layout of codes: what the network says of each strip.

Of a file of codes, the attributes `gaze1.weight` (H, 3 G), `gaze1.bias` (H,), `gaze2.weight` (3, H), `gaze2.bias` (3,)
are the layers of the gaze head that made gaze_hat, under their names in the checkpoint; an addition of ours.
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.data.store.foreign import understood
from faze.data.store.layout import PersonGroups, check_schema, group_of, new_array, new_group, open_file, whole_store

_NEEDED_CODES = ("z_gaze", "gaze", "gaze_hat")
_TAILS = {"gaze": (2,), "head": (2,), "gaze_hat": (3,)}  # shapes of one entry
GAZE_HEAD = ("gaze1.weight", "gaze1.bias", "gaze2.weight", "gaze2.bias")


def write_codes(
    path: Path | str,
    dataset: str,
    persons: Iterable[tuple[str, str, Mapping[str, NDArray]]],
    gaze_head: Mapping[str, NDArray] | None = None,
) -> None:
    """Write (person, split, arrays by name) as float32; the file appears when all are in, a UserError if none is.

    Args:
        path: of the file.
        dataset: its name.
        persons: as they come.
        gaze_head: what made gaze_hat, the arrays GAZE_HEAD.
    """
    with whole_store(path, "codes", dataset) as file:
        for name, array in (gaze_head or {}).items():
            file.attrs[name] = np.asarray(array, np.float32)
        for person, split, arrays in persons:
            assert len({len(array) for array in arrays.values()}) == 1, person
            group = new_group(file, person, split)
            for name, array in arrays.items():
                new_array(group, name, np.asarray(array, np.float32))


class CodeStore(PersonGroups):
    """The codes in a file, ours or the released code's; codes[person] reads one person's arrays."""

    def __init__(self, path: Path | str, default_split: str = "train") -> None:
        """Open and check a file, as `StripStore` does.

        Raises:
            UserError: the file is missing, torn or not of this layout; the sentence names file and person.
        """
        super().__init__(path, default_split)
        with open_file(path) as file, understood(path, "the people"):
            self.dataset = check_schema(file, self._path, "codes")
            # None: the released code's files, and those of people with no such network.
            has_head = all(name in file.attrs for name in GAZE_HEAD)
            self.gaze_head = _layers({name: file.attrs[name] for name in GAZE_HEAD}, path) if has_head else None
            for person in file:
                self._read_person(file, person)

    def _read_person(self, file: h5py.File, person: str) -> None:
        group = group_of(file, self._path, person, _NEEDED_CODES)
        group_of(file, self._path, person, group)  # whatever else there is
        self._read_split(person, group)
        shapes = {name: array.shape for name, array in group.items()}
        counts = {name: shape[0] if shape else 1 for name, shape in shapes.items()}
        if len(set(counts.values())) != 1:
            raise UserError(f"{self._path}: the codes of person {person} differ in number: {counts}")
        wrong = [name for name, tail in _TAILS.items() if name in shapes and shapes[name][1:] != tail]
        if len(shapes["z_gaze"]) != 3 or shapes["z_gaze"][2] != 3:
            wrong.append("z_gaze")
        if wrong:
            raise UserError(f"{self._path}: {wrong[0]} of person {person} has shape {shapes[wrong[0]]}: encode again")

    @property
    def checkpoint(self) -> str:
        """Hash of the trained gaze head, which tells checkpoints apart; "" where the file holds no gaze head."""
        layers = (self.gaze_head or {}).values()
        return hashlib.sha256(b"".join(layer.tobytes() for layer in layers)).hexdigest()[:16] if layers else ""

    def __getitem__(self, person: str) -> dict[str, NDArray]:
        with open_file(self._path) as file, understood(self._path, f"person {person}"):
            return {name: array[:] for name, array in group_of(file, self._path, person).items()}


def _layers(found: Mapping[str, NDArray], path: Path | str) -> dict[str, NDArray]:
    """Check the layers of a gaze head against each other."""
    layers = {name: np.asarray(value) for name, value in found.items()}
    hidden = len(layers["gaze1.bias"].ravel())
    inputs = layers["gaze1.weight"].size // max(hidden, 1)
    wanted = dict(zip(GAZE_HEAD, ((hidden, inputs), (hidden,), (3, hidden), (3,)), strict=True))
    for name, layer in layers.items():
        if layer.shape != wanted[name] or layer.dtype.kind != "f":
            raise UserError(f"{path}: {name} is {layer.dtype} {layer.shape}, not float {wanted[name]}: encode again")
    return layers
