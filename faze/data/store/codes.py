"""The layout of codes, which the encoder computes from each strip.

Files of codes have additional attributes: `pixel_source` of their strips, and the layers of the gaze head that computed
gaze_hat, under their names in the checkpoint: `gaze1.weight` (H, 3 G), `gaze1.bias` (H,), `gaze2.weight` (3, H) and
`gaze2.bias` (3,).
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.data.store.layout import (
    UNKNOWN_SOURCE,
    PersonGroups,
    check_schema,
    group_of,
    new_array,
    new_group,
    open_file,
    text_attribute,
    whole_store,
)

_NEEDED_CODES = ("z_gaze", "gaze", "gaze_hat")
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
            group = new_group(file, person, split)
            for name, array in sorted(arrays.items()):
                new_array(group, name, np.asarray(array, np.float32))


class CodeStore(PersonGroups):
    """The codes in a file, ours or the released code's; codes[person] reads one person's arrays."""

    def __init__(self, path: Path | str, default_split: str = "train") -> None:
        """Open and check a file, as `StripStore` does.

        Raises:
            UserError: The file is missing, truncated or in another layout; the message names file and person.
        """
        super().__init__(path, default_split)
        with open_file(path) as file:
            self.dataset = check_schema(file, self._path, "codes")
            self.pixel_source = text_attribute(file.attrs, "pixel_source", UNKNOWN_SOURCE)
            self.checkpoint = text_attribute(file.attrs, "checkpoint", "")  # hash of the network; "" if unknown
            # The released code's files have no gaze head.
            has_head = all(name in file.attrs for name in GAZE_HEAD)
            self.gaze_head = {name: np.asarray(file.attrs[name]) for name in GAZE_HEAD} if has_head else None
            for person in file:
                self._read_split(person, group_of(file, self._path, person, _NEEDED_CODES))

    def __getitem__(self, person: str) -> dict[str, NDArray]:
        with open_file(self._path) as file:
            return {name: array[:] for name, array in sorted(file[person].items())}
