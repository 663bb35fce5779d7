"""Prepare a data set: normalise its frames in shards, or copy strips that are already normalised."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from faze.base.files import whole_file
from faze.base.progress import Progress
from faze.config.stage_config import Resolved
from faze.data.preparation.shards import (
    NothingUsable,
    Prepared,
    RejectWriter,
    ShardFolder,
    join_shards,
)
from faze.data.preparation.splits import Splits
from faze.data.preparation.stored import copy_stored, open_stored
from faze.data.preparation.strip_maker import StripMaker
from faze.data.preparation.work import Worker, key_of, make_shards, plan
from faze.data.readers import RENDERED_MARK, Reader
from faze.data.readers.gazecapture import GazeCapture
from faze.data.readers.manifest import Manifest
from faze.data.readers.mpiifacegaze import open_mpiifacegaze
from faze.data.store.layout import RENDERED
from faze.data.store.strips import size_of, write_strips

# The reader of each layout of frames, opened with the folder or file and an optional supplementary file.
READERS: dict[str, Callable[[Path, Path | None], Reader]] = {
    "mpiifacegaze": open_mpiifacegaze,
    "mpiigaze": open_mpiifacegaze,
    "gazecapture": GazeCapture,
    "manifest": Manifest,
}


def folder_of(raw: Path) -> Path:
    """Return the folder that contains the frames of a data set: that of a manifest, or the given one."""
    return raw.absolute().parent if raw.is_file() else raw


def normalise(
    config: Resolved, raw: Path, supplementary: Path | None, threads: int, out: Path, rejects: Path
) -> RejectWriter:
    """Make the missing shards and join all shards."""
    settings, entry, splits = config.preprocess, config.dataset, Splits.of(config.dataset.splits)
    reader = READERS[entry.layout](raw, supplementary)
    people = plan(reader)
    shards = [shard for shards in people.values() for shard in shards]
    maker = StripMaker.of(settings, entry.layout)
    strip, strip_bytes = (settings.height_px, settings.width_px, 3), settings.height_px * settings.width_px * 3
    folder = ShardFolder(out, key_of(entry, splits, settings, raw, supplementary), strip)
    folder.begin()
    missing = [shard for shard in shards if not folder.is_finished(shard)]
    total, left = sum(map(len, shards)), sum(map(len, missing))
    if left < total:
        print(f"{out}: {total - left} of {total} frames were processed in an earlier run", file=sys.stderr)
    progress = Progress("preprocess", total, "frames", done=total - left)
    worker = Worker(reader, maker, folder, splits)
    make_shards(missing, worker, threads, lambda done: progress(total - left + done))
    size = size_of(folder.size(), folder.size() // strip_bytes, len(people))
    source = RENDERED if (folder_of(raw) / RENDERED_MARK).is_file() else reader.layout
    try:
        counts = write(raw, out, rejects, entry.name, join_shards(people, folder), size, source)
    except NothingUsable:
        folder.remove()
        raise
    folder.remove()
    return counts


def copy_strips(config: Resolved, raw: Path, out: Path, rejects: Path) -> RejectWriter:
    """Copy strips that are already normalised to a store in our layout."""
    settings, name, splits = config.preprocess, config.dataset.name, Splits.of(config.dataset.splits)
    size = (settings.height_px, settings.width_px)
    with open_stored(raw, splits) as strips:
        total = sum(strips.count(person) for person in strips.persons())
        bound = size_of(total * size[0] * size[1] * 3, total, len(strips.persons()))
        people = copy_stored(strips, splits, size, Progress("preprocess", total, "strips"))
        return write(raw, out, rejects, name, people, bound, strips.pixel_source)


def write(
    raw: Path, out: Path, rejects: Path, name: str, people: Iterator[Prepared], size: int, pixel_source: str
) -> RejectWriter:
    """Write the store and the rejects atomically."""
    # Names that are not UTF-8 are written with escapes, so that the list itself is UTF-8.
    how = {"newline": "", "encoding": "utf-8", "errors": "backslashreplace"}
    with whole_file(rejects) as temporary, temporary.open("w", **how) as text:
        counts = RejectWriter(text)
        write_strips(out, name, counts.usable(people, raw), size, pixel_source)
    return counts
