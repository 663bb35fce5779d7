"""Assign people to train, val and test: as the data state, everyone to test, or as listed in a JSON file."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from faze.base.errors import UserError
from faze.base.files import reading
from faze.config.validation import SPLITS as WORDS
from faze.data.store.layout import SPLITS

UNLISTED = "not in the list of splits"  # reason to leave a person out


@dataclass(frozen=True)
class Splits:
    """The splits of one data set's people."""

    all_test: bool
    listed: Mapping[str, str]  # by person

    @classmethod
    def of(cls, splits: str) -> "Splits":
        """Read `splits` of a data set's entry.

        Raises:
            UserError: It is the path of a file that is missing or invalid, or contains a person twice.
        """
        return cls(splits in ("test", "leave_one_person_out"), {} if splits in WORDS else read_splits(Path(splits)))

    def split(self, person: str, stated: str) -> str:
        """Return a person's split, given the one that the data state, if any; "" if it is unknown."""
        return "test" if self.all_test else self.listed.get(person, stated)


def read_splits(path: Path) -> dict[str, str]:
    """Read the split of each person from a JSON file: {"train": [people], "val": [people], "test": [people]}.

    Raises:
        UserError: The file is missing or invalid, or contains a person twice.
    """
    with reading(path, "write it again as JSON"):
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    lists = list(content.values()) if isinstance(content, dict) else []
    if not lists or set(content) - set(SPLITS) or not all(isinstance(people, list) for people in lists):
        raise UserError(f'{path}: expected {{"train": [...], "val": [...], "test": [...]}} with lists of people')
    splits: dict[str, str] = {}
    for split, people in content.items():
        for person in map(str, people):
            if person in splits:
                raise UserError(f"{path}: person {person} is in {splits[person]} and also in {split}")
            splits[person] = split
    return splits
