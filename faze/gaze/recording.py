"""Convert a person's labelled frames from a manifest into codes for calibration.

The error is measured on held-out targets. Frames of the same target resemble each other, so the error on a target that
was used for calibration would be too small.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.geometry import angular_error
from faze.data.readers.person import Person
from faze.evaluation.statistics import compare
from faze.evaluation.wording import counted, signed
from faze.fewshot.learners import PersonalEstimator
from faze.fewshot.person_codes import PersonCodes
from faze.gaze.estimator import GazeEstimator
from faze.gaze.sources import frames_of_person

EVERY = 3  # one of three successive targets is held out, at changing positions, so that grids are covered evenly
POSITIONS = (2, 0, 1)


@dataclass(frozen=True, eq=False)
class Recording:
    """The n usable frames of one person, in the order of the manifest."""

    person: PersonCodes
    files: list[str]
    target: NDArray[np.int64]  # (n,) index of each frame's target, in the order of the targets' first frames
    distance_mm: NDArray[np.float64]  # (n,) from the gaze origin to the target; nan if only its direction is known
    rejects: list[str]  # file and reason

    @property
    def held_out(self) -> NDArray[np.int64]:
        """Indices of the frames of held-out targets, which are a third of all targets."""
        return np.flatnonzero(self.target % EVERY == np.array(POSITIONS)[self.target // EVERY % EVERY])

    def support(self, shots: int | None) -> list[int]:
        """Choose frames for calibration: the first of each target that is not held out, then the second, and so on.

        `shots` is the number of frames (None: one per target). Raise UserError if there are too few targets or frames.
        """
        if self.target.max() + 1 < EVERY:
            first = f"; the first rejected frame is {self.rejects[0]}" if self.rejects else ""
            raise UserError(f"{self.person}: usable frames of at least {EVERY} targets are needed{first}")
        free = np.setdiff1d(np.arange(len(self.target)), self.held_out)
        rank = pd.Series(free).groupby(self.target[free]).cumcount().to_numpy()  # among the frames of a target
        wanted = np.sum(rank == 0) if shots is None else shots
        if wanted > len(free):
            raise UserError(f"{self.person}: --shots {wanted} exceeds the {len(free)} frames that are not held out")
        return free[np.argsort(rank, kind="stable")][:wanted].tolist()


def read_recording(estimator: GazeEstimator, person: Person, path: Path) -> Recording:
    """Estimate the gaze in a person's frames from the manifest `path`; estimate missing (NaN) poses from landmarks."""
    faces, used, rejects = [], [], []
    for row, (_, [face, *_]) in enumerate(estimator.frames(frames_of_person(person))):
        if isinstance(face, str):
            rejects.append(f"{person.files[row]}: {face}")
        else:
            faces.append(face)
            used.append(row)
    if not faces:
        raise UserError(f"{path}: no frame of {person.name} can be used; the first rejected frame is {rejects[0]}")
    own, origins = person[np.array(used)], np.stack([face.origin_mm for face in faces])
    targets_mm = own.targets_from(origins)
    distance_mm = np.linalg.norm(targets_mm - origins, axis=1)
    directions = (targets_mm - origins) / distance_mm[:, None]
    # Like all labels, the vector points from the target to the eye, in the normalised camera's frame.
    gaze = -np.einsum("nij,nj->ni", np.stack([face.rotation for face in faces]), directions)
    code, gaze_hat, head = (np.concatenate(parts) for parts in zip(*(face.seen for face in faces), strict=True))
    targets = targets_mm
    if person.gaze is not None:  # only directions are known
        targets, distance_mm = np.degrees(directions), np.full(len(faces), np.nan)
    number = pd.DataFrame(targets.round()).groupby([0, 1, 2], sort=False).ngroup().to_numpy()
    codes = PersonCodes(person.name, path.stem, "test", code, gaze, gaze_hat, head)
    return Recording(codes, own.files, number, distance_mm, rejects)


def measure_held_out(recording: Recording, found: PersonalEstimator) -> tuple[bool, list[str]]:
    """Return whether calibration reduces the error on held-out targets, and a report on frames, samples and errors."""
    held_out, person, count = recording.held_out, recording.person, len(recording.files)
    before = angular_error(person.gaze_hat[held_out], person.gaze[held_out])
    after = angular_error(found.gaze(person.seen(held_out)), person.gaze[held_out])
    of_frames = pd.DataFrame({"before": before, "after": after})  # rad
    target = recording.target[held_out]
    errors_deg = np.degrees(of_frames).groupby(target).mean()
    errors_mm = (2 * np.sin(of_frames / 2)).mul(recording.distance_mm[held_out], axis=0).groupby(target).mean()

    lines = [f"{count} of {count + len(recording.rejects)} frames can be used"]
    lines += [f"  rejected: {reject}" for reject in recording.rejects]
    samples = ", ".join(recording.files[entry] for entry in found.support)
    lines += [f"{found.learner} on {found.shots} samples: {samples}"]
    lines += [f"mean error on {counted(len(errors_deg), 'held-out target')}:"]
    for when, error_deg in errors_deg.mean().items():
        mm = errors_mm[when].mean()
        lines.append(f"  {when}: {error_deg:.2f} degrees" + ("" if np.isnan(mm) else f", {mm:.0f} mm at the target"))
    change = compare(errors_deg["after"] - errors_deg["before"], margin=1.0, alpha=0.025)  # the margin is not used
    low, high = signed(change["low_deg"]), signed(change["high_deg"])
    interval = "" if np.isnan(change["low_deg"]) else f" (95 % interval over targets: {low} to {high})"
    shown = "" if change["high_deg"] < 0 or change["difference_deg"] >= 0 else "; not shown to be an improvement"
    lines.append(f"  change: {signed(change['difference_deg'])} degrees{interval}{shown}")
    return change["difference_deg"] < 0, lines
