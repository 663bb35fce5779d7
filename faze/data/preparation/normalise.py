"""Normalise the frames of a data set: raw frames -> eye strips and labels (FAZE section 3).

People are cut into parts of at most 2,000 frames, which processes make in parallel. A finished part is a file in a
folder beside the output, from which a killed run resumes; at the end, the parts are joined.
"""

import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import numpy as np
from joblib import Parallel, delayed

from faze.base.code_hash import fingerprint
from faze.base.progress import Progress
from faze.config.stage_config import Resolved
from faze.data.preparation.part import make_part
from faze.data.preparation.splits import NO_SPLIT, SplitRule, split_rule
from faze.data.preparation.store import write_store
from faze.data.readers.gazecapture import open_gazecapture
from faze.data.readers.manifest import open_manifest
from faze.data.readers.mpiigaze import open_mpiigaze
from faze.data.readers.person import People, Person
from faze.data.strips import RENDERED
from faze.data.synthetic import RENDERED_MARK

FRAMES = 2000  # of a part, at most
READERS: dict[str, Callable[[Path, Path | None], People]] = {
    "mpiifacegaze": open_mpiigaze,
    "mpiigaze": open_mpiigaze,
    "gazecapture": open_gazecapture,
    "manifest": open_manifest,
}
LAYOUTS = {"mpiifacegaze": "MPIIFaceGaze", "mpiigaze": "MPIIGaze", "gazecapture": "GazeCapture", "manifest": "manifest"}


def normalise(config: Resolved, raw: Path, supplementary: Path | None, threads: int, out: Path, rejects: Path) -> str:
    """Make the missing parts, join all parts, and describe the result."""
    entry = config.dataset
    split_of = split_rule(entry.splits)
    people = READERS[entry.layout](raw, supplementary)
    work = out.parent / f".work.{out.name}"
    folder = work / _key(config, raw, supplementary)
    for other in set(work.glob("*")) - {folder}:  # made from other data, settings or code
        shutil.rmtree(other)
    folder.mkdir(parents=True, exist_ok=True)
    parts: dict[str, list[Path]] = {name: [] for name in people}

    def missing() -> Iterator[tuple]:
        progress = Progress("preprocess", len(people), "people")
        for done, (name, read) in enumerate(people.items()):
            person = _ready(read(), split_of)
            for start in range(0, len(person.files), FRAMES):
                part = folder / f"{quote(name, safe='')}.{start:07d}.npz"
                parts[name].append(part)
                if not part.exists():
                    yield delayed(make_part)(
                        person[start : start + FRAMES], start, config.preprocess, entry.layout, part
                    )
            progress(done)

    Parallel(threads, pre_dispatch="2 * n_jobs")(missing())
    size = sum(part.stat().st_size for part in folder.iterdir())
    loaded = ((name, [np.load(part) for part in paths]) for name, paths in parts.items())
    source = RENDERED if ((raw.parent if raw.is_file() else raw) / RENDERED_MARK).is_file() else LAYOUTS[entry.layout]
    counts = write_store(config, raw, source, out, rejects, loaded, size)
    shutil.rmtree(work)
    return counts


def _key(config: Resolved, raw: Path, supplementary: Path | None) -> str:
    """Hash everything that determines the parts, except the raw frames."""
    files = [file for file in (raw, supplementary, Path(config.dataset.splits)) if file and file.is_file()]
    about = config.dataset, config.preprocess, raw.resolve(), [(file, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(repr((about, fingerprint("faze.stages.preprocess"))).encode()).hexdigest()[:16]


def _ready(person: Person, split_of: SplitRule) -> Person:
    """Assign the split, and reject frames that are listed twice."""
    person.split = split_of(person.name, person.split)
    seen: set[str] = set()
    for row, file in enumerate(person.files):
        twice = "listed twice" if file in seen else ""
        person.reasons[row] = person.reasons[row] or twice or (NO_SPLIT if not person.split else "")
        seen.add(file)
    return person
