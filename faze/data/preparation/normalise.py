"""Normalise the frames of a data set: raw frames -> eye strips and labels (FAZE section 3).

People are cut into parts of at most 2,000 frames, which processes make in parallel. A finished part is a file in a
folder beside the output, from which a killed run resumes; at the end, the parts are joined.
"""

import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import cv2
import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from faze.base.code_hash import fingerprint
from faze.base.files import whole_file
from faze.base.progress import Progress
from faze.config.parameters import Preprocess
from faze.config.stage_config import Resolved
from faze.data.normalization.images import read_image
from faze.data.normalization.pose import NormalizedPose, UnusableFrame, find_impossible, normalize_poses
from faze.data.normalization.warp import make_strip, make_strip_in_two_steps
from faze.data.preparation.splits import NO_SPLIT, SplitRule, split_rule
from faze.data.preparation.store import write_store
from faze.data.readers.gazecapture import open_gazecapture
from faze.data.readers.manifest import open_manifest
from faze.data.readers.mpiigaze import open_mpiigaze
from faze.data.readers.person import People, Person
from faze.data.store.layout import RENDERED
from faze.data.synthetic import RENDERED_MARK

FRAMES = 2000  # of a part, at most
READERS: dict[str, Callable[[Path, Path | None], People]] = {
    "mpiifacegaze": open_mpiigaze,
    "mpiigaze": open_mpiigaze,
    "gazecapture": open_gazecapture,
    "manifest": open_manifest,
}
LAYOUTS = {"mpiifacegaze": "MPIIFaceGaze", "mpiigaze": "MPIIGaze", "gazecapture": "GazeCapture", "manifest": "manifest"}
RECENTRED = ("mpiifacegaze", "mpiigaze")  # layouts whose frames the released procedure undistorts with a centred camera


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
                    yield delayed(_make_part)(
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


def _make_part(person: Person, start: int, settings: Preprocess, layout: str, part: Path) -> None:
    """Make and write the strips of some frames of a person, the first of which has the number `start`."""
    cv2.setNumThreads(1)
    poses, faults = normalize_poses(person.poses[:, :3], person.poses[:, 3:], person.corners_mm, person.targets_mm)
    impossible = find_impossible(poses.labels)
    reasons = [
        reason or fault or other for reason, fault, other in zip(person.reasons, faults, impossible, strict=True)
    ]
    rows, strips = [], []
    for row, reason in enumerate(reasons):
        if reason:  # found in the annotation: the image need not be read
            continue
        try:
            strips.append(_make_strip(person, row, poses[row], settings, layout))
            rows.append(row)
        except UnusableFrame as unusable:
            reasons[row] = str(unusable)
    good = person[np.array(rows, int)]
    with whole_file(part) as temporary, temporary.open("wb") as file:
        np.savez(
            file,
            pixels=np.array(strips, np.uint8).reshape(-1, settings.height_px, settings.width_px, 3),
            labels=poses.labels[rows].astype(np.float32),
            file_name=np.array([file.encode() for file in good.files], np.bytes_),
            frame_index=start + np.array(rows, np.int64),
            validity=_validity(good),
            about=np.array([person.split, person.device, person.source]),
            rejects=np.array([pair for pair in zip(person.files, reasons, strict=True) if pair[1]]).reshape(-1, 2),
        )


def _validity(person: Person) -> NDArray[np.uint8]:
    """Return the index into VALIDITIES of each frame."""
    if person.on_screen is None:
        return np.full(len(person.files), 2, np.uint8)
    return np.select([person.on_screen == 1, person.on_screen == 0], [0, 1], 2).astype(np.uint8)


def _make_strip(person: Person, row: int, pose: NormalizedPose, settings: Preprocess, layout: str) -> NDArray[np.uint8]:
    image, lens = read_image(person.folder / person.files[row]), (person.cameras[row], person.distortions[row])
    if settings.compatibility == "two_step":
        return make_strip_in_two_steps(image, *lens, pose, settings, layout in RECENTRED)
    return make_strip(image, *lens, pose, settings)
