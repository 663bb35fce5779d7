"""The layout of strip files, and the code that writes and reads them.

Attributes of the file: schema `strips`, schema_version, dataset, pixel_source (source of the pixels: `rendered by
faze`, the layout of the raw data set, or `unknown`), and the lists of names `label_sources` and `validities`, into
which the samples index. Attributes of a person: split, device (the camera) and checksum (over pixels, then labels), by
which training recognises its data.
Per-sample arrays of a person: pixels (H, W, 3) uint8 RGB; labels: gaze pitch, yaw, head pitch, yaw, float32 rad;
file_name (bytes), frame_index int64, label_source uint8, validity uint8.

Files from the released code, which contain only pixels and labels, can be read too.
"""

import contextlib
import hashlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import ArrayLike, NDArray

from faze.base.errors import UserError
from faze.config.parameters import Fold
from faze.data.store.layout import (
    LABEL_SOURCES,
    UNKNOWN_SOURCE,
    PersonGroups,
    array_fault,
    check_schema,
    decoded,
    encoded,
    new_group,
    open_file,
    put_text,
    text_attribute,
    whole_store,
)

VERSION = 2
VALIDITIES = ("valid", "off_screen", "unknown_screen")  # valid: the gaze target is on the screen
PIECE = 256  # strips that are read or written at once: 12 MiB


def fault_of(file: h5py.File, person: str) -> str:
    """Explain how a person's data deviate from this layout; return "" if they do not."""
    group = file[person]
    if not isinstance(group, h5py.Group):
        return "not a group of arrays"
    if fault := array_fault(group, "pixels") or array_fault(group, "labels", "f"):
        return fault
    pixels, labels = group["pixels"], group["labels"]
    if pixels.ndim != 4 or pixels.shape[3] != 3 or pixels.dtype != np.uint8 or 0 in pixels.shape[1:]:
        return f"pixels are {pixels.dtype} {pixels.shape}, not uint8 (N, H, W, 3)"
    if labels.shape != (len(pixels), 4):
        return f"labels have shape {labels.shape}, not ({len(pixels)}, 4)"
    return ""


def cut(pixels: NDArray[np.uint8] | h5py.Dataset) -> Iterator[NDArray[np.uint8]]:
    """Yield strips (N, H, W, 3) piece by piece."""
    for first in range(0, len(pixels), PIECE):
        yield pixels[first : first + PIECE]


@dataclass(frozen=True, eq=False)
class PersonStrips:
    """The normalised strips of one person: pixels (N, H, W, 3) uint8 RGB, labels (N, 4) radians, N file names."""

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
    """Write strips, person by person; the file appears once all people are written.

    Args:
        path: Path of the file.
        dataset: Id of the data set.
        persons: People to write.
        size: Bytes to reserve on the disk in advance (see `size_of`), so that a full disk is detected early.
        pixel_source: RENDERED, the layout of the raw data set, or UNKNOWN_SOURCE.

    Raises:
        UserError: There are no people to write.
    """
    with whole_store(path, "strips", size, dataset=dataset, pixel_source=pixel_source) as file:
        file.attrs["schema_version"] = VERSION
        file.attrs["label_sources"], file.attrs["validities"] = encoded(LABEL_SOURCES), encoded(VALIDITIES)
        for person in persons:
            _write_person(new_group(file, person.person_id, person.split), person)


def size_of(pixel_bytes: int, strips: int, people: int) -> int:
    """Return an upper bound on a file's size in bytes, including labels, HDF5 metadata and typical file names."""
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
    put_text(group, device=person.device, checksum=f"crc32:{checksum:08x}")


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


class StripStore(PersonGroups, contextlib.AbstractContextManager["StripStore"]):
    """A file of strips, open for reading. Loader processes may inherit it (HDF5 reads by position) or unpickle it."""

    def __init__(self, path: Path | str, fold: Fold | None = None) -> None:
        """Open and check a file.

        Args:
            path: Path of the file, written by faze or by the released code.
            fold: Take the splits from this fold instead of the file.

        Raises:
            UserError: The file is missing, truncated or in another layout; the message names the file and the person.
        """
        super().__init__(path, "train")
        self._fold = fold
        self._file = open_file(self._path)
        self.dataset = check_schema(self._file, self._path, "strips")
        self.pixel_source = text_attribute(self._file.attrs, "pixel_source", UNKNOWN_SOURCE)
        for person in self._file:
            if fault := fault_of(self._file, person):
                raise UserError(f"{self._path}: person {person}: {fault}")
            self._read_split(person, self._file[person])
        self._assign_splits()

    def _assign_splits(self) -> None:
        """Replace the splits by those of the fold, if there is one: people are in the folds in turn, sorted by name."""
        if not self._fold:
            return
        number, folds = self._fold.number, self._fold.folds
        if len(self._splits) < folds:
            raise UserError(f"{self._path}: {len(self._splits)} people cannot be in {folds} folds: lower `folds`")
        of_fold = {number: "test", (number + 1) % folds: "val"}
        self._splits = {p: of_fold.get(i % folds, "train") for i, p in enumerate(sorted(self._splits))}

    def count(self, person: str) -> int:
        """Count the strips of a person."""
        return len(self._group(person)["labels"])

    def pixels(self, person: str, index: int | slice | ArrayLike = slice(None)) -> NDArray[np.uint8]:
        """Read strips as uint8 RGB.

        Args:
            person: Name of the person.
            index: One index -> (H, W, 3); a slice, or indices in any order, possibly repeated -> (n, H, W, 3).
        """
        pixels = self._group(person)["pixels"]
        if isinstance(index, slice):
            return pixels[index]
        wanted = np.arange(len(pixels))[index]  # handles negative positions, masks and range errors as numpy does
        if wanted.ndim == 0:
            return pixels[int(wanted)]
        strips = np.empty((len(wanted), *pixels.shape[1:]), np.uint8)
        for row, position in enumerate(wanted):  # h5py's own list selection is slower and needs sorted positions
            pixels.read_direct(strips, np.s_[int(position)], np.s_[row])
        return strips

    def size(self, person: str) -> tuple[int, int]:
        """Return the height and width of a person's strips, px."""
        return self._group(person)["pixels"].shape[1:3]

    def states_split(self, person: str) -> bool:
        """Return whether the file specifies a person's split."""
        return "split" in self._group(person).attrs

    def pieces(self, person: str) -> Iterator[NDArray[np.uint8]]:
        """Read all of a person's strips in order, in pieces (n, H, W, 3): 12 MiB each for strips of 64 x 256 px."""
        yield from cut(self._group(person)["pixels"])

    def location(self, person: str) -> tuple[int, int]:
        """Locate a person's contiguous strips in the file, for callers that read the bytes themselves.

        Returns:
            Byte offset of the first strip, and the size of each strip in bytes.

        Raises:
            UserError: The strips are chunked or compressed.
        """
        pixels = self._group(person)["pixels"]
        if (offset := pixels.id.get_offset()) is None:
            raise UserError(
                f"{self._path}: the strips of person {person} are compressed or in chunks: copy the file with "
                "preprocess, as a data set with the layout strips"
            )
        return offset, int(np.prod(pixels.shape[1:]))

    def labels(self, person: str) -> NDArray[np.float32]:
        """Read (N, 4) gaze pitch, yaw, head pitch, yaw in radians."""
        return self._group(person)["labels"][:].astype(np.float32, copy=False)

    def identity(self, *splits: str) -> tuple[str, ...]:
        """Return a key that identifies the people in each split by their names, labels and checksums."""
        digests = []
        for split in splits:
            digest = hashlib.sha256()
            for person in self.persons(split):
                digest.update(person.encode() + b" " + self._identity(person))
            digests.append(digest.hexdigest()[:16])
        return tuple(digests)

    def person_digest(self, person: str) -> str:
        """Hash a person's data without the name: 16 hex digits over the labels and any stored checksum."""
        return hashlib.sha256(self._identity(person)).hexdigest()[:16]

    def _identity(self, person: str) -> bytes:
        checksum = text_attribute(self._group(person).attrs, "checksum", "")
        return f"{self.count(person)} {checksum}\n".encode() + self.labels(person).tobytes()

    def file_names(self, person: str) -> list[str] | None:
        """Read the source frames' file names, relative to the raw folder; return None if none are stored."""
        group = self._group(person)
        return decoded(group["file_name"]) if "file_name" in group else None

    def device(self, person: str) -> str:
        """Return the data set's name for the camera that recorded a person; "" if the file contains none."""
        return text_attribute(self._group(person).attrs, "device", "")

    def frame_index(self, person: str) -> NDArray[np.int64]:
        """Read (N,) indices of the samples in the person's annotation; 0 .. N - 1 if the file contains none."""
        group = self._group(person)
        return group["frame_index"][:] if "frame_index" in group else np.arange(self.count(person), dtype=np.int64)

    def label_sources(self, person: str) -> NDArray[np.str_]:
        """Read (N,) sources of the labels, from LABEL_SOURCES; `stored` if the file does not contain them."""
        return self._named(person, "label_source", "label_sources", LABEL_SOURCES)

    def validity(self, person: str) -> NDArray[np.str_]:
        """Read (N,) validities, from VALIDITIES: whether targets are on the screen; `unknown_screen` if not stored."""
        return self._named(person, "validity", "validities", VALIDITIES)

    def _named(self, person: str, name: str, names: str, meanings: Sequence[str]) -> NDArray[np.str_]:
        group = self._group(person)
        if name not in group:
            return np.full(self.count(person), meanings[-1])
        return np.array(decoded(self._file.attrs[names]), np.str_)[group[name][:]]

    def _group(self, person: str) -> h5py.Group:
        self.split(person)  # refuses a person who was left out
        return self._file[person]

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __reduce__(self) -> tuple[type["StripStore"], tuple[Path, Fold | None]]:
        return StripStore, (self._path, self._fold)
