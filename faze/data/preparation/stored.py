"""Already normalised strips, in the released layout or ours -> the people who fit, and why the others do not."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.data.preparation.assemble import Prepared
from faze.data.readers import Reject
from faze.data.readers.frame_checks import OffScreen
from faze.data.store.layout import ORIGINS, SPLITS
from faze.data.store.strips import VALIDITIES, PersonStrips, StripStore


def read_splits(path: Path) -> dict[str, str]:
    """The split of each person in a JSON of {"train": [people], "val": [people], "test": [people]}.

    Raises:
        UserError: the file is missing or not of this form, or names a person twice.
    """
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise UserError(f"{path}: not JSON") from None
    lists = list(content.values()) if isinstance(content, dict) else []
    if not lists or set(content) - set(SPLITS) or not all(isinstance(people, list) for people in lists):
        raise UserError(f'{path}: is not {{"train": [...], "val": [...], "test": [...]}} with lists of people')
    splits: dict[str, str] = {}
    for split, people in content.items():
        for person in map(str, people):
            if person in splits:
                raise UserError(f"{path}: person {person} is in {splits[person]} and again in {split}")
            splits[person] = split
    return splits


def open_stored(path: Path, dataset: str, splits: Mapping[str, str] | None) -> StripStore:
    """Open a file of strips and see whether the split of each person is known.

    Raises:
        UserError: the file cannot be read, is another data set's, or there is no way to know the splits.
    """
    strips = StripStore(path, tolerant=True)
    if strips.dataset in ("mpiigaze", "gazecapture") and strips.dataset != dataset:
        raise UserError(f"{path}: holds {strips.dataset}, and is given as {dataset}")
    silent = [] if dataset == "mpiigaze" else [person for person in strips.persons() if not strips.states_split(person)]
    if silent and splits is None:
        raise UserError(
            f"{path}: does not say whether person {silent[0]} is of train, val or test: give the list of people by "
            "split as JSON (preprocess.gazecapture_split)"
        )
    return strips


def copy_stored(
    strips: StripStore,
    *,
    dataset: str,
    splits: Mapping[str, str] | None,
    size: tuple[int, int],
    off_screen: OffScreen,
    progress: Callable[[int], None],
) -> Iterator[Prepared]:
    """Give each person of a file, and of the list of splits, in order; holds a few strips at a time.

    Args:
        strips: opened by `open_stored`.
        dataset: of MPIIGaze all are test people.
        splits: of people for whom the file states none.
        size: height and width that the strips must have, px.
        off_screen: whether samples whose target is known to lie off the screen stay.
        progress: is told how many strips are done.
    """
    done = 0

    def told(pieces: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
        nonlocal done
        for piece in pieces:
            yield piece
            done += len(piece)
            progress(done)

    for person in sorted({*strips.persons(), *strips.faults, *(splits or ())}):
        split, fault = _judge(strips, person, dataset, splits, size)
        if fault:
            yield Prepared(None, [Reject(person, "", fault)])
        else:
            kept = np.ones(strips.count(person), bool)
            if off_screen == "exclude":
                kept = strips.validity(person) != "off_screen"
            names = strips.file_names(person) or [f"sample {row}" for row in range(len(kept))]
            rejects = [Reject(person, names[row], "gaze target off the screen") for row in np.flatnonzero(~kept)]
            pixels = told(strips.pieces(person))
            yield Prepared(_as_stored(strips, person, split, pixels, kept) if kept.any() else None, rejects)


def _judge(
    strips: StripStore, person: str, dataset: str, splits: Mapping[str, str] | None, size: tuple[int, int]
) -> tuple[str, str]:
    """Split of a person, and why they are left out or ''."""
    if person in strips.faults:
        return "", strips.faults[person]
    if person not in strips.persons():
        return "", "in the list of splits, but not in the file of strips"
    if not strips.count(person):
        return "", "no strip"
    if (found := strips.size(person)) != size:
        return "", f"strips of {found[0]} x {found[1]} px, not the {size[0]} x {size[1]} px of the settings (H x W)"
    if not np.isfinite(strips.labels(person)).all():
        return "", "labels are not finite"
    try:
        intact = strips.verify(person)  # reads all pixels; a checksum of our own would hide what the file's tells
    except OSError as error:
        return "", f"pixels cannot be read ({error})"
    if intact is False:
        return "", "pixels or labels are not what was written, by their checksum"
    if dataset == "mpiigaze":
        return "test", ""
    split = strips.split(person) if strips.states_split(person) else (splits or {}).get(person, "")
    return split, "" if split else "not in the list of splits"


def _as_stored(
    strips: StripStore, person: str, split: str, pixels: Iterator[np.ndarray], kept: NDArray[np.bool_]
) -> PersonStrips:
    names = strips.file_names(person)
    return PersonStrips(
        person,
        split,
        None if names is None else [names[row] for row in np.flatnonzero(kept)],
        _rows_of(pixels, kept),
        strips.labels(person)[kept],
        strips.device(person),
        strips.frame_index(person)[kept],
        _positions(strips.origins(person)[kept], ORIGINS),
        _positions(strips.validity(person)[kept], VALIDITIES),
    )


def _rows_of(pieces: Iterator[np.ndarray], kept: NDArray[np.bool_]) -> Iterator[np.ndarray]:
    first = 0
    for piece in pieces:
        rows = kept[first : first + len(piece)]
        first += len(piece)
        if rows.any():
            yield piece if rows.all() else piece[rows]


def _positions(names: np.ndarray, known: tuple[str, ...]) -> np.ndarray:
    return np.array([known.index(name) for name in names], np.uint8)
