"""Finished shards of strips in a folder next to the output, from which a killed preprocessing run resumes.

A shard contains the strips of at most 256 frames of a person, as two files: the raw strips (n x H x W x 3 bytes), and
an npz of labels, names and rejects. The npz is written last: a shard that has one is finished.
"""

import contextlib
import csv
import errno
import itertools
import json
import math
import os
import shutil
import sys
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.data.readers import Reject
from faze.data.store.strips import PersonStrips

ENTRIES = 256  # of a shard, at most: a killed run loses a second of work; a shard takes 12 MiB of memory
COLUMNS = ("person", "file_name", "reason")  # of the list of rejects
ARRAYS = ("labels", "frame_index", "label_source", "validity")  # of a shard: one row per strip
Prepared = tuple[PersonStrips | None, list[Reject]]  # of one person; None if there is no strip


@dataclass(frozen=True)
class Shard:
    """The entries `start` to `stop` (exclusive) of a person's annotation."""

    person_id: str
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def name(self) -> str:
        """The stem of the shard's file names; the person's name is quoted, so that no path leads out of the folder."""
        return f"p-{quote(self.person_id, safe='')}.{self.start:06d}-{self.stop:06d}"


@dataclass(frozen=True, eq=False)
class ShardContent:
    """The content of a shard except for its pixels: n strips, and the rejects."""

    split: str  # "" if there is no strip
    device: str
    file_names: list[str]
    labels: NDArray[np.float32]  # (n, 4) rad
    frame_index: NDArray[np.int64]  # (n,)
    label_source: NDArray[np.uint8]  # (n,)
    validity: NDArray[np.uint8]  # (n,)
    rejects: list[Reject]


class ShardFolder:
    """The shards of one output that were made in the same way, as identified by the key."""

    def __init__(self, out: Path, key: str, strip: tuple[int, int, int]) -> None:
        """Locate an output's shards, given a key (a hash of everything that determines them) and a strip's shape."""
        self._all = out.parent / f".work.{out.name}"  # a name that no lock mistakes for an unfinished file
        self.path = self._all / key
        self._strip = strip

    def begin(self) -> None:
        """Create the folder, and remove shards that were made in another way."""
        for folder in set(self._all.glob("*")) - {self.path}:
            print(f"{folder}: discarding shards made from other data, settings or code", file=sys.stderr)
            shutil.rmtree(folder)
        self.path.mkdir(parents=True, exist_ok=True)

    def is_finished(self, shard: Shard) -> bool:
        """Return whether both of a shard's files are complete; after a power cut, one may be empty."""
        try:
            strips = len(self.load(shard).labels)
            return self._file(shard, "strips").stat().st_size == strips * math.prod(self._strip)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile):
            return False

    def remove(self) -> None:
        """Remove all shards."""
        shutil.rmtree(self._all, ignore_errors=True)

    def size(self) -> int:
        """Count the bytes of all strips."""
        return sum(path.stat().st_size for path in self.path.glob("*.strips"))

    def write(self, shard: Shard, content: ShardContent, pixels: NDArray[np.uint8], rows: Sequence[int]) -> None:
        """Write a shard with the given rows of `pixels`; `rows` is in ascending order."""
        torn = self.path / f"{shard.name}.{os.getpid()}.torn"
        try:
            with torn.open("wb") as file:
                for first, last in _runs(rows):
                    file.write(pixels[first:last])
            torn.replace(self._file(shard, "strips"))
            text = {
                "split": content.split,
                "device": content.device,
                "file_names": content.file_names,
                "rejects": [(reject.person_id, reject.file_name, reject.reason) for reject in content.rejects],
            }
            arrays = {name: getattr(content, name) for name in ARRAYS}
            with torn.open("wb") as file:
                np.savez(file, text=np.frombuffer(json.dumps(text).encode(), np.uint8), **arrays)
            torn.replace(self._file(shard, "npz"))
        finally:
            torn.unlink(missing_ok=True)

    def load(self, shard: Shard) -> ShardContent:
        """Load a shard without its pixels."""
        with np.load(self._file(shard, "npz")) as file:
            text = json.loads(file["text"].tobytes())
            text["rejects"] = [Reject(*reject) for reject in text["rejects"]]
            return ShardContent(**text, **{name: file[name] for name in ARRAYS})

    def pixels(self, shard: Shard) -> NDArray[np.uint8]:
        """Load a shard's strips, (n, H, W, 3)."""
        return np.fromfile(self._file(shard, "strips"), np.uint8).reshape(-1, *self._strip)

    def _file(self, shard: Shard, kind: str) -> Path:
        return self.path / f"{shard.name}.{kind}"


def _runs(rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Group ascending rows into slices that can be written without a copy: [0, 1, 2, 5, 6] -> (0, 3), (5, 7)."""
    for _, run in itertools.groupby(enumerate(rows), lambda pair: pair[1] - pair[0]):
        members = [row for _, row in run]
        yield members[0], members[-1] + 1


def join_shards(people: dict[str, list[Shard]], folder: ShardFolder) -> Iterator[Prepared]:
    """Join each person's shards; only the strips of one shard are in memory at a time."""
    for person, shards in people.items():
        contents = [folder.load(shard) for shard in shards]
        rejects = [reject for content in contents for reject in content.rejects]
        used = [(shard, content) for shard, content in zip(shards, contents, strict=True) if content.file_names]
        if not used:
            yield None, rejects or [Reject(person, "", "no annotated frame")]
            continue
        first = used[0][1]
        arrays = {name: np.concatenate([getattr(content, name) for _, content in used]) for name in ARRAYS}
        names = [name for _, content in used for name in content.file_names]
        pixels = map(folder.pixels, [shard for shard, _ in used])
        yield PersonStrips(person, first.split, names, pixels, device=first.device, **arrays), rejects


class NothingUsable(UserError):
    """No person has a strip."""


class RejectWriter:
    """Write the list of rejects while people pass through, and count people and strips."""

    def __init__(self, file: TextIO) -> None:
        """Write the header to a text file that was opened with newline=''."""
        self._rows = csv.writer(file, lineterminator="\n")
        self._rows.writerow(COLUMNS)
        self._reasons: Counter[str] = Counter()
        self._people = self._strips = 0

    def usable(self, people: Iterable[Prepared], raw: object) -> Iterator[PersonStrips]:
        """Pass through the people who have strips.

        Raises:
            NothingUsable: No person has any; the message contains the most frequent reasons.
        """
        for strips, rejects in people:
            for reject in rejects:
                self._rows.writerow([reject.person_id, reject.file_name, reject.reason])
                self._reasons[reject.reason] += 1
            if strips:
                self._people += 1
                self._strips += len(strips.labels)
                yield strips
        if not self._people:
            reasons = "; ".join(f"{reason} ({count} times)" for reason, count in self._reasons.most_common(3))
            raise NothingUsable(f"{raw}: no frame is usable: {reasons or 'it contains no people'}")

    def __str__(self) -> str:
        return f"{self._strips} strips of {self._people} people; {self._reasons.total()} rejects"


@contextlib.contextmanager
def disk_may_fill(folder: Path) -> Iterator[None]:
    """Convert a disk-full error, raised by the system or wrapped in an HDF5 error, into a one-sentence message."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        full = getattr(error, "errno", None) == errno.ENOSPC or f"errno = {errno.ENOSPC}," in str(error)
        if not full:
            raise
        raise UserError(
            f"{folder}: no space left on the disk: free some space and run the same command again; finished shards "
            "are kept, and no output is incomplete"
        ) from None
