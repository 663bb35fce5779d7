"""Blocks or stored strips of people -> the people who have strips, and the list of what is left out."""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TextIO

import numpy as np

from faze.base.errors import UserError
from faze.data.preparation.blocks import ARRAYS, Block, BlockFolder
from faze.data.readers import Reject
from faze.data.rejects import COLUMNS
from faze.data.store.strip_writing import PersonStrips

Prepared = tuple[PersonStrips | None, list[Reject]]  # of one person; None where there is no strip


class NothingUsable(UserError):
    """Nobody has a strip."""


def join_blocks(people: dict[str, list[Block]], folder: BlockFolder) -> Iterator[Prepared]:
    """Put each person's blocks together; holds the strips of one block at a time."""
    for person, blocks in people.items():
        all_made = [folder.read(block) for block in blocks]
        rejects = [reject for made in all_made for reject in made.rejects]
        used = [(block, made) for block, made in zip(blocks, all_made, strict=True) if made.file_names]
        if not used:
            yield None, rejects or [Reject(person, "", "no annotated frame")]
            continue
        first = used[0][1]
        arrays = {name: np.concatenate([getattr(made, name) for _, made in used]) for name in ARRAYS}
        names = [name for _, made in used for name in made.file_names]
        pixels = map(folder.pixels, [block for block, _ in used])
        yield PersonStrips(person, first.split, names, pixels, device=first.device, **arrays), rejects


class RejectWriter:
    """Writes rejects into their list while people pass, and counts people and strips."""

    def __init__(self, file: TextIO) -> None:
        """Begin the list of rejects in a text file that was opened with newline=''."""
        self._rows = csv.writer(file, lineterminator="\n")
        self._rows.writerow(COLUMNS)
        self._reasons: Counter[str] = Counter()
        self._people = self._strips = 0

    def usable(self, people: Iterable[Prepared], raw: object) -> Iterator[PersonStrips]:
        """Pass on the people who have strips.

        Raises:
            NothingUsable: nobody has; names the commonest reasons.
        """
        for strips, rejects in people:
            for reject in rejects:
                self._rows.writerow([reject.person_id, reject.file_name, reject.reason])
                self._reasons[reject.reason] += 1
            if strips:
                self._people += 1
                self._strips += len(strips.labels)
                yield strips
        if not self._people:
            reasons = "; ".join(f"{reason} ({count} times)" for reason, count in self._reasons.most_common(3))
            raise NothingUsable(f"{raw}: no frame is usable: {reasons}")

    def __str__(self) -> str:
        return f"{self._strips} strips of {self._people} people; {self._reasons.total()} rejects"
