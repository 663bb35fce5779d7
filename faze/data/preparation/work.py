"""Make the shards of all people in several processes.

Each process reads, makes and writes its own shards; only their names and sizes are sent between processes.
"""

import concurrent.futures
import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import cv2
import numpy as np

from faze.base.code_hash import fingerprint
from faze.config.parameters import DataSet, Preprocess
from faze.data.preparation.shards import ENTRIES, Shard, ShardContent, ShardFolder
from faze.data.preparation.splits import UNLISTED, Splits
from faze.data.preparation.strip_maker import StripMaker
from faze.data.process_pool import worker_processes
from faze.data.readers import Frame, Reader, Reject, check_entries
from faze.data.store.layout import LABEL_SOURCES
from faze.data.store.strips import VALIDITIES

_VALIDITY = {True: "valid", False: "off_screen", None: "unknown_screen"}


def key_of(entry: DataSet, splits: Splits, settings: Preprocess, raw: Path, supplementary: Path | None) -> str:
    """Hash everything that determines the content of shards, except the raw frames: 16 hex digits."""
    of = (entry, sorted(splits.listed.items()), settings, str(raw.resolve()))
    digest = hashlib.sha256(repr(of).encode())
    for file in filter(None, (supplementary, raw if raw.is_file() else None)):
        stat = file.stat()
        digest.update(repr((str(file.resolve()), stat.st_size, stat.st_mtime_ns)).encode())
    digest.update(fingerprint("faze.stages.preprocess").encode())  # with its readers and warps
    return digest.hexdigest()[:16]


def plan(reader: Reader) -> dict[str, list[Shard]]:
    """Divide each person's annotation into shards."""
    shards = {}
    for person in reader.persons():
        count = reader.count(person)
        shards[person] = [Shard(person, start, min(start + ENTRIES, count)) for start in range(0, count, ENTRIES)]
    return shards


@dataclass
class Worker:
    """The tools with which a process makes shards, and its position in the annotation of the current person."""

    reader: Reader
    maker: StripMaker
    folder: ShardFolder
    splits: Splits
    _person: str = ""
    _position: int = 0
    _entries: Iterator[Frame | Reject] = field(default_factory=lambda: iter(()))
    _pixels: np.ndarray | None = None  # of one shard, reused

    def make(self, shard: Shard) -> int:
        """Make and write a shard, and return the number of its entries."""
        entries = self._next_entries(shard)
        frames = [entry for entry in entries if isinstance(entry, Frame)]
        if self._pixels is None:
            camera = self.maker.camera
            self._pixels = np.empty((ENTRIES, camera.height_px, camera.width_px, 3), np.uint8)
        labels = np.empty((len(frames), 4), np.float32)
        reasons = self.maker.make(frames, self._pixels[: len(frames)], labels)
        rows = [row for row, reason in enumerate(reasons) if not reason]
        self.folder.write(shard, _content(entries, reasons, labels[rows]), self._pixels, rows)
        return len(shard)

    def _next_entries(self, shard: Shard) -> list[Frame | Reject]:
        """Read the entries of a shard; shards come in order, so each person's annotation is read once."""
        if self._person != shard.person_id or self._position > shard.start:
            self._person, self._position = shard.person_id, 0
            entries = check_entries(self.reader.entries(shard.person_id))
            self._entries = (self._with_split(entry) for entry in entries)
        while self._position < shard.start and next(self._entries, None) is not None:
            self._position += 1
        self._position = shard.stop
        return list(itertools.islice(self._entries, len(shard)))

    def _with_split(self, entry: Frame | Reject) -> Frame | Reject:
        """Set a frame's split, or reject it if the split is unknown."""
        if isinstance(entry, Reject):
            return entry
        split = self.splits.split(entry.person_id, entry.split)
        return replace(entry, split=split) if split else Reject(entry.person_id, entry.file_name, UNLISTED)


def _content(entries: Sequence[Frame | Reject], reasons: Sequence[str], labels: np.ndarray) -> ShardContent:
    """Divide the entries of a shard into frames with a strip and rejects, both in the order of the entries.

    Args:
        entries: All entries of the shard.
        reasons: For each frame, the reason why it has no strip; "" if it has one.
        labels: (n, 4) labels of the frames that have a strip.
    """
    used, rejects, verdicts = [], [], iter(reasons)
    for entry in entries:
        if isinstance(entry, Reject):
            rejects.append(entry)
        elif reason := next(verdicts):
            rejects.append(Reject(entry.person_id, entry.file_name, reason))
        else:
            used.append(entry)
    return ShardContent(
        split=used[0].split if used else "",
        device=used[0].device if used else "",
        file_names=[frame.file_name for frame in used],
        labels=labels,
        frame_index=np.array([frame.frame_index for frame in used], np.int64),
        label_source=np.array([LABEL_SOURCES.index(frame.label_source) for frame in used], np.uint8),
        validity=np.array([VALIDITIES.index(_VALIDITY[frame.on_screen]) for frame in used], np.uint8),
        rejects=rejects,
    )


def make_shards(shards: Sequence[Shard], worker: Worker, threads: int, progress: Callable[[int], None]) -> None:
    """Make shards and write them into their folder.

    Args:
        shards: Shards in the order of the people and of their annotation.
        worker: The tools of each process.
        threads: Number of processes.
        progress: Called with the number of finished entries.

    Raises:
        UserError: An annotation cannot be read.
        OSError: A shard cannot be written.
        ChildProcessError: A process was killed.
    """
    if not shards:
        return
    done = 0
    with worker_processes(min(threads, len(shards)), _start, worker) as pool:
        for future in concurrent.futures.as_completed([pool.submit(_make, shard) for shard in shards]):
            done += future.result()
            progress(done)


def _start(worker: Worker) -> None:
    global _worker
    _worker = worker
    cv2.setNumThreads(1)


def _make(shard: Shard) -> int:
    return _worker.make(shard)
