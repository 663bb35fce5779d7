"""Summarise a store: people, strips, labels with source and validity, checksums, and rejected frames.

Only labels and attributes are read, so that a store of millions of strips takes seconds. Checksums cover all pixels and
are verified on request.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.data.readers import Reject
from faze.data.readers.plausibility import find_unusual
from faze.data.rejects import by_person, kinds, left_out
from faze.data.store.layout import LABEL_SOURCES, SPLITS
from faze.data.store.strips import VALIDITIES, StripStore

LABELS = ("gaze pitch", "gaze yaw", "head pitch", "head yaw")
UNSTATED = "not stated"  # in place of a split, which files of the released code lack
LARGEST_DEG = 90.0  # no pitch is larger, and no camera sees eyes that look further sideways
_QUANTILES = {"least_deg": 0.0, "p1_deg": 0.01, "median_deg": 0.5, "p99_deg": 0.99, "most_deg": 1.0}


@dataclass(frozen=True, eq=False)
class PersonSummary:
    """The content of a store for one person."""

    person_id: str
    split: str
    device: str
    labels_deg: NDArray[np.float32]  # (N, 4) as LABELS
    label_sources: Counter[str]
    validities: Counter[str]
    intact: bool | None  # whether the checksum matches; None: not verified, or there is none

    @property
    def strips(self) -> int:
        """Number of strips."""
        return len(self.labels_deg)


@dataclass(frozen=True, eq=False)
class Inspection:
    """The content of a store and its sidecar."""

    store: Path
    dataset: str
    strip_px: tuple[int, int]  # width, height
    people: Sequence[PersonSummary]
    digest: str  # hash of people, splits, labels, and one strip, whose pixels depend on the normalisation
    verified: bool
    sidecar: Path | None
    rejects: Sequence[Reject]

    @property
    def strips(self) -> int:
        """Number of strips, summed over all people."""
        return sum(person.strips for person in self.people)

    def labels_deg(self, split: str | None = None) -> NDArray[np.float32]:
        """Collect the usable labels (N, 4), in degrees, for one split or for all people."""
        chosen = [person.labels_deg for person in self.people if split in (None, person.split)]
        labels = np.concatenate([np.empty((0, 4), np.float32), *chosen])
        return labels[_usable(labels)]

    @property
    def splits(self) -> list[str]:
        """Non-empty splits, in their usual order."""
        return [split for split in (*SPLITS, UNSTATED) if any(person.split == split for person in self.people)]


def inspect(
    strips: StripStore,
    store: Path,
    sidecar: Path | None = None,
    rejects: Sequence[Reject] = (),
    verify: bool = False,
    tick: Callable[[int], object] = lambda done: None,
) -> Inspection:
    """Read everything in a store except its pixels; only one strip's pixels are read.

    Args:
        strips: Open store.
        store: Path of the store.
        sidecar: Path of the list of rejects; None if there is none.
        rejects: Content of that list.
        verify: Whether to verify every person's checksum, which reads all pixels.
        tick: Called with the number of processed people.

    Raises:
        UserError: The store contains no people, or contains unknown label sources or validities.
    """
    persons = strips.persons()
    if not persons:
        raise UserError(f"{store}: contains no people")
    people, digest = [], hashlib.sha256()
    for done, person in enumerate(persons, start=1):
        labels = strips.labels(person)
        digest.update(f"{person} {strips.split(person)} {len(labels)}\n".encode() + labels.tobytes())
        people.append(_summarise_person(strips, person, labels, verify))
        tick(done)
    first_strips = (strips.pixels(person.person_id, 0) for person in people if person.strips)
    strip = next(first_strips, np.empty((0, 0, 3), np.uint8))
    digest.update(strip.tobytes())
    return Inspection(
        store=store,
        dataset=strips.dataset,
        strip_px=(strip.shape[1], strip.shape[0]),
        people=people,
        digest=digest.hexdigest()[:16],
        verified=verify,
        sidecar=sidecar,
        rejects=rejects,
    )


def _summarise_person(strips: StripStore, person: str, labels: NDArray[np.float32], verify: bool) -> PersonSummary:
    return PersonSummary(
        person_id=person,
        split=strips.split(person) if strips.states_split(person) else UNSTATED,
        device=strips.device(person),
        labels_deg=np.degrees(labels),
        label_sources=Counter(strips.label_sources(person).tolist()),
        validities=Counter(strips.validity(person).tolist()),
        intact=strips.verify(person) if verify else None,
    )


def _usable(labels_deg: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Find the rows whose labels are finite and valid angles."""
    return np.isfinite(labels_deg).all(axis=1) & (np.abs(labels_deg[:, ::2]) <= LARGEST_DEG).all(axis=1)


def summarise(inspection: Inspection) -> dict:
    """Summarise an inspection for JSON, without the labels: counts, ranges in degrees, kinds of rejects, checksums."""
    people = inspection.people
    labels = inspection.labels_deg()
    return {
        "dataset": inspection.dataset,
        "store": inspection.store.name,
        "digest": inspection.digest,
        "strip_px": list(inspection.strip_px),
        "people": len(people),
        "strips": inspection.strips,
        "splits": [_count_split(split, people) for split in inspection.splits],
        "label_sources": _in_order(LABEL_SOURCES, (person.label_sources for person in people)),
        "validities": _in_order(VALIDITIES, (person.validities for person in people)),
        "devices": dict(Counter(person.device for person in people if person.device).most_common()),
        "ranges": [_range(name, column) for name, column in zip(LABELS, labels.T, strict=True)] if len(labels) else [],
        "unusable_labels": inspection.strips - len(labels),
        "unusual": [
            f"person {person.person_id}: {words}"
            for person in people
            for words in find_unusual(np.radians(person.labels_deg[_usable(person.labels_deg)]))
        ],
        "checksums": _checksums(people) if inspection.verified else None,
        "rejects": _count_rejects(inspection) if inspection.sidecar else None,
    }


def _in_order(names: Sequence[str], counters: Iterable[Counter[str]]) -> dict[str, int]:
    """Add up counters, ordered by the given names, with other keys last; omit zero counts."""
    total = sum(counters, Counter())
    return {name: total[name] for name in dict.fromkeys([*names, *sorted(total)]) if total[name]}


def _count_split(split: str, people: Sequence[PersonSummary]) -> dict[str, object]:
    counts = [person.strips for person in people if person.split == split]
    per_person = {"least": min(counts), "median": float(np.median(counts)), "most": max(counts)}
    return {"split": split, "people": len(counts), "strips": sum(counts)} | per_person


def _range(name: str, column_deg: NDArray[np.float32]) -> dict[str, object]:
    ends = np.quantile(column_deg, list(_QUANTILES.values()))
    return {"label": name} | {key: float(end) for key, end in zip(_QUANTILES, ends, strict=True)}


def _checksums(people: Sequence[PersonSummary]) -> dict[str, object]:
    return {
        "intact": sum(person.intact is True for person in people),
        "damaged": [person.person_id for person in people if person.intact is False],
        "without": sum(person.intact is None for person in people),
    }


def _count_rejects(inspection: Inspection) -> dict[str, object]:
    found = kinds(inspection.rejects)
    frames = sum(kind.frames for kind in found)
    return {
        "sidecar": inspection.sidecar.name,
        "frames": frames,
        "share": frames / max(frames + inspection.strips, 1),
        "kinds": [vars(kind) for kind in found],
        "left_out": left_out(inspection.rejects),
    }


def person_rows(inspection: Inspection) -> list[dict[str, object]]:
    """List one row per person with counts, label ranges and checksum; people without any strip come last."""
    rejected, gone = by_person(inspection.rejects), left_out(inspection.rejects)
    rows = [
        _person_row(person, rejected[person.person_id], gone.get(person.person_id, "")) for person in inspection.people
    ]
    missing = sorted({*rejected, *gone} - {person.person_id for person in inspection.people})
    return rows + [{"person": p, "strips": 0, "rejected": rejected[p], "left_out": gone.get(p, "")} for p in missing]


def _person_row(person: PersonSummary, rejected: int, reason: str) -> dict[str, object]:
    labels = person.labels_deg[_usable(person.labels_deg)]
    row: dict[str, object] = {"person": person.person_id, "split": person.split, "device": person.device}
    row |= {"strips": person.strips, "rejected": rejected, "unusable_labels": person.strips - len(labels)}
    row |= {name: person.validities[name] for name in VALIDITIES} | {
        name: person.label_sources[name] for name in LABEL_SOURCES
    }
    row |= {
        f"{name.replace(' ', '_')}_{end}_deg": float(find(column)) if len(labels) else math.nan
        for name, column in zip(LABELS, labels.T, strict=True)
        for end, find in (("least", np.min), ("most", np.max))
    }
    return row | {"checksum": CHECKSUM_WORDS[person.intact], "left_out": reason}


CHECKSUM_WORDS: Mapping[bool | None, str] = {True: "intact", False: "damaged", None: ""}
