"""Already normalised strips, in the released layout or ours -> the people who fit, and why the others do not."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from faze.datasets import Reject
from faze.preparation.assemble import Prepared
from faze.store import ORIGINS, SPLITS, VALIDITIES, PersonStrips, Strips


def read_splits(path: Path) -> dict[str, str]:
    """The split of each person in a JSON of {"train": [people], "val": [people], "test": [people]}.

    Raises:
        ValueError: the file is missing or not of this form, or names a person twice.
    """
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise ValueError(f"{path}: not JSON") from None
    lists = list(content.values()) if isinstance(content, dict) else []
    if not lists or set(content) - set(SPLITS) or not all(isinstance(people, list) for people in lists):
        raise ValueError(f'{path}: is not {{"train": [...], "val": [...], "test": [...]}} with lists of people')
    splits: dict[str, str] = {}
    for split, people in content.items():
        for person in map(str, people):
            if person in splits:
                raise ValueError(f"{path}: person {person} is in {splits[person]} and again in {split}")
            splits[person] = split
    return splits


def open_stored(path: Path, dataset: str, splits: Mapping[str, str] | None) -> Strips:
    """Open a file of strips and see whether the split of each person is known.

    Raises:
        ValueError: the file cannot be read, is another data set's, or there is no way to know the splits.
    """
    strips = Strips(path, tolerant=True)
    if strips.dataset in ("mpiigaze", "gazecapture") and strips.dataset != dataset:
        raise ValueError(f"{path}: holds {strips.dataset}, and is given as {dataset}")
    silent = [] if dataset == "mpiigaze" else [person for person in strips.persons() if not strips.states_split(person)]
    if silent and splits is None:
        raise ValueError(
            f"{path}: does not say whether person {silent[0]} is of train, val or test: give the list of people by "
            "split as JSON (preprocess.gazecapture_split)"
        )
    return strips


def copy_stored(
    strips: Strips,
    *,
    dataset: str,
    splits: Mapping[str, str] | None,
    size: tuple[int, int],
    progress: Callable[[int], None],
) -> Iterator[Prepared]:
    """Give each person of a file, and of the list of splits, in order; holds a few strips at a time.

    Args:
        strips: opened by `open_stored`.
        dataset: of MPIIGaze all are test people.
        splits: of people for whom the file states none.
        size: height and width that the strips must have, px.
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
            yield Prepared(_as_stored(strips, person, split, told(strips.pieces(person))), [])


def _judge(
    strips: Strips, person: str, dataset: str, splits: Mapping[str, str] | None, size: tuple[int, int]
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
    if dataset == "mpiigaze":
        return "test", ""
    split = strips.split(person) if strips.states_split(person) else (splits or {}).get(person, "")
    return split, "" if split else "not in the list of splits"


def _as_stored(strips: Strips, person: str, split: str, pixels: Iterator[np.ndarray]) -> PersonStrips:
    return PersonStrips(
        person,
        split,
        strips.file_names(person),
        pixels,
        strips.labels(person),
        strips.device(person),
        strips.frame_index(person),
        _positions(strips.origins(person), ORIGINS),
        _positions(strips.validity(person), VALIDITIES),
    )


def _positions(names: np.ndarray, known: tuple[str, ...]) -> np.ndarray:
    return np.array([known.index(name) for name in names], np.uint8)
