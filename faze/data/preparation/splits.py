"""Assign people to train, val and test: as the data state, everyone to test, or as listed in a JSON file."""

import json
from collections.abc import Callable
from pathlib import Path

from faze.base.errors import UserError
from faze.base.files import reading
from faze.config.validation import SPLITS as WORDS
from faze.data.strips import SPLITS

# A reason to leave a person out.
NO_SPLIT = "the data state no split: set `splits` of this data set to test, or to a JSON file that lists the person"
SplitRule = Callable[[str, str], str]  # person, and the split that the data state, or "" -> split, or "" if unknown


def split_rule(splits: str) -> SplitRule:
    """Return the rule that `splits` of a data set's entry describes.

    Raises:
        UserError: It is the path of a file that is missing or invalid, or contains a person twice.
    """
    if splits not in WORDS:
        listed = _read_list(Path(splits))
        return lambda person, stated: listed.get(person, stated)
    return (lambda person, stated: stated) if splits == "stated" else (lambda person, stated: "test")


def _read_list(path: Path) -> dict[str, str]:
    with reading(path, 'write {"train": [people], "val": [people], "test": [people]} as JSON'):
        content = json.loads(path.read_text(encoding="utf-8-sig"))
        splits = {str(person): split for split in SPLITS for person in content.get(split, [])}
        if set(content) - set(SPLITS):
            raise ValueError(f"unknown split {min(set(content) - set(SPLITS))}")
    if len(splits) < sum(map(len, content.values())):
        raise UserError(f"{path}: a person is listed twice, but belongs to one split")
    return splits
