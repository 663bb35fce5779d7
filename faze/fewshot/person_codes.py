"""Read the gaze codes of a person from a store, for few-shot learning."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.geometry import mean_angle_deg, vector_from_pitchyaw
from faze.data.store.codes import CodeStore


class Seen(NamedTuple):
    """Everything known of n entries except their labels."""

    code: NDArray[np.float32]  # (n, F) gaze code, flattened
    gaze_hat: NDArray[np.float64]  # (n, 3) of the trained gaze head
    head: NDArray[np.float64]  # (n, 2) annotated head pose, pitch and yaw in radians


@dataclass(frozen=True, eq=False)
class PersonCodes:
    """One person's N entries, in the store's order."""

    name: str
    dataset: str
    split: str
    code: NDArray[np.float32]  # (N, F) gaze code, flattened
    gaze: NDArray[np.float64]  # (N, 3) true direction, unit vectors
    gaze_hat: NDArray[np.float64]  # (N, 3) of the trained gaze head
    head: NDArray[np.float64]  # (N, 2) annotated head pose, pitch and yaw in radians

    def seen(self, entries: NDArray[np.int64] | slice) -> Seen:
        """Everything known of some entries except their labels."""
        return Seen(self.code[entries], self.gaze_hat[entries], self.head[entries])

    def __str__(self) -> str:
        return f"person {self.name} of {self.dataset}"


def open_codes(path: Path, default_split: str = "train") -> CodeStore:
    """Open a store of codes with at least one person.

    Raises:
        UserError: it contains nobody, or is not such a store.
    """
    codes = CodeStore(path, default_split)
    if not codes.persons():
        raise UserError(f"{path}: holds no person: encode a data set that has some")
    return codes


def read_people(codes: CodeStore, split: str, *, needed: int, reason: str) -> tuple[list[PersonCodes], list[str]]:
    """Read the people of one split who have enough entries.

    Args:
        codes: an opened store of codes.
        split: train, val or test.
        needed: entries that a person must have.
        reason: the config key that needs them.

    Returns:
        These people, and a sentence about each person who is left out.

    Raises:
        UserError: a value is not finite; the sentence names the person.
    """
    everyone = [read_person(codes, name) for name in codes.persons(split)]
    left_out = [
        f"{person} is left out: {len(person.code)} entries, fewer than the {needed} of {reason}"
        for person in everyone
        if len(person.code) < needed
    ]
    return [person for person in everyone if len(person.code) >= needed], left_out


def read_person(codes: CodeStore, name: str) -> PersonCodes:
    """Read one person.

    Raises:
        UserError: a value is not finite; the sentence names the person.
    """
    arrays = codes[name]
    for key in ("z_gaze", "gaze", "gaze_hat", "head"):
        if key not in arrays:
            raise UserError(f"person {name} of {codes.dataset}: the store of codes has no {key}: encode again")
        bad = ~np.isfinite(arrays[key]).all(axis=tuple(range(1, arrays[key].ndim)))
        if bad.any():
            raise UserError(
                f"person {name} of {codes.dataset}: {key} of {bad.sum()} of {len(bad)} entries is not finite "
                f"(first: entry {bad.argmax()}); its checkpoint's training diverged: lower train.base_lr, run again"
            )
    z_gaze = arrays["z_gaze"]
    code = z_gaze.reshape(len(z_gaze), math.prod(z_gaze.shape[1:])).astype(np.float32)  # -1 would fail without an entry
    gaze = vector_from_pitchyaw(arrays["gaze"].astype(np.float64))
    gaze_hat, head = (arrays[key].astype(np.float64) for key in ("gaze_hat", "head"))
    return PersonCodes(name, codes.dataset, codes.split(name), code, gaze, gaze_hat, head)


def unadapted_error_deg(person: PersonCodes, query_entries: int) -> float:
    """Measure the trained gaze head itself, k = 0: the mean angle of gaze_hat over a person's query."""
    return mean_angle_deg(person.gaze_hat[-query_entries:], person.gaze[-query_entries:])
