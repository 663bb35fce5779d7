"""Finished blocks of strips in a folder beside the output, whole or absent each: what a killed preprocessing keeps.

A block is two files: its strips as they are (n x H x W x 3 bytes), and an npz of labels, names and rejects. The npz is
written second: a block that has one is finished.
"""

import contextlib
import itertools
import json
import os
import shutil
import sys
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.data.readers import Reject

ENTRIES = 256  # of a block, at most: a killed run loses a second of work; a block takes 12 MiB of memory
ARRAYS = ("labels", "frame_index", "origin", "validity")  # of a block: one row per strip


@dataclass(frozen=True)
class Block:
    """The entries from start to before stop in a person's annotation."""

    person_id: str
    start: int
    stop: int
    stamp: str = ""  # of the files that the person was read from

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def name(self) -> str:
        """The stem of its files' names; no person's name leads out of their folder."""
        return f"p-{quote(self.person_id, safe='')}.{self.start:06d}-{self.stop:06d}.{self.stamp}"


@dataclass(frozen=True, eq=False)
class Made:
    """What became of a block besides its pixels: n strips, and the rejects."""

    split: str  # "" where there is no strip
    device: str
    file_names: list[str]
    labels: NDArray[np.float32]  # (n, 4) rad
    frame_index: NDArray[np.int64]  # (n,)
    origin: NDArray[np.uint8]  # (n,)
    validity: NDArray[np.uint8]  # (n,)
    rejects: list[Reject]
    checksum: int = 0  # of the pixels, once they are written


class DamagedBlock(UserError):
    """A block is not what was written."""


class BlockFolder:
    """The blocks of one output that were made in one way, which its key names."""

    def __init__(self, out: Path, key: str, strip: tuple[int, int, int]) -> None:
        """Args: out: output of the preprocessing. key: names all that decides what blocks hold. strip: (H, W, 3)."""
        self._all = out.parent / f".work.{out.name}"  # no output's lock takes it for a torn file of that output
        self.path = self._all / key
        self._strip = strip

    def begin(self, blocks: Collection[Block]) -> frozenset[str]:
        """Make the folder, and remove whatever is not one of these blocks made in this way.

        Returns:
            names of the blocks that are finished.
        """
        others = [folder for folder in self._all.glob("*") if folder != self.path]
        if others:
            print(f"{self._all}: blocks made from other data, settings or code are discarded", file=sys.stderr)
        for folder in others:
            shutil.rmtree(folder, ignore_errors=True)
        self.path.mkdir(parents=True, exist_ok=True)
        wanted = {self._file(block, kind) for block in blocks for kind in ("strips", "npz")}
        for path in set(self.path.iterdir()) - wanted:
            path.unlink(missing_ok=True)
        return frozenset(path.stem for path in self.path.glob("*.npz"))

    def remove(self) -> None:
        """Remove all blocks, once they are in the store."""
        shutil.rmtree(self._all, ignore_errors=True)

    def size(self) -> int:
        """Count the bytes of all strips."""
        return sum(path.stat().st_size for path in self.path.glob("*.strips"))

    def write(self, block: Block, made: Made, pixels: NDArray[np.uint8], rows: Sequence[int]) -> None:
        """Write a block with the given rows of the pixels, ascending."""
        checksum = 0
        torn = self.path / f"{block.name}.{os.getpid()}.torn"
        try:
            with torn.open("wb") as file:
                for first, last in _runs(rows):
                    file.write(pixels[first:last])
                    checksum = zlib.crc32(pixels[first:last], checksum)
            torn.replace(self._file(block, "strips"))
            text = {
                "split": made.split,
                "device": made.device,
                "file_names": made.file_names,
                "checksum": checksum,
                "rejects": [(reject.person_id, reject.file_name, reject.reason) for reject in made.rejects],
            }
            arrays = {name: getattr(made, name) for name in ARRAYS}
            with torn.open("wb") as file:
                np.savez(file, text=np.frombuffer(json.dumps(text).encode(), np.uint8), **arrays)
            torn.replace(self._file(block, "npz"))
        finally:
            torn.unlink(missing_ok=True)

    def read(self, block: Block) -> Made:
        """Read a block without its pixels; raises DamagedBlock."""
        with _whole(self._file(block, "npz")), np.load(self._file(block, "npz")) as file:
            text = json.loads(file["text"].tobytes())
            text["rejects"] = [Reject(*reject) for reject in text["rejects"]]
            return Made(**text, **{name: file[name] for name in ARRAYS})

    def pixels(self, block: Block) -> NDArray[np.uint8]:
        """Read a block's strips, (n, H, W, 3); raises DamagedBlock."""
        made = self.read(block)
        with _whole(self._file(block, "npz")):
            pixels = np.fromfile(self._file(block, "strips"), np.uint8).reshape(len(made.labels), *self._strip)
            if zlib.crc32(pixels) != made.checksum:
                raise ValueError
        return pixels

    def remove_damaged(self, blocks: Iterable[Block]) -> None:
        """Remove all blocks that are not what was written; `read` and `pixels` remove only the first that they meet."""
        for block in blocks:
            with contextlib.suppress(DamagedBlock):
                self.pixels(block)

    def _file(self, block: Block, kind: str) -> Path:
        return self.path / f"{block.name}.{kind}"


@contextlib.contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Turn whatever a torn file raises into one sentence, and remove the block that it belongs to."""
    try:
        yield
    except (ValueError, EOFError, KeyError, FileNotFoundError, zipfile.BadZipFile):
        path.unlink(missing_ok=True)
        raise DamagedBlock(
            f"{path}: a block of an earlier run is damaged, as after a power cut, and is removed with any "
            "others like it: give the same command again, and they are made anew"
        ) from None


def _runs(rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    """[0, 1, 2, 5, 6] -> (0, 3), (5, 7): what can be written without being copied together."""
    for _, run in itertools.groupby(enumerate(rows), lambda pair: pair[1] - pair[0]):
        members = [row for _, row in run]
        yield members[0], members[-1] + 1
