"""Check a manifest before preprocessing: lines, images, cameras, targets and labels of each person."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import DamagedFile, UserError
from faze.data.normalization.image_size import read_size
from faze.data.normalization.pose import UnusableFrame
from faze.data.readers import Reject, check_size
from faze.data.readers.manifest import Manifest, needs_landmarks
from faze.data.readers.manifest_columns import CAMERA_COLUMNS, CAMERA_FILE, GAZE_DEG, GAZE_RAD, TARGETS
from faze.data.readers.manifest_lines import ManifestLines, UnposedFrame
from faze.data.readers.plausibility import find_unusual

_SAMPLED = 50  # images per person whose headers are read
_BEHIND_MM, _FAR_MM = 100.0, 10_000.0

Entries = Sequence[UnposedFrame | Reject]


@dataclass(frozen=True, eq=False)
class ManifestPerson:
    """The lines of one person."""

    person_id: str
    split: str
    lines: int
    rejects: Sequence[Reject]
    camera: str  # in words
    ranges: Sequence[tuple[str, float, float]]  # name, minimum and maximum of each coordinate of the targets
    on_screen: int
    off_screen: int  # the screen of the other lines is unknown
    warnings: Sequence[str]

    @property
    def usable(self) -> int:
        """Number of lines without a fault."""
        return self.lines - len(self.rejects)


@dataclass(frozen=True, eq=False)
class ManifestInspection:
    """A manifest's content and faults."""

    path: Path
    people: Sequence[ManifestPerson]
    has_poses: bool  # of its own or of an annotation, so that the labels are checked
    ignored: Sequence[str]  # columns that faze does not know

    @property
    def lines(self) -> int:
        """Number of lines, summed over all people."""
        return sum(person.lines for person in self.people)


def inspect_manifest(path: Path, supplementary: Path | None = None) -> ManifestInspection:
    """Read and check a manifest; of each person's images, only some headers are read.

    Args:
        path: CSV or Parquet.
        supplementary: HDF5 that `faze landmarks` wrote for it. Without it, the labels of a manifest without head poses
            are not checked.

    Raises:
        UserError: The manifest has a fault that concerns all of its lines.
    """
    has_poses = supplementary is not None or not needs_landmarks(path)
    reader = Manifest(path, supplementary) if has_poses else None
    lines = reader.lines if reader else ManifestLines(path)
    exists = _existing(lines)
    people = []
    for person in lines.persons():
        labels = np.empty((lines.count(person), 0))
        try:
            entries, labels = reader.labels(person) if reader else (list(lines.unposed(person)), labels)
        except DamagedFile:
            raise
        except UserError as error:
            entries = [Reject(person, lines.names[row], str(error)) for row in lines.rows[person]]
        people.append(_look(lines, person, entries, labels, exists))
    return ManifestInspection(path, people, has_poses, lines.layout.ignored)


def _existing(lines: ManifestLines) -> Callable[[str], bool]:
    """Return a function that checks whether an image exists; each folder is listed only once."""
    listed: dict[str, set[str]] = {}

    def exists(name: str) -> bool:
        folder, _, last = name.rpartition("/")
        if folder not in listed:
            try:
                listed[folder] = set(os.listdir(lines.folder / folder))
            except OSError:
                listed[folder] = set()
        return last in listed[folder]

    return exists


def _look(
    lines: ManifestLines, person: str, entries: Entries, labels: NDArray, exists: Callable[[str], bool]
) -> ManifestPerson:
    """Check a person's images, and summarise the n entries with their (n, 4) or (n, 0) labels."""
    rows = lines.rows[person]
    sampled = set(np.linspace(0, len(rows) - 1, min(len(rows), _SAMPLED)).astype(int).tolist())
    seen: dict[str, int] = {}
    numbers, rejects, used = lines.table.lines[rows].tolist(), [], []
    for position, (entry, line) in enumerate(zip(entries, numbers, strict=True)):
        reason = ""
        if isinstance(entry, Reject):
            rejects.append(entry)
            continue
        if not exists(entry.file_name):
            reason = "column image: no such file"
        elif entry.file_name in seen:
            reason = f"column image: already in line {seen[entry.file_name]}"
        elif position in sampled:
            reason = _explain_image(entry)
        seen.setdefault(entry.file_name, line)
        if reason:
            rejects.append(Reject(person, entry.file_name, f"line {line}, {reason}"))
        else:
            used.append(position)
    values = rows[used]
    on_screen = [lines.on_screen[row] for row in values]
    unusual = find_unusual(labels[used]) if labels.shape[1] else []
    return ManifestPerson(
        person_id=person,
        split=lines.splits[person],
        lines=len(rows),
        rejects=rejects,
        camera=_describe_camera(lines, values),
        ranges=_ranges(lines, values),
        on_screen=on_screen.count(True),
        off_screen=on_screen.count(False),
        warnings=[*unusual, *_find_distant(lines, values)],
    )


def _explain_image(entry: UnposedFrame) -> str:
    """Explain why an image cannot be used with its camera, from its header only; return "" if it can."""
    try:
        if size := read_size(entry.image_path):
            check_size(entry, *size)
    except UnusableFrame as unusable:
        return f"column image: {unusable}"
    return ""


def _describe_camera(lines: ManifestLines, rows: NDArray[np.int64]) -> str:
    if not len(rows):
        return ""
    if lines.layout.camera == CAMERA_FILE:
        names = sorted({lines.table.texts["camera"][row] for row in rows})
        return ", ".join(names) if len(names) <= 2 else f"{len(names)} files"
    if lines.layout.camera == CAMERA_COLUMNS:
        return f"f {_span(lines.table.numbers['fx_px'][rows])} px"
    return f"{_span(lines.table.numbers['hfov_deg'][rows])}° assumed"


def _span(values: NDArray) -> str:
    least, most = float(values.min()), float(values.max())
    return f"{least:.4g}" if least == most else f"{least:.4g} to {most:.4g}"


def _ranges(lines: ManifestLines, rows: NDArray[np.int64]) -> list[tuple[str, float, float]]:
    """Compute the range of each coordinate of the targets, in the unit of the columns."""
    found = []
    for name in TARGETS[lines.layout.target] if len(rows) else ():
        values = lines.table.numbers[name][rows]
        found.append((name, float(values.min()), float(values.max())))
    return found


def _find_distant(lines: ManifestLines, rows: NDArray[np.int64]) -> list[str]:
    """Describe targets that are possible, but far from where screens are."""
    if lines.layout.target in (GAZE_RAD, GAZE_DEG) or not len(rows):
        return []
    targets, found = lines.targets_mm[rows], []
    if behind := int((targets[:, 2] < -_BEHIND_MM).sum()):
        found.append(
            f"{behind} targets are up to {-targets[:, 2].min():.0f} mm behind the camera (z < 0): correct if the "
            "person looks past the camera"
        )
    if far := int((np.linalg.norm(targets, axis=1) > _FAR_MM).sum()):
        found.append(f"{far} targets are more than {_FAR_MM / 1000:g} m from the camera: are they in mm?")
    return found
