"""A person's own labelled frames, of a manifest, as codes for a calibration.

Held-out targets measure the calibration: frames of one target resemble each other, so the error on a frame of a target
that was used would be too small.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.geometry import angular_error
from faze.base.progress import Progress
from faze.data.landmarks import NO_FACE
from faze.data.normalization.images import read_image
from faze.data.normalization.pose import UnusableFrame
from faze.data.readers.person import Person
from faze.evaluation.statistics import compare
from faze.evaluation.wording import counted, signed
from faze.fewshot.person_codes import PersonCodes
from faze.fewshot.personal_estimator import PersonalEstimator
from faze.gaze.estimator import FaceGaze, GazeEstimator

MOST_LISTED = 20  # rejected frames
EVERY = 3  # one of three successive targets is held out, each time in another position, also in a grid
POSITIONS = (2, 0, 1)
SAME_MM, SAME_DEG = 1.0, 1.0  # distances up to which two targets or directions count as one


@dataclass(frozen=True, eq=False)
class Recording:
    """The usable frames of one person, n of them, in the order of the manifest."""

    person: PersonCodes
    files: list[str]
    target: NDArray[np.int64]  # (n,) number of each frame's target, from 0, in the order of their first frames
    distance_mm: NDArray[np.float64]  # (n,) from the gaze origin to the target; nan if only its direction is known
    rejects: list[str]  # file and reason

    @property
    def _is_held_out(self) -> NDArray[np.bool_]:
        return self.target % EVERY == np.array(POSITIONS)[self.target // EVERY % EVERY]

    def held_out(self) -> NDArray[np.int64]:
        """Return the frames of held-out targets, a third of all targets."""
        return np.flatnonzero(self._is_held_out)

    def support(self, shots: int | None) -> list[int]:
        """Choose frames for calibration: the first of each target that is not held out, then the second, and so on.

        `shots` is their number; None: one of each target. Too few targets or frames are a UserError.
        """
        targets = 1 + self.target.max(initial=-1)
        if targets < EVERY:
            shown = f"{counted(len(self.files), 'usable frame')} with {counted(targets, 'target')}"
            first = f"; first reject: {self.rejects[0]}" if self.rejects else ""
            raise UserError(f"{self.person}: has {shown}, but {EVERY} are needed, one of which is held out{first}")
        free = np.flatnonzero(~self._is_held_out)
        rank = np.array([np.sum(self.target[:frame] == self.target[frame]) for frame in free])
        in_order = free[np.lexsort((free, rank))].tolist()
        wanted = int(np.sum(rank == 0)) if shots is None else shots
        if wanted > len(in_order):
            raise UserError(f"{self.person}: --shots {wanted} is more than the {len(in_order)} frames not held out")
        return in_order[:wanted]


def read_recording(estimator: GazeEstimator, person: Person, path: Path) -> Recording:
    """Estimate the gaze in a person's frames in a manifest (path); landmarks give the head poses that are NaN."""
    faces, used, rejects = [], [], []
    progress = Progress("calibrate", len(person.files), "frames")
    for row, file in enumerate(person.files):
        progress(row)
        try:
            faces.append(_estimate(estimator, person, row))
            used.append(row)
        except UnusableFrame as unusable:
            rejects.append(f"{file}: {unusable}")
    if not faces:
        raise UserError(f"{path}: no frame of {person.name} can be used; the first: {rejects[0]}")
    own, origins = person[np.array(used)], np.stack([face.origin_mm for face in faces])
    targets_mm = own.targets_from(origins)
    distance_mm = np.maximum(np.linalg.norm(targets_mm - origins, axis=1), 1e-9)
    directions = (targets_mm - origins) / distance_mm[:, None]
    # Like all labels, the vector points from the target to the eye, in the normalised camera's frame.
    gaze = -np.stack([face.rotation @ direction for face, direction in zip(faces, directions, strict=True)])
    code, gaze_hat, head = (np.concatenate(parts) for parts in zip(*(face.seen for face in faces), strict=True))
    is_point = person.gaze is None
    return Recording(
        PersonCodes(person.name, path.stem, "test", code, gaze, gaze_hat, head),
        own.files,
        _numbered(targets_mm, SAME_MM) if is_point else _numbered(np.degrees(directions), SAME_DEG),
        distance_mm if is_point else np.full(len(faces), np.nan),
        rejects,
    )


def _estimate(estimator: GazeEstimator, person: Person, row: int) -> FaceGaze:
    if person.reasons[row]:
        raise UnusableFrame(person.reasons[row])
    image, camera = read_image(person.folder / person.files[row]), (person.cameras[row], person.distortions[row])
    if not np.isnan(person.poses[row]).any():
        corners_mm = np.broadcast_to(person.corners_mm, (len(person.files), 2, 3))[row]
        return estimator.at_pose(image, camera, person.poses[row], corners_mm)
    face = next(iter(estimator.faces(image, camera)), NO_FACE)
    if isinstance(face, str):
        raise UnusableFrame(face)
    return face


def _numbered(points: NDArray[np.float64], same: float) -> NDArray[np.int64]:
    """Return the number of each point (n, 3), from 0; within the distance `same` of an earlier one, it is equal."""
    known: list[NDArray] = []
    numbers = []
    for point in points:
        near = [number for number, other in enumerate(known) if np.linalg.norm(other - point) <= same]
        if not near:
            known.append(point)
        numbers.append(near[0] if near else len(known) - 1)
    return np.array(numbers, np.int64)


def measure_held_out(recording: Recording, found: PersonalEstimator) -> tuple[bool, list[str]]:
    """Return whether the mean error on held-out targets decreases, and lines about frames, samples and errors."""
    frames, person = recording.held_out(), recording.person
    target, count = recording.target[frames], len(recording.files)
    lines = [f"{count} of {count + len(recording.rejects)} frames can be used"]
    lines += [f"  rejected: {reject}" for reject in recording.rejects[:MOST_LISTED]]
    samples = ", ".join(recording.files[entry] for entry in found.support)
    lines.append(f"{found.learner} on {found.shots} samples: {samples}")
    targets = counted(len(np.unique(target)), "held-out target")
    lines.append(f"mean error on {targets}, with its 95 % interval over targets:")
    errors_deg = []
    for when, gaze in (("before", person.gaze_hat[frames]), ("after", found.gaze(person.seen(frames)))):
        error = angular_error(gaze, person.gaze[frames])
        errors_deg.append(_of_targets(np.degrees(error), target))
        mean, low, high = _with_interval(errors_deg[-1])
        mm = _of_targets(2 * recording.distance_mm[frames] * np.sin(error / 2), target).mean()
        ends = "" if math.isnan(low) else f" ({max(low, 0):.2f} to {high:.2f})"
        at_target = "" if math.isnan(mm) else f", {mm:.0f} mm at the target"
        lines.append(f"  {when}: {mean:.2f} degrees{ends}{at_target}")
    mean, low, high = _with_interval(errors_deg[1] - errors_deg[0])
    ends = "" if math.isnan(low) else f" ({signed(low)} to {signed(high)})"
    shown = "" if high < 0 or mean >= 0 else "; not shown to be an improvement"
    lines.append(f"  change: {signed(mean)} degrees{ends}{shown}")
    return mean < 0, lines


def _with_interval(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the mean with the ends of its two-sided 95 % interval."""
    found = compare(values, margin=1.0, alpha=0.025)
    return found["difference_deg"], found["low_deg"], found["high_deg"]


def _of_targets(values: NDArray[np.float64], target: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the mean of each target's frames."""
    return np.array([values[target == number].mean() for number in np.unique(target)])
