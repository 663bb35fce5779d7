"""The layout of strips, schema version 2.

The file's attributes: schema `strips`, schema_version, dataset, and the names `origins` and `validities`, to whose
positions the samples refer. A person's attributes: split, device (the camera), checksum (over pixels, then labels) and
checksum_of_samples (over name, split, device and the arrays by sample).
A person's arrays, by sample: pixels (H, W, 3) uint8 RGB; labels: gaze pitch, yaw, head pitch, yaw, float32 rad;
file_name (bytes), frame_index int64, origin uint8, validity uint8.

Read too: version 1, which has of these file_name at most, and the released code's files of pixels and labels alone.
"""

import contextlib
import hashlib
import itertools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import ArrayLike, NDArray

from faze.base.errors import DamagedFile, UserError
from faze.base.made_once import same_file
from faze.data.store.foreign import text_attribute, understood
from faze.data.store.layout import (
    DAMAGED,
    ORIGINS,
    PersonGroups,
    as_text,
    check_schema,
    checksum_of,
    decoded,
    decoded_attribute,
    encoded,
    new_group,
    open_file,
    put_text,
    whole_store,
)
from faze.data.store.strip_layout import BY_SAMPLE, PIECE, fault_of

_VERSION = 2
VALIDITIES = ("valid", "off_screen", "unknown_screen")  # valid: the gaze target lies on the screen


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
        file.attrs["schema_version"] = _VERSION
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
    pieces = _cut(pixels) if isinstance(pixels, np.ndarray) else pixels
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


def _cut(pixels: NDArray[np.uint8] | h5py.Dataset) -> Iterator[NDArray[np.uint8]]:
    for first in range(0, len(pixels), PIECE):
        yield pixels[first : first + PIECE]


class StripStore(PersonGroups, contextlib.AbstractContextManager["StripStore"]):
    """A file of strips, open for reading. Loader processes may inherit it (HDF5 reads by position) or unpickle it."""

    def __init__(self, path: Path | str, tolerant: bool = False) -> None:
        """Open and check a file.

        Args:
            path: written by faze or by the released code.
            tolerant: leave out people who are not of this layout, and say in `faults` why.

        Raises:
            UserError: the file is missing, torn or not of this layout; the sentence names file and person.
        """
        super().__init__(path, "train")
        self._tolerant = tolerant
        self.faults: dict[str, str] = {}  # by person
        self._file = open_file(self._path)
        try:
            with understood(self._path, "the people"):
                self.dataset = check_schema(self._file, self._path, "strips", _VERSION)
                for person in self._file:
                    self._take(person)
        except UserError:
            self._file.close()
            raise

    def _take(self, person: str) -> None:
        """Take a person in, or say why not."""
        try:
            with understood(self._path, f"person {person:.100}"):
                fault = fault_of(self._file, person, "" if self._tolerant else f" of person {person:.100}")
        except UserError as error:
            fault = str(error).removeprefix(f"{self._path}: ")
        if fault and not self._tolerant:
            raise UserError(f"{self._path}: {fault}")
        if fault:
            self.faults[person.encode("utf-8", "backslashreplace").decode()] = fault
        else:
            self._read_split(person, self._file[person])

    def count(self, person: str) -> int:
        """Count the strips of a person."""
        return len(self._group(person)["labels"])

    def pixels(self, person: str, index: int | slice | ArrayLike = slice(None)) -> NDArray[np.uint8]:
        """Read strips as uint8 RGB.

        Args:
            person: whose.
            index: one position -> (H, W, 3); a slice or positions in any order, repeated or not -> (n, H, W, 3).
        """
        pixels = self._group(person)["pixels"]
        if isinstance(index, slice):
            with self._reading("pixels", person):
                return pixels[index]
        wanted = np.arange(len(pixels))[index]  # negative positions, masks and range errors as in numpy
        with self._reading("pixels", person):
            if wanted.ndim == 0:
                return pixels[int(wanted)]
            strips = np.empty((len(wanted), *pixels.shape[1:]), np.uint8)
            for row, position in enumerate(wanted):  # h5py's own list selection is slower and needs sorted positions
                pixels.read_direct(strips, np.s_[int(position)], np.s_[row])
            return strips

    def size(self, person: str) -> tuple[int, int]:
        """Return height and width of a person's strips, px."""
        return self._group(person)["pixels"].shape[1:3]

    def states_split(self, person: str) -> bool:
        """Tell whether the file itself says which split a person belongs to."""
        return "split" in self._group(person).attrs

    def pieces(self, person: str) -> Iterator[NDArray[np.uint8]]:
        """Read all of a person's strips in order, (n, H, W, 3) at a time: 12 MiB of strips of 64 x 256 px."""
        with self._reading("pixels", person):
            yield from _cut(self._group(person)["pixels"])

    def location(self, person: str) -> tuple[int, int] | None:
        """Tell where in the file a person's strips lie, one after the other, for those who read the bytes themselves.

        Returns:
            byte offset of the first strip and bytes of each; None where HDF5 has to put them together (chunks, lzf).
        """
        pixels = self._group(person)["pixels"]
        if pixels.id.get_create_plist().get_layout() != h5py.h5d.CONTIGUOUS:
            return None
        offset = pixels.id.get_offset()
        return None if offset is None else (offset, int(np.prod(pixels.shape[1:])))

    def labels(self, person: str) -> NDArray[np.float32]:
        """Read (N, 4) gaze pitch, yaw, head pitch, yaw in radians."""
        with self._reading("labels", person):
            return self._group(person)["labels"][:].astype(np.float32, copy=False)

    def digest(self, split: str) -> str:
        """Identify the people of a split: 16 hex digits over names, labels and, where the file has them, checksums."""
        digest = hashlib.sha256()
        for person in self.persons(split):
            digest.update(person.encode() + b" " + self._identity(person))
        return digest.hexdigest()[:16]

    def identity(self, *splits: str) -> tuple:
        """Identify people by what the file holds of them; where checksums lack, by when it was written, too."""
        checked = all(self._attribute(person, "checksum") for split in splits for person in self.persons(split))
        return (*map(self.digest, splits), None if checked else same_file(self._path))

    def person_digest(self, person: str) -> str:
        """Identify a person whatever the name: 16 hex digits over labels and, where the file has it, the checksum."""
        return hashlib.sha256(self._identity(person)).hexdigest()[:16]

    def _identity(self, person: str) -> bytes:
        checksum = self._attribute(person, "checksum")
        return f"{self.count(person)} {checksum}\n".encode() + self.labels(person).tobytes()

    def file_names(self, person: str) -> list[str] | None:
        """Read the source frames' names, relative to the raw folder; None where the file has none."""
        group = self._group(person)
        with self._reading("file_name", person):
            return decoded(group["file_name"]) if "file_name" in group else None

    def device(self, person: str) -> str:
        """Name the camera that recorded a person, as the data set calls it; "" where the file states none."""
        return self._attribute(person, "device")

    def frame_index(self, person: str) -> NDArray[np.int64]:
        """Read (N,) positions of the samples in the person's annotation; 0 .. N - 1 where the file states none."""
        group = self._group(person)
        with self._reading("frame_index", person):
            return group["frame_index"][:] if "frame_index" in group else np.arange(self.count(person), dtype=np.int64)

    def origins(self, person: str) -> NDArray[np.str_]:
        """Read (N,) where each sample's labels come from, of ORIGINS; `stored` where the file does not say."""
        return self._named(person, "origin", "origins", ORIGINS)

    def validity(self, person: str) -> NDArray[np.str_]:
        """Read (N,) whether targets lie on the screen, of VALIDITIES; `unknown_screen` where the file does not say."""
        return self._named(person, "validity", "validities", VALIDITIES)

    def _named(self, person: str, name: str, names: str, meanings: Sequence[str]) -> NDArray[np.str_]:
        group = self._group(person)
        if name not in group:
            return np.full(self.count(person), meanings[-1])
        with self._reading(name, person):
            positions, known = group[name][:], np.array(decoded_attribute(self._file.attrs, names), np.str_)
        if len(positions) and positions.max() >= len(known):
            raise UserError(
                f"{self._path}: {name} of person {person} has position {positions.max()} among {len(known)} {names}; "
                "write the file again"
            )
        if unknown := set(known[positions].tolist()) - set(meanings):
            raise UserError(
                f"{self._path}: {name} of person {person} is {min(unknown)!a:.100}, which has no meaning here"
            )
        return known[positions]

    def verify(self, person: str) -> bool | None:
        """Tell by checksum whether a person is as it was written; None where there is no checksum."""
        group, stated = self._group(person), self._attribute(person, "checksum")
        if not stated.startswith("crc32:"):
            return None
        checksum = 0
        for piece in itertools.chain(self.pieces(person), [self.labels(person)]):
            checksum = zlib.crc32(np.ascontiguousarray(piece), checksum)
        by_sample = sorted((name, group[name][:]) for name in BY_SAMPLE if name in group)
        found = checksum_of([person, self.split(person), self.device(person)], by_sample)
        return stated == as_text(checksum) and text_attribute(group.attrs, "checksum_of_samples", found) == found

    def check(self, persons: Iterable[str]) -> None:
        """Read everything of these people once, and refuse what is no longer as it was written.

        Raises:
            UserError: naming the file and the first who is damaged.
        """
        for person in persons:
            with understood(self._path, f"what it holds of person {person}"):
                if self.verify(person) is False:
                    raise DamagedFile(f"{self._path}: what it holds of person {person} {DAMAGED}")

    def _group(self, person: str) -> h5py.Group:
        self.split(person)  # of a person who was taken in
        return self._file[person]

    def _attribute(self, person: str, name: str) -> str:
        with self._reading(name, person):
            return text_attribute(self._group(person).attrs, name, "")

    def _reading(self, what: str, person: str) -> contextlib.AbstractContextManager[None]:
        return understood(self._path, f"{what} of person {person}")

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __reduce__(self) -> tuple[type["StripStore"], tuple[Path, bool]]:
        return StripStore, (self._path, self._tolerant)
