"""Normalise the frames of a data set: raw frames -> eye strips and labels (FAZE section 3).

Each person's frames are divided into parts of at most 2,000 frames, which are processed in parallel. Finished parts are
stored as files in a folder next to the output, so that a killed run can resume. At the end, the parts are joined.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import joblib
import numpy as np
import pandas as pd

from faze.base.code_hash import fingerprint
from faze.base.errors import UserError
from faze.base.progress import Progress
from faze.config.stage_config import Resolved
from faze.data.preparation.part import make_part
from faze.data.preparation.splits import NO_SPLIT, SplitRule, split_rule
from faze.data.preparation.store import write_store
from faze.data.readers.gazecapture import open_gazecapture
from faze.data.readers.manifest import open_manifest
from faze.data.readers.mpiigaze import open_mpiigaze
from faze.data.readers.person import People, Person, unreadable
from faze.data.strips import RENDERED
from faze.data.synthetic import RENDERED_MARK
from faze.data.worker_processes import worker_processes

FRAMES = 2000  # maximum number in a part
READERS: dict[str, Callable[[Path, Path | None], People]] = {
    "mpiifacegaze": open_mpiigaze,
    "mpiigaze": open_mpiigaze,
    "gazecapture": open_gazecapture,
    "manifest": open_manifest,
}
NAMES = {"mpiifacegaze": "MPIIFaceGaze", "mpiigaze": "MPIIGaze", "gazecapture": "GazeCapture"}  # of layouts


def normalise(config: Resolved, raw: Path, supplementary: Path | None, threads: int, out: Path, rejects: Path) -> str:
    """Make the missing parts, join all parts, and return a summary of the result."""
    entry = config.dataset
    split_of = split_rule(entry.splits)
    people = READERS[entry.layout](raw, supplementary)
    work = out.parent / f".work.{out.name}"
    folder = work / joblib.hash((repr(config.preprocess), entry.layout, fingerprint("faze.stages.preprocess")))
    folder.mkdir(parents=True, exist_ok=True)
    parts: dict[str, list[Path]] = {name: [] for name in people}

    def missing() -> Iterator[tuple]:
        progress = Progress("preprocess", len(people), "people")
        for done, (name, read) in enumerate(people.items()):
            person = _ready(read(), split_of)
            for start in range(0, len(person.files), FRAMES):
                frames = person[start : start + FRAMES]
                part = folder / f"{joblib.hash((frames, start))}.npz"  # hash of everything but the images
                parts[name].append(part)
                if not part.exists():
                    yield joblib.delayed(make_part)(frames, start, config.preprocess, entry.layout, part)
            progress(done)

    with worker_processes(threads, pre_dispatch="2 * n_jobs") as parallel:
        parallel(missing())
    size = sum(part.stat().st_size for paths in parts.values() for part in paths)
    loaded = ((name, [np.load(part) for part in paths]) for name, paths in parts.items())
    is_rendered = ((raw.parent if raw.is_file() else raw) / RENDERED_MARK).is_file()
    source = RENDERED if is_rendered else NAMES.get(entry.layout, entry.layout)
    try:
        counts = write_store(out, rejects, loaded, size, dataset=entry.name, pixel_source=source)
    except UserError:  # no frame is usable; the images may differ next time
        shutil.rmtree(work)
        raise
    shutil.rmtree(work)
    return counts


def _ready(person: Person, split_of: SplitRule) -> Person:
    """Assign the person to a split, and reject frames that are listed twice."""
    if not person.files:
        return unreadable(person.name, person.folder, "no annotated frame")
    person.split = split_of(person.name, person.split)
    if not person.split and "" in person.reasons:
        return unreadable(person.name, person.folder, NO_SPLIT)
    for row in np.flatnonzero(pd.Series(person.files).duplicated()):
        person.reasons[row] = person.reasons[row] or "listed twice"
    return person
