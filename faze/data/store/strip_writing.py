"""The layout of strips, and writing them.

Attributes of the file: schema `strips`, schema_version, dataset, pixel_source (who made the pixels: `rendered by faze`,
the layout of the raw data set, or `unknown`), and the lists of names `label_sources` and `validities`, to whose
positions the samples refer. Attributes of a person: split, device (the camera), checksum (over pixels, then labels) and
checksum_of_samples (over name, split, device and the arrays by sample).
Arrays of a person, by sample: pixels (H, W, 3) uint8 RGB; labels: gaze pitch, yaw, head pitch, yaw, float32 rad;
file_name (bytes), frame_index int64, label_source uint8, validity uint8.

Files of the released code have pixels and labels alone; they are read, too.
"""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from faze.data.store.layout import (
    LABEL_SOURCES,
    SPLITS,
    UNKNOWN_SOURCE,
    array_fault,
    as_text,
    checksum_of,
    encoded,
    group_fault,
    new_group,
    put_text,
    text_attribute,
    whole_store,
)

VERSION = 2
VALIDITIES = ("valid", "off_screen", "unknown_screen")  # valid: the gaze target is on the screen
PIECE = 256  # strips that are read or written at once: 12 MiB
BY_SAMPLE = {"file_name": "SO", "frame_index": "iu", "label_source": "u", "validity": "u"}  # kinds of numpy's types


def fault_of(file: h5py.File, person: str, of: str) -> str:
    """Explain what of a person is not of this layout; return "" if everything is.

    `of` names the person in the sentence.
    """
    if fault := group_fault(file, person):
        return f"{fault}{of}"
    group = file[person]
    if fault := array_fault(group, "pixels") or array_fault(group, "labels", "f"):
        return f"{fault}{of}"
    pixels, labels = group["pixels"], group["labels"]
    if pixels.ndim != 4 or pixels.shape[3] != 3 or pixels.dtype != np.uint8 or 0 in pixels.shape[1:]:
        return f"pixels{of} are {pixels.dtype} {pixels.shape}, not uint8 (N, H, W, 3)"
    if labels.shape != (len(pixels), 4):
        return f"labels{of} have shape {labels.shape}, not ({len(pixels)}, 4)"
    for name, kinds in BY_SAMPLE.items():
        if name in group and (fault := array_fault(group, name, kinds)):
            return f"{fault}{of}"
        if name in group and group[name].shape != (len(pixels),):
            return f"{name}{of} has shape {group[name].shape}, not ({len(pixels)},): one per strip"
    if (split := text_attribute(group.attrs, "split", "train")) not in SPLITS:
        return f"split {split!r}{of} is not in {SPLITS}"
    return ""


def cut(pixels: NDArray[np.uint8] | h5py.Dataset) -> Iterator[NDArray[np.uint8]]:
    """Yield strips (N, H, W, 3) piece by piece."""
    for first in range(0, len(pixels), PIECE):
        yield pixels[first : first + PIECE]


@dataclass(frozen=True, eq=False)
class PersonStrips:
    """The normalised strips of one person: pixels (N, H, W, 3) uint8 RGB, labels (N, 4) radians, N source names."""

    person_id: str
    split: str
    file_names: list[str] | None  # None if they are not known
    pixels: NDArray[np.uint8] | Iterable[NDArray[np.uint8]]  # one array, or pieces (n, H, W, 3)
    labels: NDArray[np.float32]
    device: str = ""
    frame_index: NDArray[np.int64] | None = None  # (N,) positions in the person's annotation; None: 0 .. N - 1
    label_source: NDArray[np.uint8] | None = None  # (N,) positions in LABEL_SOURCES; None: all `stored`
    validity: NDArray[np.uint8] | None = None  # (N,) positions in VALIDITIES; None: all `unknown_screen`


def write_strips(
    path: Path | str,
    dataset: str,
    persons: Iterable[PersonStrips],
    size: int = 0,
    pixel_source: str = UNKNOWN_SOURCE,
) -> None:
    """Write strips, person by person; the file appears when everybody is written.

    Args:
        path: Path of the file.
        dataset: Id of the data set.
        persons: People to write.
        size: Bytes to reserve on the disk beforehand (see `size_of`), so that a full disk is noticed at once.
        pixel_source: RENDERED, the layout of the raw data set, or UNKNOWN_SOURCE.

    Raises:
        UserError: There is nobody to write.
    """
    with whole_store(path, "strips", size, dataset=dataset, pixel_source=pixel_source) as file:
        file.attrs["schema_version"] = VERSION
        file.attrs["label_sources"], file.attrs["validities"] = encoded(LABEL_SOURCES), encoded(VALIDITIES)
        for person in persons:
            _write_person(new_group(file, person.person_id, person.split), person)


def size_of(pixel_bytes: int, strips: int, people: int) -> int:
    """Return an upper bound of a file's bytes, with labels, file names of usual length, and metadata of HDF5."""
    return pixel_bytes + 512 * strips + 2**15 * (people + 1)


def _write_person(group: h5py.Group, person: PersonStrips) -> None:
    count = len(person.labels)
    assert count > 0, person.person_id
    labels = np.ascontiguousarray(person.labels, np.float32)
    by_sample = {} if person.file_names is None else {"file_name": encoded(person.file_names)}
    defaults = {
        "frame_index": np.arange(count, dtype=np.int64),
        "label_source": np.full(count, LABEL_SOURCES.index("stored"), np.uint8),
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
    """Write a person's pixels piece by piece, and return their CRC-32."""
    pieces = cut(pixels) if isinstance(pixels, np.ndarray) else pixels
    stored, written, checksum = None, 0, 0
    for piece in pieces:
        if stored is None:
            # Not chunked: training reads single strips in random order, at 50 us each. With lzf, it is 140 us in chunks
            # of one strip and 1300 us in chunks of 16; lzf saves 0 to 6 % of noisy images, 20 % of rendered ones.
            stored = group.create_dataset("pixels", (count, *piece.shape[1:]), np.uint8)
        piece = np.ascontiguousarray(piece)
        stored[written : written + len(piece)] = piece
        # CRC-32 runs at 5.2 GB/s; blake2b, which would also resist a forger, at 1.0.
        written, checksum = written + len(piece), zlib.crc32(piece, checksum)
    assert written == count, (group.name, written, count)
    return checksum
