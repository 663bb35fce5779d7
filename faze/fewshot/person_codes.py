"""A person's codes, and the entries drawn for calibration."""

import hashlib
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.geometry import mean_angle_deg, vector_from_pitchyaw
from faze.config.parameters import Fewshot
from faze.data.codes import CodeStore


class Seen(NamedTuple):
    """Everything known about n entries except their labels."""

    code: NDArray[np.float32]  # (n, F) gaze code, flattened
    gaze_hat: NDArray[np.float64]  # (n, 3) estimates of the trained gaze head
    head: NDArray[np.float64]  # (n, 2) annotated head pose, pitch and yaw in radians


@dataclass(frozen=True, eq=False)
class PersonCodes:
    """One person's N entries, in the order of the store."""

    name: str
    dataset: str
    split: str
    code: NDArray[np.float32]  # (N, F) gaze code, flattened
    gaze: NDArray[np.float64]  # (N, 3) true directions, unit vectors
    gaze_hat: NDArray[np.float64]  # (N, 3) estimates of the trained gaze head
    head: NDArray[np.float64]  # (N, 2) annotated head pose, pitch and yaw in radians

    def seen(self, entries: NDArray[np.int64] | slice) -> Seen:
        """Return everything known about some entries except their labels."""
        return Seen(self.code[entries], self.gaze_hat[entries], self.head[entries])

    def __str__(self) -> str:
        return f"person {self.name} of {self.dataset}"


def read_people(codes: CodeStore, split: str, *, needed: int, reason: str) -> tuple[list[PersonCodes], list[str]]:
    """Read a split's people with at least `needed` entries, as `reason` requires; describe the people left out."""
    everyone = [read_person(codes, name) for name in codes.persons(split)]
    few = [person for person in everyone if len(person.code) < needed]
    why = f"entries, fewer than the {needed} required by {reason}"
    left_out = [f"{person} is left out: {len(person.code)} {why}" for person in few]
    return [person for person in everyone if person not in few], left_out


def read_person(codes: CodeStore, name: str) -> PersonCodes:
    """Read one person; raise a UserError if a value is not finite."""
    arrays = codes[name]
    for key in ("z_gaze", "gaze", "gaze_hat", "head"):
        if not np.isfinite(arrays[key]).all():
            reason = "the training of the network diverged: lower train.base_lr and train again"
            raise UserError(f"person {name} of {codes.dataset}: {key} is not finite, since {reason}")
    count, *sizes = arrays["z_gaze"].shape
    code = arrays["z_gaze"].reshape(count, math.prod(sizes)).astype(np.float32)
    gaze, gaze_hat, head = (arrays[key].astype(float) for key in ("gaze", "gaze_hat", "head"))
    return PersonCodes(name, codes.dataset, codes.splits[name], code, vector_from_pitchyaw(gaze), gaze_hat, head)


def unadapted_error_deg(person: PersonCodes, query_entries: int) -> float:
    """Measure the trained gaze head's error (k = 0): the mean angle between gaze_hat and gaze over a person's query."""
    return mean_angle_deg(person.gaze_hat[-query_entries:], person.gaze[-query_entries:])


@dataclass(frozen=True, eq=False)
class Calibration:
    """One person's samples, to which a learner is adapted."""

    person: PersonCodes
    repeat: int
    support: NDArray[np.int64]  # (k,) entries


def draw_calibrations(people: Sequence[PersonCodes], settings: Fewshot, *, repeats: int) -> list[Calibration]:
    """Draw `repeats` calibrations (distinct entries outside the query) for every k and person, sorted by k."""
    drawn = []
    for k, person, repeat in itertools.product(settings.shots, people, range(repeats)):
        key = f"{settings.seed}/{person.dataset}/{person.name}/{k}/{repeat}".encode()
        rng = np.random.default_rng(int.from_bytes(hashlib.sha256(key).digest()))
        pool = len(person.code) - settings.query_entries
        drawn.append(Calibration(person, repeat, rng.choice(pool, size=k, replace=False)))
    return drawn
