"""The sidecar of a store: which annotated frames have no strip, and why. Reasons of one kind are counted together."""

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from faze.base.errors import UserError
from faze.data.readers import Reject

COLUMNS = ("person", "file_name", "reason")
UNSTATED = "no reason given"
_NUMBERED = re.compile(r"[-+−]?\w*\d\w*(?:\.\w+)*")  # 700, -3.5, p01, IMG_0003.jpg
DIFFERS = "…"


@dataclass(frozen=True)
class Kind:
    """Rejects that differ only in numbers or numbered names."""

    reason: str  # with DIFFERS in place of what differs between the rejects
    frames: int
    people: int  # whose frames these are
    left_out: int  # people of whom nothing is kept for this reason


def sidecar_of(store: Path) -> Path:
    """Return the path at which preprocess lists the rejects of a store."""
    return store.with_name(f"{store.stem}_rejects.csv")


def read_rejects(path: Path) -> list[Reject]:
    """Read a sidecar.

    Raises:
        UserError: the file is missing, torn, or no table of rejects; names the file and the line.
    """
    try:
        with path.open(newline="", encoding="utf-8", errors="replace") as file:
            rows = csv.reader(file)
            if tuple(next(rows, ())) != COLUMNS:
                raise UserError(f"{path}: not a list of rejects, its first line is not {','.join(COLUMNS)}")
            rejects = []
            for row in filter(None, rows):
                if len(row) != len(COLUMNS):
                    columns = f"{len(row)} of the columns {','.join(COLUMNS)}"
                    raise UserError(f"{path}: line {rows.line_num} has {columns}: preprocess again")
                rejects.append(Reject(*row))
            return rejects
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except csv.Error as error:
        raise UserError(f"{path}: not a list of rejects ({error})") from None


def kinds(rejects: Iterable[Reject]) -> list[Kind]:
    """Group rejects by kind of reason, those with most frames first."""
    groups: dict[str, list[Reject]] = defaultdict(list)
    for reject in rejects:
        groups[_NUMBERED.sub(DIFFERS, reject.reason)].append(reject)
    found = [
        Kind(
            reason=_common([reject.reason for reject in members]) or UNSTATED,
            frames=sum(bool(reject.file_name) for reject in members),
            people=len({reject.person_id for reject in members if reject.file_name}),
            left_out=len({reject.person_id for reject in members if not reject.file_name}),
        )
        for members in groups.values()
    ]
    return sorted(found, key=lambda kind: (-kind.frames, -kind.left_out, kind.reason))


def _common(reasons: Sequence[str]) -> str:
    """Say what reasons of one kind have in common, with the numbers that all of them share."""
    same = iter([len(set(values)) == 1 for values in zip(*map(_NUMBERED.findall, set(reasons)), strict=True)])
    return _NUMBERED.sub(lambda found: found.group() if next(same) else DIFFERS, reasons[0])


def by_person(rejects: Iterable[Reject]) -> Counter[str]:
    """Count the rejected frames of each person; a person left out whole does not count as a frame."""
    return Counter(reject.person_id for reject in rejects if reject.file_name)


def left_out(rejects: Iterable[Reject]) -> dict[str, str]:
    """List the people left out whole, sorted, each with the reason."""
    return dict(sorted((reject.person_id, reject.reason) for reject in rejects if not reject.file_name))
