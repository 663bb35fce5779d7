"""Convert a person's labelled frames from a manifest into codes for calibration."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.data.readers.person import Person
from faze.fewshot.person_codes import PersonCodes
from faze.gaze.estimator import GazeEstimator
from faze.gaze.sources import frames_of_person

FEWEST = 3  # targets; with two, an interval over targets would be too wide to be useful


@dataclass(frozen=True, eq=False)
class Recording:
    """The n usable frames of one person, in the order of the manifest."""

    person: PersonCodes
    files: list[str]
    target: NDArray[np.int64]  # (n,) index of each frame's target, in the order of the targets' first frames
    distance_mm: NDArray[np.float64]  # (n,) from the gaze origin to the target; nan if only its direction is known
    rejects: list[str]  # file and reason

    def support(self, shots: int | None, left_out: int | None = None) -> list[int]:
        """Choose frames for calibration: the first of each target except `left_out`, then the second, and so on.

        `shots` is the number of frames (None: one per target). Raise UserError if there are too few targets or frames.
        """
        if self.target.max() + 1 < FEWEST:
            first = f"; the first rejected frame is {self.rejects[0]}" if self.rejects else ""
            raise UserError(f"{self.person}: usable frames of at least {FEWEST} targets are needed{first}")
        free = np.flatnonzero(self.target != left_out)
        rank = pd.Series(free).groupby(self.target[free]).cumcount().to_numpy()  # among the frames of a target
        wanted = np.sum(rank == 0) if shots is None else shots
        if wanted > len(free):
            why = f"exceeds the {len(free)} frames that remain when a target is left out to measure its error"
            raise UserError(f"{self.person}: --shots {wanted} {why}: choose fewer, or add frames")
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
