"""The layout of codes, which the encoder computes from each strip.

Files of codes have additional attributes: `pixel_source` of their strips, and the layers of the gaze head that computed
gaze_hat, under their names in the checkpoint: `gaze1.weight` (H, 3 G), `gaze1.bias` (H,), `gaze2.weight` (3, H) and
`gaze2.bias` (3,). Each person has the attribute `checksum`, which is computed over name, split and arrays.
"""

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.untrusted import untrusted
from faze.data.store.layout import (
    UNKNOWN_SOURCE,
    PersonGroups,
    check_schema,
    check_sum,
    checksum_of,
    group_of,
    new_array,
    new_group,
    open_file,
    put_text,
    text_attribute,
    whole_store,
)

_NEEDED_CODES = ("z_gaze", "gaze", "gaze_hat")
_TAILS = {"gaze": (2,), "head": (2,), "gaze_hat": (3,)}  # shapes of one entry
GAZE_HEAD = ("gaze1.weight", "gaze1.bias", "gaze2.weight", "gaze2.bias")


def write_codes(
    path: Path | str,
    dataset: str,
    persons: Iterable[tuple[str, str, Mapping[str, NDArray]]],
    gaze_head: Mapping[str, NDArray] | None = None,
    pixel_source: str = UNKNOWN_SOURCE,
    checkpoint: str = "",
) -> None:
    """Write codes as float32, person by person; the file appears once all people are written.

    Args:
        path: Path of the file.
        dataset: Id of the data set.
        persons: Name, split and arrays (by name) of each person.
        gaze_head: The arrays GAZE_HEAD of the gaze head that computed gaze_hat.
        pixel_source: source of the strips' pixels (`StripStore.pixel_source`).
        checkpoint: Hash of the network (`faze.model.weights.network_hash`); "" if unknown.

    Raises:
        UserError: There are no people to write.
    """
    with whole_store(path, "codes", dataset=dataset, pixel_source=pixel_source, checkpoint=checkpoint) as file:
        for name, array in (gaze_head or {}).items():
            file.attrs[name] = np.asarray(array, np.float32)
        for person, split, arrays in persons:
            assert len({len(array) for array in arrays.values()}) == 1, person
            arrays = {name: np.asarray(array, np.float32) for name, array in sorted(arrays.items())}
            group = new_group(file, person, split)
            for name, array in arrays.items():
                new_array(group, name, array)
            put_text(group, checksum=checksum_of([person, split], arrays.items()))


class CodeStore(PersonGroups):
    """The codes in a file, ours or the released code's; codes[person] reads one person's arrays."""

    def __init__(self, path: Path | str, default_split: str = "train") -> None:
        """Open and check a file, as `StripStore` does.

        Raises:
            UserError: The file is missing, truncated or in another layout; the message names file and person.
        """
        super().__init__(path, default_split)
        with open_file(path) as file, untrusted(path, "the list of people"):
            self.dataset = check_schema(file, self._path, "codes")
            self.pixel_source = text_attribute(file.attrs, "pixel_source", UNKNOWN_SOURCE)
            self.checkpoint = text_attribute(file.attrs, "checkpoint", "")  # hash of the network; "" if unknown
            # The released code's files have no gaze head.
            has_head = all(name in file.attrs for name in GAZE_HEAD)
            self.gaze_head = _check_layers({name: file.attrs[name] for name in GAZE_HEAD}, path) if has_head else None
            for person in file:
                self._check_person(file, person)

    def _check_person(self, file: h5py.File, person: str) -> None:
        group = group_of(file, self._path, person, _NEEDED_CODES)
        group_of(file, self._path, person, group)  # all other arrays
        self._read_split(person, group)
        shapes = {name: array.shape for name, array in group.items()}
        counts = {name: shape[0] if shape else 1 for name, shape in shapes.items()}
        if len(set(counts.values())) != 1:
            raise UserError(f"{self._path}: the arrays of person {person} have different lengths: {counts}")
        wrong = [name for name, tail in _TAILS.items() if name in shapes and shapes[name][1:] != tail]
        if len(shapes["z_gaze"]) != 3 or shapes["z_gaze"][2] != 3:
            wrong.append("z_gaze")
        if wrong:
            raise UserError(
                f"{self._path}: {wrong[0]} of person {person} has shape {shapes[wrong[0]]}: run encode again"
            )

    def __getitem__(self, person: str) -> dict[str, NDArray]:
        with open_file(self._path) as file, untrusted(self._path, f"person {person}"):
            group = group_of(file, self._path, person)
            arrays = {name: array[:] for name, array in sorted(group.items())}
            found = checksum_of([person, self.split(person)], arrays.items())
            check_sum(group, found, self._path, f"the data of person {person}")
            return arrays


def _check_layers(found: Mapping[str, NDArray], path: Path | str) -> dict[str, NDArray]:
    """Check that the shapes of a gaze head's layers fit together."""
    layers = {name: np.asarray(value) for name, value in found.items()}
    hidden = len(layers["gaze1.bias"].ravel())
    inputs = layers["gaze1.weight"].size // max(hidden, 1)
    wanted = dict(zip(GAZE_HEAD, ((hidden, inputs), (hidden,), (3, hidden), (3,)), strict=True))
    for name, layer in layers.items():
        if layer.shape != wanted[name] or layer.dtype.kind != "f":
            raise UserError(
                f"{path}: {name} is {layer.dtype} {layer.shape}, not float {wanted[name]}: run encode again"
            )
    return layers


def read_all(path: str) -> None:
    """Read all codes in a file; ignore data that CodeStore refuses. `read_isolated` calls this for foreign files."""
    with contextlib.suppress(UserError):
        codes = CodeStore(path)
        for person in codes.persons():
            with contextlib.suppress(UserError):
                codes[person]
