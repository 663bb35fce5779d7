"""Write the store of eye strips, which training reads, and the list of rejects (docs/reference/formats.md)."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.files import reading, whole_file
from faze.config.stage_config import Resolved
from faze.data.preparation.splits import NO_SPLIT, split_rule
from faze.data.strips import UNKNOWN_SOURCE

# Some strips of one person: `pixels` and PER_STRIP, with a row per strip; `about`: split, device and label source;
# `rejects` (n, 2): file names and reasons.
Part = Mapping[str, NDArray]
PER_STRIP = ("labels", "file_name", "frame_index")


def write_store(out: Path, rejects: Path, people: Iterable[tuple[str, Sequence[Part]]], size: int, **about: str) -> str:
    """Write the strips and rejects of `people`, given as (name, parts) of `size` bytes in total; return a summary.

    `about` contains the store's attributes. If there are no strips, a UserError gives the main reasons for rejection.
    """
    strips, rejected = 0, []
    with _whole_hdf5(out, size) as file:
        file.attrs.update(about)
        for name, parts in people:
            strips += _write_person(file, name, parts)
            rejected += [(name, *reject) for part in parts for reject in part["rejects"]]
        table, used = pd.DataFrame(rejected, columns=["person", "file_name", "reason"]), len(file)
        if not strips:
            most = table["reason"].value_counts().head(3)
            common = "; ".join(f"{reason} ({times} times)" for reason, times in most.items())
            raise UserError(f"{about['dataset']}: no frame is usable: {common}")
    with whole_file(rejects) as temporary:
        table.to_csv(temporary, index=False, errors="backslashreplace")
    return f"{strips} strips of {used} people; {len(table)} rejects"


@contextlib.contextmanager
def _whole_hdf5(path: Path, size: int) -> Iterator[h5py.File]:
    """Yield a new HDF5 file with space for `size` bytes, and rename it to `path` if the block succeeds."""
    # A strip of 64 x 256 px occupies 12 pages of memory if the first strip starts a page, and 13 otherwise.
    how = {"alignment_threshold": 1 << 20, "alignment_interval": 4096, "libver": ("v108", "v108")}
    with whole_file(path) as temporary:
        with h5py.File(temporary, "w", locking=False, **how) as file:
            with temporary.open("r+b") as reserved:  # HDF5 crashes when it closes a file that it cannot write
                os.posix_fallocate(reserved.fileno(), 0, size + (4 << 20))  # each person adds about 700 bytes
            yield file
            file.flush()
            written = file.id.get_filesize()
        os.truncate(temporary, written)


def _write_person(file: h5py.File, name: str, parts: Sequence[Part]) -> int:
    """Write a person's strips, if any, and return their number."""
    arrays = {key: np.concatenate([part[key] for part in parts]) for key in PER_STRIP}
    count = len(arrays["labels"])
    if not count:
        return 0
    group = file.create_group(name)
    group.attrs.update(zip(("split", "device", "label_source"), parts[0]["about"].tolist(), strict=True))
    # Not chunked: training reads single strips in random order.
    stored, row = group.create_dataset("pixels", (count, *parts[0]["pixels"].shape[1:]), np.uint8), 0
    for part in parts:
        pixels = part["pixels"]
        for start in range(0, len(pixels), 2000):  # all pixels of a copied store may not fit into memory
            piece = pixels[start : start + 2000]
            stored[row : row + len(piece)] = piece
            row += len(piece)
    group.update(arrays)
    return count


def copy_strips(config: Resolved, raw: Path, out: Path, rejects: Path) -> str:
    """Copy a file of strips, written by faze or by FAZE's released code, to a store; refuse any other file."""
    split_of, shape = split_rule(config.dataset.splits), (config.preprocess.height_px, config.preprocess.width_px, 3)
    with reading(raw, "each person must be a group with pixels (N, H, W, 3) uint8 and labels (N, 4) in radians"):
        file = h5py.File(raw)
        size = sum(group["pixels"].nbytes for group in file.values())  # uncompressed
        people = []
        for name, group in sorted(file.items()):
            people.append((name, [_part_of(group, split_of(name, _text(group, "split")), shape)]))
    with file:
        source = _text(file, "pixel_source", UNKNOWN_SOURCE)
        return write_store(out, rejects, people, size, dataset=config.dataset.name, pixel_source=source)


def _text(item: h5py.Group, name: str, default: str = "") -> str:
    return np.asarray(item.attrs.get(name, default)).astype(str).item()  # other programs may have written bytes


def _part_of(group: h5py.Group, split: str, shape: tuple[int, int, int]) -> Part:
    """Return a person's strips, or none if the split is unknown; refuse strips whose shape differs from `shape`."""
    pixels, labels = group["pixels"], group["labels"][:].astype(np.float32)
    count = len(labels)
    if pixels.shape != (count, *shape) or pixels.dtype != np.uint8:
        found = f"{group.file.filename}: the pixels of {group.name[1:]} are {pixels.dtype} {pixels.shape}"
        raise UserError(f"{found}, not uint8 {(count, *shape)} as configured")
    own = {"file_name": np.full(count, b""), "frame_index": np.arange(count)}
    own |= {"pixels": pixels, "labels": labels} | {key: group[key][:] for key in own if key in group}
    return {
        **{key: array if split else array[:0] for key, array in own.items()},
        "about": np.array([split, _text(group, "device"), _text(group, "label_source", "stored")]),
        "rejects": np.array([] if split else [["", NO_SPLIT]]).reshape(-1, 2),
    }
