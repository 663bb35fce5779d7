"""Reading strips, in the layout of `faze.data.store.strip_layout`."""

import contextlib
import hashlib
import itertools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import ArrayLike, NDArray

from faze.base.errors import DamagedFile, UserError
from faze.base.output_cache import content
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
    open_file,
)
from faze.data.store.strip_layout import BY_SAMPLE, VALIDITIES, VERSION, cut, fault_of


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
                self.dataset = check_schema(self._file, self._path, "strips", VERSION)
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
            yield from cut(self._group(person)["pixels"])

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
        """Identify people by what the file holds of them; by the whole file where checksums lack."""
        checked = all(self._attribute(person, "checksum") for split in splits for person in self.persons(split))
        return (*map(self.digest, splits), None if checked else content(self._path))

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
