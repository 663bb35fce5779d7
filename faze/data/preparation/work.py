"""Blocks of all people, made in several processes.

Each process reads, makes and writes its own blocks; only their names and sizes travel between processes.
"""

import concurrent.futures
import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import cv2
import numpy as np

from faze.base.code_hash import fingerprint
from faze.base.process_pool import worker_processes
from faze.config.data_parameters import Preprocess
from faze.data.preparation.blocks import ENTRIES, Block, BlockFolder, Made
from faze.data.preparation.stamp import stamp_of
from faze.data.preparation.strip_maker import StripMaker
from faze.data.readers import Frame, Reader, Reject
from faze.data.readers.annotation_checks import check_entries
from faze.data.store.layout import ORIGINS
from faze.data.store.strip_layout import VALIDITIES

_VALIDITY = {True: "valid", False: "off_screen", None: "unknown_screen"}


def key_of(dataset: str, settings: Preprocess, raw: Path, supplementary: Path | None) -> str:
    """Name all that decides what blocks hold, but the raw files of each person: 16 hex digits."""
    digest = hashlib.sha256(repr((dataset, sorted(asdict(settings).items()), str(raw.resolve()))).encode())
    if supplementary:
        stat = supplementary.stat()
        digest.update(repr((str(supplementary.resolve()), stat.st_size, stat.st_mtime_ns)).encode())
    digest.update(fingerprint("faze.stages.preprocess").encode())  # with its readers and warps
    return digest.hexdigest()[:16]


def plan(reader: Reader) -> dict[str, list[Block]]:
    """Cut each person's annotation into blocks."""
    blocks = {}
    for person in reader.persons():
        count, stamp = reader.count(person), stamp_of(reader.folder(person))
        blocks[person] = [
            Block(person, start, min(start + ENTRIES, count), stamp) for start in range(0, count, ENTRIES)
        ]
    return blocks


@dataclass
class Worker:
    """What a process makes blocks with, and how far it has read the annotation of the last person."""

    reader: Reader
    maker: StripMaker
    folder: BlockFolder
    exclude_off_screen: bool = False  # leave out frames whose target is known to lie off the screen
    _person: str = ""
    _position: int = 0
    _entries: Iterator[Frame | Reject] = field(default_factory=lambda: iter(()))
    _pixels: np.ndarray | None = None  # of one block, used again and again

    def make(self, block: Block) -> int:
        """Make a block and write it; returns the number of its entries."""
        entries = self._read(block)
        frames = [entry for entry in entries if isinstance(entry, Frame)]
        if self._pixels is None:
            camera = self.maker.camera
            self._pixels = np.empty((ENTRIES, camera.height_px, camera.width_px, 3), np.uint8)
        labels = np.empty((len(frames), 4), np.float32)
        reasons = self.maker.make(frames, self._pixels[: len(frames)], labels)
        rows = [row for row, reason in enumerate(reasons) if not reason]
        self.folder.write(block, _made(entries, reasons, labels[rows]), self._pixels, rows)
        return len(block)

    def _read(self, block: Block) -> list[Frame | Reject]:
        """Read the entries of a block; the annotation is read once per person, as the blocks come in its order."""
        if self._person != block.person_id or self._position > block.start:
            self._person, self._position = block.person_id, 0
            self._entries = check_entries(self.reader.entries(block.person_id), self.exclude_off_screen)
        while self._position < block.start and next(self._entries, None) is not None:
            self._position += 1
        self._position = block.stop
        return list(itertools.islice(self._entries, len(block)))


def _made(entries: Sequence[Frame | Reject], reasons: Sequence[str], labels: np.ndarray) -> Made:
    """Part the entries of a block into frames with a strip and rejects, both in the order of the entries.

    Args:
        entries: of the block.
        reasons: why each frame among them has no strip, "" where it has one.
        labels: (n, 4) of those that have one.
    """
    used, rejects, verdicts = [], [], iter(reasons)
    for entry in entries:
        if isinstance(entry, Reject):
            rejects.append(entry)
        elif reason := next(verdicts):
            rejects.append(Reject(entry.person_id, entry.file_name, reason))
        else:
            used.append(entry)
    return Made(
        split=used[0].split if used else "",
        device=used[0].device if used else "",
        file_names=[frame.file_name for frame in used],
        labels=labels,
        frame_index=np.array([frame.frame_index for frame in used], np.int64),
        origin=np.array([ORIGINS.index(frame.origin) for frame in used], np.uint8),
        validity=np.array([VALIDITIES.index(_VALIDITY[frame.on_screen]) for frame in used], np.uint8),
        rejects=rejects,
    )


def make_blocks(blocks: Sequence[Block], worker: Worker, threads: int, progress: Callable[[int], None]) -> None:
    """Make blocks and write them into their folder.

    Args:
        blocks: in the order of people and their annotation.
        worker: what each process makes them with.
        threads: processes.
        progress: is told how many entries are done.

    Raises:
        UserError: an annotation cannot be read.
        OSError: a block cannot be written.
        ChildProcessError: a process was killed.
    """
    if not blocks:
        return
    done = 0
    with worker_processes(min(threads, len(blocks)), _start, worker) as pool:
        for future in concurrent.futures.as_completed([pool.submit(_make, block) for block in blocks]):
            done += future.result()
            progress(done)


def _start(worker: Worker) -> None:
    global _worker
    _worker = worker
    cv2.setNumThreads(1)


def _make(block: Block) -> int:
    return _worker.make(block)
