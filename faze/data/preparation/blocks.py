"""Finished blocks of strips in a folder beside the output, whole or absent each: what a killed preprocessing keeps.

A block is two files: its strips as they are (n x H x W x 3 bytes), and an npz of labels, names and rejects, which comes
second and by which a block is known to be finished.
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

from faze.data.readers import Reject

ENTRIES = 256  # of a block at most: a second of work to lose, 12 MiB to hold


@dataclass(frozen=True)
class Block:
    """The entries from start to before stop in a person's annotation."""

    person_id: str
    start: int
    stop: int
    stamp: str = ""  # of the files that the person was read from

    @property
    def name(self) -> str:
        """Of its files: no person's name leads out of their folder."""
        return f"p-{quote(self.person_id, safe='')}.{self.start:06d}-{self.stop:06d}.{self.stamp}"


@dataclass(frozen=True, eq=False)
class Made:
    """What became of a block beside its pixels: n strips, and the rejects."""

    split: str  # "" where there is no strip
    device: str
    file_names: list[str]
    labels: NDArray[np.float32]  # (n, 4) rad
    frame_index: NDArray[np.int64]  # (n,)
    origin: NDArray[np.uint8]  # (n,)
    validity: NDArray[np.uint8]  # (n,)
    rejects: list[Reject]


class DamagedBlock(ValueError):
    """A block is not what was written."""


class BlockFolder:
    """The blocks of one output that were made in one way, that of its key."""

    def __init__(self, out: Path, key: str, strip: tuple[int, int, int]) -> None:
        """Args: out: of the preprocessing. key: of all that decides what its blocks hold. strip: (H, W, 3)."""
        self._all = out.parent / f".work.{out.name}"  # which the lock of no output takes for a torn file of its own
        self.path = self._all / key
        self._strip = strip

    def begin(self, blocks: Collection[Block]) -> frozenset[str]:
        """Make the folder; whatever is not one of these blocks, made in this way, is removed.

        Returns:
            names of those that are finished.
        """
        others = [folder for folder in self._all.glob("*") if folder != self.path]
        if others:
            print(f"{self._all}: blocks made from other data, settings or code are discarded", file=sys.stderr)
        for folder in others:
            shutil.rmtree(folder, ignore_errors=True)
        self.path.mkdir(parents=True, exist_ok=True)
        wanted = {path.name for block in blocks for path in (self._pixels(block), self._rest(block))}
        for path in self.path.iterdir():
            if path.name not in wanted:
                path.unlink(missing_ok=True)
        return frozenset(path.stem for path in self.path.glob("*.npz"))

    def remove(self) -> None:
        """Remove all blocks, once they are in the store."""
        shutil.rmtree(self._all, ignore_errors=True)

    def size(self) -> int:
        """Bytes of all strips."""
        return sum(path.stat().st_size for path in self.path.glob("*.strips"))

    def write(self, block: Block, made: Made, pixels: NDArray[np.uint8], rows: Sequence[int]) -> None:
        """Write a block: of the pixels the given rows, ascending."""
        checksum = 0
        torn = self.path / f"{block.name}.{os.getpid()}.torn"
        try:
            with torn.open("wb") as file:
                for first, last in _runs(rows):
                    file.write(pixels[first:last])
                    checksum = zlib.crc32(pixels[first:last], checksum)
            torn.replace(self._pixels(block))
            text = {name: getattr(made, name) for name in ("split", "device", "file_names")}
            text |= {"checksum": checksum, "rejects": [(r.person_id, r.file_name, r.reason) for r in made.rejects]}
            arrays = {name: getattr(made, name) for name in ("labels", "frame_index", "origin", "validity")}
            with torn.open("wb") as file:
                np.savez(file, text=np.frombuffer(json.dumps(text).encode(), np.uint8), **arrays)
            torn.replace(self._rest(block))
        finally:
            torn.unlink(missing_ok=True)

    def read(self, block: Block) -> Made:
        """Read a block without its pixels; raises DamagedBlock."""
        return self._load(block)[0]

    def pixels(self, block: Block) -> NDArray[np.uint8]:
        """Read a block's strips, (n, H, W, 3); raises DamagedBlock."""
        made, checksum = self._load(block)
        with self._whole(block):
            pixels = np.fromfile(self._pixels(block), np.uint8).reshape(len(made.labels), *self._strip)
            if zlib.crc32(pixels) != checksum:
                raise ValueError
        return pixels

    def remove_damaged(self, blocks: Iterable[Block]) -> None:
        """Remove all that are not what was written, of which `read` and `pixels` name the first alone."""
        for block in blocks:
            with contextlib.suppress(DamagedBlock):
                self.pixels(block)

    def _load(self, block: Block) -> tuple[Made, int]:
        with self._whole(block), np.load(self._rest(block)) as file:
            text = json.loads(file["text"].tobytes())
            checksum = text.pop("checksum")
            rejects = [Reject(*reject) for reject in text.pop("rejects")]
            arrays = {name: file[name] for name in ("labels", "frame_index", "origin", "validity")}
            return Made(**text, **arrays, rejects=rejects), checksum

    def _whole(self, block: Block) -> "_Damage":
        return _Damage(self._rest(block))

    def _pixels(self, block: Block) -> Path:
        return self.path / f"{block.name}.strips"

    def _rest(self, block: Block) -> Path:
        return self.path / f"{block.name}.npz"


class _Damage:
    """Turns whatever a torn file raises into one sentence, and removes the block."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind and issubclass(kind, ValueError | EOFError | KeyError | FileNotFoundError | zipfile.BadZipFile):
            self._path.unlink(missing_ok=True)
            raise DamagedBlock(
                f"{self._path}: a block of an earlier run is damaged, as after a power cut, and is removed with any "
                "others like it: give the same command again, and they are made anew"
            ) from None


def _runs(rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    """[0, 1, 2, 5, 6] -> (0, 3), (5, 7): what can be written without being copied together."""
    for _, run in itertools.groupby(enumerate(rows), lambda pair: pair[1] - pair[0]):
        members = [row for _, row in run]
        yield members[0], members[-1] + 1
