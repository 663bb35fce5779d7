"""Write the store of eye strips, which training reads, and the list of rejects.

A group per person: pixels (N, H, W, 3) uint8 RGB; labels (N, 4) float32: gaze pitch, yaw, head pitch, yaw, rad;
file_name (N, bytes); frame_index (N,) in the person's annotation; validity (N,), an index into the file's attribute
`validities`: whether the gaze target is on the screen. Attributes of a person: split, device, label_source; of the
file: dataset, pixel_source. The released code reads the pixels and labels.
"""

import contextlib
import csv
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.files import reading, whole_file
from faze.config.stage_config import Resolved
from faze.data.preparation.splits import NO_SPLIT, SplitRule, split_rule
from faze.data.strips import UNKNOWN_SOURCE

_OVERHEAD = 4 << 20  # bytes of the store besides its arrays, at most: about 700 a person
_PAGE, _LARGE = 4096, 1 << 20  # large arrays begin at a page: a strip of 64 x 256 px then occupies 12 pages, not 13
_LARGEST_RAD = np.array([np.pi / 2, np.pi, np.pi / 2, np.pi]) + 1e-3  # pitch, yaw of the gaze, then of the head
_REMEDY = "each person must be a group of pixels (N, H, W, 3) uint8 and labels (N, 4) in radians"
VALIDITIES = ("valid", "off_screen", "unknown_screen")  # valid: the gaze target is on the screen
PIECE = 2000  # strips that are copied at once
# Some strips of one person: pixels and PER_STRIP, with a row per strip; about: split, device and source of the labels;
# rejects (n, 2): file names and reasons.
Part = Mapping[str, NDArray]
PER_STRIP = ("labels", "file_name", "frame_index", "validity")


def write_store(out: Path, rejects: Path, people: Iterable[tuple[str, list[Part]]], size: int, **about: str) -> str:
    """Write the store and the rejects, person by person, and describe them.

    Args:
        out: Path of the store.
        rejects: Path of the list of rejects.
        people: Name and parts of each person.
        size: Bytes of all parts.
        about: Attributes of the store: dataset and pixel_source.

    Raises:
        UserError: No person has a strip; the message contains the most frequent reasons.
    """
    reasons: Counter[str] = Counter()
    strips = 0
    with (
        whole_file(rejects) as temporary,
        temporary.open("w", newline="", encoding="utf-8", errors="backslashreplace") as listed,
        _whole_hdf5(out, size) as file,
    ):
        table = csv.writer(listed, lineterminator="\n")
        table.writerow(("person", "file_name", "reason"))
        file.attrs.update({**about, "validities": VALIDITIES})
        for name, parts in people:
            found = np.concatenate([part["rejects"] for part in parts])
            table.writerows((name, *reject) for reject in found)
            reasons.update(found[:, 1])
            strips += _write_person(file, name, parts)
        if not strips:
            common = "; ".join(f"{reason} ({times} times)" for reason, times in reasons.most_common(3))
            raise UserError(f"{about['dataset']}: no frame is usable: {common}")
        return f"{strips} strips of {len(file)} people; {reasons.total()} rejects"


@contextlib.contextmanager
def _whole_hdf5(path: Path, size: int) -> Iterator[h5py.File]:
    """Yield a new file to fill with `size` bytes; it appears under its name once the block succeeds."""
    how = {"alignment_threshold": _LARGE, "alignment_interval": _PAGE, "libver": ("v108", "v108")}
    with whole_file(path) as temporary:
        with h5py.File(temporary, "w", locking=False, **how) as file:
            with temporary.open("r+b") as reserved:  # HDF5 crashes when it closes a file that it cannot write
                os.posix_fallocate(reserved.fileno(), 0, size + _OVERHEAD)
            yield file
            file.flush()
            written = file.id.get_filesize()
        os.truncate(temporary, written)


def _write_person(file: h5py.File, name: str, parts: list[Part]) -> int:
    """Write a person's strips, if there are any, and return their number."""
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
        for start in range(0, len(pixels), PIECE):
            piece = pixels[start : start + PIECE]
            stored[row : row + len(piece)] = piece
            row += len(piece)
    for key, array in arrays.items():
        group[key] = array
    return count


def copy_strips(config: Resolved, raw: Path, out: Path, rejects: Path) -> str:
    """Copy a file of strips, of faze or of the released code, to a store.

    Raises:
        UserError: The file is damaged, or no person can be used.
    """
    split_of, settings = split_rule(config.dataset.splits), config.preprocess
    shape = (settings.height_px, settings.width_px, 3)
    with reading(raw, _REMEDY), h5py.File(raw) as file:
        source = _text(file.attrs, "pixel_source", UNKNOWN_SOURCE)
        size = sum(group["pixels"].nbytes for group in file.values())  # without compression

    def people() -> Iterator[tuple[str, list[Part]]]:
        with reading(raw, _REMEDY), h5py.File(raw) as file:
            for name in sorted(file):
                yield name, [_part_of(file[name], name, split_of, shape)]

    return write_store(out, rejects, people(), size, dataset=config.dataset.name, pixel_source=source)


def _part_of(group: h5py.Group, name: str, split_of: SplitRule, shape: tuple[int, int, int]) -> Part:
    """Return a person's strips, or the reason why they cannot be used."""
    pixels, labels = group["pixels"], group["labels"][:].astype(np.float32)
    count, split = len(labels), split_of(name, _text(group.attrs, "split", ""))
    reason = "" if split else NO_SPLIT
    if pixels.shape != (count, *shape) or pixels.dtype != np.uint8:
        reason = f"pixels are {pixels.dtype} {pixels.shape}, not uint8 {(count, *shape)} as configured"
    elif not (np.abs(labels) <= _LARGEST_RAD).all():
        reason = "labels are not pitch and yaw in radians: convert them from degrees"
    own = {
        "file_name": np.full(count, b""),
        "frame_index": np.arange(count),
        "validity": np.full(count, VALIDITIES.index("unknown_screen"), np.uint8),
    }
    own |= {key: group[key][:] for key in own if key in group}
    device, source = _text(group.attrs, "device", ""), _text(group.attrs, "label_source", "stored")
    found = {"pixels": pixels, "labels": labels, **own}
    return {
        **{key: array[:0] if reason else array for key, array in found.items()},
        "about": np.array([split, device, source]),
        "rejects": np.array([["", reason]] if reason else []).reshape(-1, 2),
    }


def _text(attributes: h5py.AttributeManager, name: str, default: str) -> str:
    """Read an attribute that is str in one writer's files and bytes in another's."""
    value = attributes.get(name, default)
    return value.decode() if isinstance(value, bytes) else str(value)
