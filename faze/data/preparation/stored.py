"""Copy strips that are already normalised, from a file in the released layout or ours; reject unsuitable people."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.files import reading
from faze.data.preparation.shards import Prepared
from faze.data.preparation.splits import UNLISTED, Splits
from faze.data.readers import Reject
from faze.data.store.layout import LABEL_SOURCES
from faze.data.store.strips import VALIDITIES, PersonStrips, StripStore

_LARGEST_RAD = np.array([np.pi / 2, np.pi, np.pi / 2, np.pi]) + 1e-3  # pitch, yaw of the gaze, then of the head


def open_stored(path: Path, splits: Splits) -> StripStore:
    """Open a file of strips and check that the split of each person is known.

    Raises:
        UserError: The file cannot be read, or lacks the splits.
    """
    with reading(path):
        strips = StripStore(path)
    silent = [person for person in strips.persons() if not splits.split(person, _stated(strips, person))]
    if silent and not splits.listed:
        raise UserError(
            f"{path}: does not contain the split of person {silent[0]}: set `splits` of this data set to test, or to a "
            "JSON file with the people of each split"
        )
    return strips


def copy_stored(
    strips: StripStore, splits: Splits, size: tuple[int, int], progress: Callable[[int], None]
) -> Iterator[Prepared]:
    """Yield each person in a file or in the list of splits, in order; only a few strips are in memory at a time.

    Args:
        strips: Store opened by `open_stored`.
        splits: Splits of people; those that are listed override those in the file.
        size: Height and width that the strips must have, px.
        progress: Called with the number of finished strips.
    """
    done = 0
    for person in sorted({*strips.persons(), *splits.listed}):
        split, fault = _find_split(strips, person, splits, size)
        if fault:
            yield None, [Reject(person, "", fault)]
            continue
        yield _copy(strips, person, split), []
        done += strips.count(person)
        progress(done)


def _find_split(strips: StripStore, person: str, splits: Splits, size: tuple[int, int]) -> tuple[str, str]:
    """Return a person's split, and the reason why the person is left out, or "" if the person is not."""
    if person not in strips.persons():
        return "", "listed in the splits, but not in the file of strips"
    if not strips.count(person):
        return "", "no strip"
    if (found := strips.size(person)) != size:
        return "", f"strips of {found[0]} x {found[1]} px, not the configured {size[0]} x {size[1]} px (H x W)"
    if fault := _find_label_fault(strips.labels(person)):
        return "", fault
    split = splits.split(person, _stated(strips, person))
    return split, "" if split else UNLISTED


def _stated(strips: StripStore, person: str) -> str:
    return strips.split(person) if strips.states_split(person) else ""


def _find_label_fault(labels: NDArray[np.float32]) -> str:
    """Explain why labels cannot be pitch, yaw, pitch, yaw in radians; return "" if they can."""
    if not np.isfinite(labels).all():
        return "labels are not finite"
    if (np.abs(labels) > _LARGEST_RAD).any():
        return f"labels up to {np.abs(labels).max():.3g} are not pitch and yaw in radians: convert them from degrees"
    return ""


def _copy(strips: StripStore, person: str, split: str) -> PersonStrips:
    return PersonStrips(
        person,
        split,
        strips.file_names(person),
        strips.pieces(person),
        strips.labels(person),
        strips.device(person),
        strips.frame_index(person),
        _positions(strips.label_sources(person), LABEL_SOURCES),
        _positions(strips.validity(person), VALIDITIES),
    )


def _positions(names: np.ndarray, known: tuple[str, ...]) -> np.ndarray:
    return np.array([known.index(name) for name in names], np.uint8)
