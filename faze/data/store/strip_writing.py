"""Writing strips, in the layout of `faze.data.store.strip_layout`."""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from faze.data.store.layout import ORIGINS, as_text, checksum_of, encoded, new_group, put_text, whole_store
from faze.data.store.strip_layout import VALIDITIES, VERSION, cut


@dataclass(frozen=True, eq=False)
class PersonStrips:
    """The normalised strips of one person: pixels (N, H, W, 3) uint8 RGB, labels (N, 4) radians, N source names."""

    person_id: str
    split: str
    file_names: list[str] | None  # None where they are not known
    pixels: NDArray[np.uint8] | Iterable[NDArray[np.uint8]]  # one array, or pieces (n, H, W, 3)
    labels: NDArray[np.float32]
    device: str = ""
    frame_index: NDArray[np.int64] | None = None  # (N,) positions in the person's annotation; None: 0 .. N - 1
    origin: NDArray[np.uint8] | None = None  # (N,) positions in ORIGINS; None: all `stored`
    validity: NDArray[np.uint8] | None = None  # (N,) positions in VALIDITIES; None: all `unknown_screen`


def write_strips(path: Path | str, dataset: str, persons: Iterable[PersonStrips], size: int = 0) -> None:
    """Write strips person by person as they come; the file appears when all are in, a UserError if there is none.

    Args:
        path: of the file.
        dataset: its name.
        persons: as they come.
        size: bytes that are taken from the disk beforehand (see `size_of`), so that a full disk is known at once.
    """
    with whole_store(path, "strips", dataset, size) as file:
        file.attrs["schema_version"] = VERSION
        file.attrs["origins"], file.attrs["validities"] = encoded(ORIGINS), encoded(VALIDITIES)
        for person in persons:
            _write_person(new_group(file, person.person_id, person.split), person)


def size_of(pixel_bytes: int, strips: int, people: int) -> int:
    """Count at least as many bytes as a file takes, with labels, file names of usual length, and what HDF5 adds."""
    return pixel_bytes + 512 * strips + 2**15 * (people + 1)


def _write_person(group: h5py.Group, person: PersonStrips) -> None:
    count = len(person.labels)
    assert count > 0, person.person_id
    labels = np.ascontiguousarray(person.labels, np.float32)
    by_sample = {} if person.file_names is None else {"file_name": encoded(person.file_names)}
    defaults = {
        "frame_index": np.arange(count, dtype=np.int64),
        "origin": np.full(count, ORIGINS.index("stored"), np.uint8),
        "validity": np.full(count, VALIDITIES.index("unknown_screen"), np.uint8),
    }
    for name, default in defaults.items():
        given = getattr(person, name)
        by_sample[name] = default if given is None else np.asarray(given, default.dtype)
    checksum = zlib.crc32(labels, _write_pixels(group, person.pixels, count))
    group.create_dataset("labels", data=labels)
    for name, array in by_sample.items():
        assert array.shape == (count,), (person.person_id, name)
        group.create_dataset(name, data=array)
    of_samples = checksum_of([person.person_id, person.split, person.device], sorted(by_sample.items()))
    put_text(group, device=person.device, checksum=as_text(checksum), checksum_of_samples=of_samples)


def _write_pixels(group: h5py.Group, pixels: NDArray[np.uint8] | Iterable[NDArray[np.uint8]], count: int) -> int:
    """Write a person's pixels piece by piece; returns their CRC."""
    pieces = cut(pixels) if isinstance(pixels, np.ndarray) else pixels
    stored, written, checksum = None, 0, 0
    for piece in pieces:
        if stored is None:
            # Without chunks: training reads single strips in random order, in 50 us each. With lzf a strip takes 140 us
            # in chunks of one strip and 1300 us in chunks of 16, and saves 0 to 6 % of noisy images, 20 % of rendered.
            stored = group.create_dataset("pixels", (count, *piece.shape[1:]), np.uint8)
        piece = np.ascontiguousarray(piece)
        stored[written : written + len(piece)] = piece
        # CRC-32 runs at 5.2 GB/s; blake2b, which would also resist a forger, at 1.0.
        written, checksum = written + len(piece), zlib.crc32(piece, checksum)
    assert written == count, (group.name, written, count)
    return checksum
