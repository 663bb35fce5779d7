"""The sidecar of a store: annotated frames without a strip, with reasons. Similar reasons are counted together."""

import csv
import io
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from faze.base.errors import UserError
from faze.base.files import decode_text
from faze.base.untrusted import read_untrusted
from faze.data.readers import Reject

COLUMNS = ("person", "file_name", "reason")
UNSTATED = "no reason given"
_NUMBERED = re.compile(r"[-+−]?\w*\d\w*(?:\.\w+)*")  # 700, -3.5, p01, IMG_0003.jpg
DIFFERS = "…"


@dataclass(frozen=True)
class Kind:
    """Rejects whose reasons differ only in numbers or in numbered names."""

    reason: str  # with DIFFERS in place of the parts that differ
    frames: int
    people: int  # to whom these frames belong
    left_out: int  # people who are left out completely for this reason


def sidecar_of(store: Path) -> Path:
    """Return the path at which preprocess lists the rejects of a store."""
    return store.with_name(f"{store.stem}_rejects.csv")


def read_rejects(path: Path) -> list[Reject]:
    """Read a sidecar.

    Raises:
        UserError: The file is missing, truncated or not a table of rejects; the message names file and line.
    """
    return read_untrusted(path, lambda content: list(_parse(content, path)), "run preprocess again")


def _parse(content: bytes, path: Path) -> Iterator[Reject]:
    rows = csv.reader(io.StringIO(decode_text(content, "replace"), newline=""))
    if tuple(next(rows, ())) != COLUMNS:
        raise UserError(f"{path}: not a list of rejects; its first line is not {','.join(COLUMNS)}")
    for row in filter(None, rows):
        if len(row) != len(COLUMNS):
            columns = f"{len(row)} columns instead of {','.join(COLUMNS)}"
            raise UserError(f"{path}: line {rows.line_num} has {columns}: run preprocess again")
        yield Reject(*row)


def kinds(rejects: Iterable[Reject]) -> list[Kind]:
    """Group rejects by kind of reason, in descending order of the number of frames."""
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
    """Return the common text of similar reasons, with the numbers that all of them share."""
    same = iter([len(set(values)) == 1 for values in zip(*map(_NUMBERED.findall, set(reasons)), strict=True)])
    return _NUMBERED.sub(lambda found: found.group() if next(same) else DIFFERS, reasons[0])


def by_person(rejects: Iterable[Reject]) -> Counter[str]:
    """Count the rejected frames of each person; a reject for a whole person is not counted as a frame."""
    return Counter(reject.person_id for reject in rejects if reject.file_name)


def left_out(rejects: Iterable[Reject]) -> dict[str, str]:
    """List the people without any strip, sorted, each with the reason."""
    return dict(sorted((reject.person_id, reject.reason) for reject in rejects if not reject.file_name))
