"""Rule `preprocess`: raw camera frames -> normalised, labelled eye strips (FAZE section 3), and rejected frames.

Shards of frames are normalised in parallel and stored, so that a killed run can resume. The output does not depend on
the number of processes or on interruptions. The input can also be an HDF5 file of strips instead of a folder of frames;
the strips are then copied.
"""

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

import cv2

from faze.base.command_line import CONFIG, OUTPUT_CACHE, argument, command, needed, threads
from faze.base.compiled import processor_features
from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.base.locks import output_lock
from faze.base.output_cache import content_within, output_cache
from faze.base.output_cache import key_of as made_key
from faze.base.process_pool import load_ahead
from faze.base.progress import Progress
from faze.config.stage_config import Resolved, load
from faze.data.preparation.shards import (
    DamagedShard,
    NothingUsable,
    Prepared,
    RejectWriter,
    ShardFolder,
    check_disk_space,
    disk_may_fill,
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

MOST_BYTES = 4 * 2**30  # of frames that are identified by their content: a few seconds of reading
# The reader of each layout of frames, opened with the folder or file and an optional supplementary file.
READERS: dict[str, Callable[[Path, Path | None], Reader]] = {
    "mpiifacegaze": open_mpiifacegaze,
    "mpiigaze": open_mpiifacegaze,
    "gazecapture": GazeCapture,
    "manifest": Manifest,
}
FILES = ("manifest", "strips")  # layouts that are a file, not a folder
# Imported by the server of the worker processes. It cannot import this module, the main module of each process.
LOADED_AHEAD = (
    "faze.data.preparation.work",
    "faze.data.preparation.stored",
    "faze.config.stage_config",
    "faze.base.command_line",
    "faze.base.progress",
)


@command(
    __doc__,
    CONFIG,
    needed("--raw", "the data set's folder or file"),
    argument("--supplementary", type=Path, help="FAZE supplementary HDF5 of the data set"),
    threads("processes", default=1),
    needed("--out", "HDF5 of strips"),
    needed("--rejects", "CSV of the rejected frames, with reasons"),
    OUTPUT_CACHE,
)
def main(args: Namespace) -> None:
    """Normalise every usable frame of a data set, and list the others."""
    config = load(args.config, "preprocess")
    entry = config.dataset
    if not args.raw.exists():
        raise UserError(f"{args.raw}: no such folder or file")
    if args.raw.is_dir() == (entry.layout in FILES):
        kind = "folder" if args.raw.is_dir() else "file"
        raise UserError(f"{args.raw}: is a {kind}, but the layout {entry.layout} is not: correct one of them")
    prepare = copy_strips if entry.layout == "strips" else normalise
    with output_lock(args.out), output_lock(args.rejects), disk_may_fill(args.out.parent):
        key = cache_key(args, config) if args.output_cache else None
        with output_cache(args.output_cache if key else None, key or "", [args.rejects, args.out]) as copied:
            if not copied:
                counts = prepare(args, config)
                print(f"{entry.name}: {counts}, listed in {args.rejects}")


def cache_key(args: Namespace, config: Resolved) -> str | None:
    """Hash everything that determines the outputs; return None if the inputs are too large to be read twice."""
    frames = args.raw if config.dataset.layout == "strips" else folder_of(args.raw)
    inputs, splits = [path for path in (frames, args.supplementary) if path], Splits.of(config.dataset.splits)
    contents = [content_within(path, MOST_BYTES) for path in inputs]
    if None in contents:
        return None
    of = (bool(args.supplementary), splits, contents, processor_features(), cv2.__version__)
    return made_key("preprocess", config.values, *of)


def folder_of(raw: Path) -> Path:
    """Return the folder that contains the frames of a data set: that of a manifest, or the given one."""
    return raw.absolute().parent if raw.is_file() else raw


def normalise(args: Namespace, config: Resolved) -> RejectWriter:
    """Make the missing shards and join all shards."""
    load_ahead(*LOADED_AHEAD)
    settings, entry, splits = config.preprocess, config.dataset, Splits.of(config.dataset.splits)
    reader = READERS[entry.layout](args.raw, args.supplementary)
    people = plan(reader)
    shards = [shard for shards in people.values() for shard in shards]
    maker = StripMaker.of(settings, entry.layout)
    strip, strip_bytes = (settings.height_px, settings.width_px, 3), settings.height_px * settings.width_px * 3
    folder = ShardFolder(args.out, key_of(entry, splits, settings, args.raw, args.supplementary), strip)
    finished = folder.begin(shards)
    missing = [shard for shard in shards if shard.name not in finished]
    total, left = sum(map(len, shards)), sum(map(len, missing))
    # Shards and store are both on the disk until the store is complete.
    check_disk_space(args.out.parent, (left + total) * strip_bytes, f"{total} frames")
    if left < total:
        print(f"{args.out}: {total - left} of {total} frames were processed in an earlier run", file=sys.stderr)
    progress = Progress("preprocess", total, "frames", done=total - left)
    worker = Worker(reader, maker, folder, splits, settings.off_screen == "exclude")
    make_shards(missing, worker, args.threads, lambda done: progress(total - left + done))
    size = size_of(folder.size(), folder.size() // strip_bytes, len(people))
    source = RENDERED if (folder_of(args.raw) / RENDERED_MARK).is_file() else reader.layout
    try:
        counts = write(args, entry.name, join_shards(people, folder), size, source)
    except NothingUsable:
        folder.remove()
        raise
    except DamagedShard:
        folder.remove_damaged(shards)
        raise
    folder.remove()
    return counts


def copy_strips(args: Namespace, config: Resolved) -> RejectWriter:
    """Copy strips that are already normalised to a store in our layout."""
    settings, name, splits = config.preprocess, config.dataset.name, Splits.of(config.dataset.splits)
    size = (settings.height_px, settings.width_px)
    with open_stored(args.raw, splits) as strips:
        total = sum(strips.count(person) for person in strips.persons())
        pixel_bytes = total * size[0] * size[1] * 3
        check_disk_space(args.out.parent, pixel_bytes, f"{total} strips")
        people = copy_stored(
            strips,
            splits=splits,
            size=size,
            exclude_off_screen=settings.off_screen == "exclude",
            progress=Progress("preprocess", total, "strips"),
        )
        return write(args, name, people, size_of(pixel_bytes, total, len(strips.persons())), strips.pixel_source)


def write(args: Namespace, name: str, people: Iterator[Prepared], size: int, pixel_source: str) -> RejectWriter:
    """Write the store and the rejects atomically."""
    # Names that are not UTF-8 are written with escapes, so that the list itself is UTF-8.
    how = {"newline": "", "encoding": "utf-8", "errors": "backslashreplace"}
    with whole_file(args.rejects) as temporary, temporary.open("w", **how) as text:
        rejects = RejectWriter(text)
        write_strips(args.out, name, rejects.usable(people, args.raw), size, pixel_source)
    return rejects
