"""A person's own labelled frames, a manifest, as codes for a calibration.

Held-out targets measure the calibration: frames of one target resemble each other, so the error on a frame of a target
that was used would be too small.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.geometry import angular_error
from faze.base.progress import Progress
from faze.data.landmarks import NO_FACE
from faze.data.normalization.images import read_image
from faze.data.normalization.pose import UnusableFrame
from faze.data.readers import Frame, Reject, check_principal_point
from faze.data.readers.manifest import Manifest
from faze.data.readers.manifest_lines import ManifestLines, UnposedFrame
from faze.evaluation.statistics import Comparison, compare
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

        Args:
            shots: their number; None: one of each target.

        Raises:
            UserError: there are too few targets or frames.
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


@dataclass(frozen=True)
class HeldOut:
    """Errors on held-out targets, each the mean over its frames."""

    targets: int
    before: Comparison  # mean and 95 % interval over targets, degrees
    after: Comparison
    change: Comparison
    before_mm: float  # at the targets' distances; nan if these are unknown
    after_mm: float


def read_recording(estimator: GazeEstimator, lines: ManifestLines, name: str) -> Recording:
    """Estimate the gaze in a person's frames. Head poses are the manifest's or, if it has none, those of landmarks.

    Args:
        estimator: the network without a person.
        lines: the manifest.
        name: the person.

    Raises:
        UserError: no frame can be used.
    """
    records = Manifest(lines.path, None).entries(name) if lines.layout.has_pose else lines.unposed(name)
    faces, files, targets, rejects = [], [], [], []
    progress = Progress("calibrate", lines.count(name), "frames")
    for done, record in enumerate(records, start=1):
        progress(done)
        try:
            faces.append(face := _estimate(estimator, record))
        except UnusableFrame as unusable:
            rejects.append(f"{record.file_name}: {unusable}")
            continue
        files.append(record.file_name)
        targets.append(record.gaze_target_mm if isinstance(record, Frame) else record.target_from(face.origin_mm))
    if not faces:
        raise UserError(f"{lines.path}: no frame of {name} can be used; the first: {rejects[0]}")
    origins, targets_mm = np.stack([face.origin_mm for face in faces]), np.stack(targets)
    distance_mm = np.maximum(np.linalg.norm(targets_mm - origins, axis=1), 1e-9)
    directions = (targets_mm - origins) / distance_mm[:, None]
    # Like all labels, the vector points from the target to the eye, in the normalised camera's frame.
    gaze = -np.stack([face.rotation @ direction for face, direction in zip(faces, directions, strict=True)])
    code, gaze_hat, head = (np.concatenate(parts) for parts in zip(*(face.seen for face in faces), strict=True))
    only_directions = lines.targets_mm is None
    return Recording(
        PersonCodes(name, lines.path.stem, "test", code, gaze, gaze_hat, head),
        files,
        _numbered(np.degrees(directions), SAME_DEG) if only_directions else _numbered(targets_mm, SAME_MM),
        np.full(len(faces), np.nan) if only_directions else distance_mm,
        rejects,
    )


def _estimate(estimator: GazeEstimator, record: Frame | UnposedFrame | Reject) -> FaceGaze:
    if isinstance(record, Reject):
        raise UnusableFrame(record.reason)
    image, camera = read_image(record.image_path), (record.camera_matrix, record.distortion)
    check_principal_point(record.camera_matrix, image.shape[1], image.shape[0])
    if isinstance(record, Frame):
        pose = np.concatenate([record.rotation_vector, record.translation_mm])
        return estimator.at_pose(image, camera, pose, record.inner_eye_corners_mm)
    face = next(iter(estimator.faces(image, camera)), NO_FACE)
    if isinstance(face, str):
        raise UnusableFrame(face)
    return face


def _numbered(points: NDArray[np.float64], same: float) -> NDArray[np.int64]:
    """Return the number of each point (n, 3), from 0; within the distance `same` of an earlier one, it is equal."""
    known: list[NDArray] = []
    numbers = []
    for point in points:
        near = (number for number, other in enumerate(known) if np.linalg.norm(other - point) <= same)
        number = next(near, len(known))
        known += [point] * (number == len(known))
        numbers.append(number)
    return np.array(numbers, np.int64)


def measure_held_out(recording: Recording, found: PersonalEstimator) -> HeldOut:
    """Measure a calibration on the held-out targets."""
    frames, person = recording.held_out(), recording.person
    errors = [
        angular_error(gaze, person.gaze[frames]) for gaze in (person.gaze_hat[frames], found.gaze(person.seen(frames)))
    ]
    own = recording.target[frames]
    before, after = (_of_targets(np.degrees(error), own) for error in errors)
    before_mm, after_mm = (
        np.mean(_of_targets(2 * recording.distance_mm[frames] * np.sin(error / 2), own)) for error in errors
    )
    whole = {"margin": 1.0, "alpha": 0.025}  # a two-sided 95 % interval
    comparisons = [compare(each, **whole) for each in (before, after, after - before)]
    return HeldOut(len(before), *comparisons, float(before_mm), float(after_mm))


def _of_targets(values: NDArray[np.float64], target: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.array([values[target == number].mean() for number in np.unique(target)])


def describe_frames(recording: Recording, found: PersonalEstimator, measured: HeldOut) -> Iterator[str]:
    """Describe the frames, the samples and the errors, line by line."""
    count = len(recording.files)
    yield f"{count} of {count + len(recording.rejects)} frames can be used"
    yield from (f"  rejected: {reject}" for reject in recording.rejects[:MOST_LISTED])
    yield f"{found.learner} on {found.shots} samples: {', '.join(recording.files[entry] for entry in found.support)}"
    yield f"mean error on {counted(measured.targets, 'held-out target')}, with its 95 % interval over targets:"
    for when, error, mm in (
        ("before", measured.before, measured.before_mm),
        ("after", measured.after, measured.after_mm),
    ):
        at_target = "" if math.isnan(mm) else f", {mm:.0f} mm at the target"
        ends = "" if math.isnan(error.low) else f" ({max(error.low, 0):.2f} to {error.high:.2f})"
        yield f"  {when}: {error.difference:.2f} degrees{ends}{at_target}"
    change = measured.change
    ends = "" if math.isnan(change.low) else f" ({signed(change.low)} to {signed(change.high)})"
    shown = "" if change.high < 0 or change.difference >= 0 else "; not shown to be an improvement"
    yield f"  change: {signed(change.difference)} degrees{ends}{shown}"
