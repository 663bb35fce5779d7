"""Read a manifest: anyone's frames, described by one CSV or Parquet file with one frame a line.

docs/how-to/own-frames.md describes the columns. All coordinates are OpenCV's, in the camera frame: x right, y down, z
away from the camera, in mm and px.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import DamagedFile, UserError
from faze.data.normalization.pose import (
    INNER_EYE_CORNERS_6_MM,
    INNER_EYE_CORNERS_14_MM,
    gaze_origins_mm,
    normalize_poses,
)
from faze.data.readers import Frame, Reject
from faze.data.readers.manifest_columns import POSE
from faze.data.readers.manifest_lines import ManifestLines, UnposedFrame, as_frame
from faze.data.readers.manifest_table import read_layout
from faze.data.readers.manifest_units import explain_head_distances
from faze.data.readers.plausibility import find_impossible
from faze.data.store.supplementary import Supplementary, read_supplementary, supplementary_persons

SUFFIXES = (".csv", ".tsv", ".parquet")  # of a manifest
FACE_MODELS = {"faze": INNER_EYE_CORNERS_14_MM, "mpiigaze": INNER_EYE_CORNERS_6_MM}
_ABSENT = "not in the supplementary annotation: run `faze landmarks` again"


def needs_landmarks(path: Path) -> bool:
    """Return whether a manifest has no head poses, reading only its header.

    Raises:
        UserError: The file cannot be read, or its columns are incomplete or ambiguous.
    """
    return not read_layout(path).has_pose


@dataclass(frozen=True, eq=False)
class _Poses:
    """Head poses, targets and labels of n lines, in the camera frame."""

    rotations: NDArray  # (n, 3) head -> camera, rad
    translations_mm: NDArray  # (n, 3)
    corners_mm: NDArray  # (n, 2, 3) inner eye corners in the head frame
    targets_mm: NDArray  # (n, 3)
    labels: NDArray  # (n, 4)
    label_source: str


class Manifest:
    """The people of a manifest, with the head poses of its columns or of `faze landmarks`."""

    layout = "manifest"

    def __init__(self, path: Path, supplementary: Path | None) -> None:
        """Read and check all lines.

        Args:
            path: CSV or Parquet; the paths in it are relative to its folder.
            supplementary: HDF5 that `faze landmarks` wrote for this manifest; None if the manifest has head poses.

        Raises:
            UserError: The manifest has a fault that concerns all lines, or head poses are missing or given twice.
        """
        self.lines = ManifestLines(path)
        self._supplementary = supplementary
        self._annotated: dict[str, int] = {}
        if self.lines.layout.has_pose:
            self._poses = self.lines.table.array(*POSE)
            if supplementary is not None:
                raise UserError(
                    f"{path}: has head poses, and so has {supplementary}: remove the columns {POSE[0]} to "
                    f"{POSE[-1]}, or do not pass the annotation"
                )
        elif supplementary is None:
            raise UserError(
                f"{path}: has no head poses: add the columns {', '.join(POSE)}, or pass "
                "the annotation that `faze landmarks` writes"
            )
        else:
            self._annotated = supplementary_persons(supplementary)

    def persons(self) -> list[str]:
        """List the people, sorted."""
        return self.lines.persons()

    def count(self, person: str) -> int:
        """Count the lines of a person."""
        return self.lines.count(person)

    def entries(self, person: str) -> Iterator[Frame | Reject]:
        """See Reader; yields one record a line, in the order of `session` and `time_s` if these columns exist."""
        try:
            lines, poses = self._read(person)
        except DamagedFile:
            raise
        except UserError as error:
            yield Reject(person, "", str(error))
            return
        for row, line in enumerate(lines):
            pose = poses.rotations[row], poses.translations_mm[row], poses.corners_mm[row]
            yield line if isinstance(line, Reject) else as_frame(line, *pose, poses.targets_mm[row], poses.label_source)

    def labels(self, person: str) -> tuple[list[UnposedFrame | Reject], NDArray]:
        """Return a person's lines, in the order of `entries`, and their labels.

        Returns:
            The lines, and (n, 4) gaze pitch, yaw, head pitch, yaw in rad in the normalised camera; the labels of a
            Reject are undefined.

        Raises:
            UserError: The annotation does not contain the person, or cannot be read.
        """
        lines, poses = self._read(person)
        return lines, poses.labels

    def _read(self, person: str) -> tuple[list[UnposedFrame | Reject], "_Poses"]:
        """Read a person's lines and poses; replace lines without valid labels with rejects."""
        lines = list(self.lines.unposed(person))
        numbers, corners, reasons, source = (self._column_poses if self.lines.layout.has_pose else self._read_poses)(
            lines, person
        )
        rotations, translations = numbers[:, :3], numbers[:, 3:]
        targets = np.full((len(lines), 3), np.nan)
        for row, origin in enumerate(gaze_origins_mm(rotations, translations, corners)):
            if isinstance(line := lines[row], UnposedFrame):
                targets[row] = line.target_from(origin)
        labels, faults = _find_labels(rotations, translations, corners, targets)
        for row, reason in enumerate(reasons):
            line, reason = lines[row], reason or faults[row]
            if reason and isinstance(line, UnposedFrame):
                words = f"line {line.line}: {reason}"
                lines[row] = Reject(person, line.file_name, words)
        return lines, _Poses(rotations, translations, corners, targets, labels, source)

    def _column_poses(
        self, lines: Sequence[UnposedFrame | Reject], person: str
    ) -> tuple[NDArray, NDArray, list[str], str]:
        """Return (n, 6) head poses, (n, 2, 3) inner eye corners, reasons against them, and the source of the labels."""
        rows, table = self.lines.rows[person], self.lines.table
        poses = self._poses[rows]
        names = [(table.texts["face_model"][row] or "faze") if "face_model" in table.texts else "faze" for row in rows]
        reasons = [
            reason if name in FACE_MODELS else f"column face_model: is {name[:40]!r}, not {' or '.join(FACE_MODELS)}"
            for name, reason in zip(names, explain_head_distances(poses[:, 3:]), strict=True)
        ]
        corners = np.stack([FACE_MODELS.get(name, INNER_EYE_CORNERS_14_MM) for name in names])
        return poses, corners, reasons, "annotated"

    def _read_poses(
        self, lines: Sequence[UnposedFrame | Reject], person: str
    ) -> tuple[NDArray, NDArray, list[str], str]:
        """Return the same as `_column_poses`, from the supplementary annotation."""
        if person not in self._annotated:
            raise UserError(_ABSENT)
        entries = read_supplementary(self._supplementary, person)
        rows = {name: row for row, name in enumerate(entries.file_names)}
        poses, reasons = np.full((len(lines), 6), np.nan), []
        for position, line in enumerate(lines):
            row = rows.get(line.file_name)
            reasons.append(_ABSENT if row is None else _explain_entry(entries, row, line))
            if row is not None:
                poses[position] = entries.head_pose[row]
        corners = np.broadcast_to(INNER_EYE_CORNERS_14_MM, (len(lines), 2, 3))
        return poses, corners, reasons, entries.label_source


def _explain_entry(entries: Supplementary, row: int, line: UnposedFrame | Reject) -> str:
    """Explain why an entry of the annotation does not give a line's head pose; return "" if it does."""
    if isinstance(line, Reject):
        return line.reason
    if entries.reasons and entries.reasons[row]:
        return entries.reasons[row]
    lenses = np.zeros((2, 14))  # shorter ones are completed by zeros, as OpenCV does
    for lens, values in zip(lenses, (line.distortion, entries.distortion_parameters[row]), strict=True):
        lens[: len(values)] = values[:14]
    camera = line.camera_matrix[[0, 1, 0, 1], [0, 1, 2, 2]]
    if not np.allclose(camera, entries.camera_parameters[row], rtol=1e-9) or not np.allclose(*lenses):
        return "its head pose was estimated with another camera: run `faze landmarks` again"
    return ""


def _find_labels(
    rotations: NDArray, translations: NDArray, corners: NDArray, targets: NDArray
) -> tuple[NDArray, list[str]]:
    """Compute (n, 4) labels, and for each row why it cannot have them, or ""."""
    poses, reasons = normalize_poses(rotations, translations, corners, targets)
    impossible = find_impossible(poses.labels)
    return poses.labels, [reason or other for reason, other in zip(reasons, impossible, strict=True)]
