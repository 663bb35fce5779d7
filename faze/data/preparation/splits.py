"""Assign people to train, val and test: as stated by the data set, all to test, or as listed in a JSON file."""

import json
from collections.abc import Callable
from pathlib import Path

from faze.base.files import reading
from faze.config.validation import SPLITS as WORDS
from faze.data.strips import SPLITS

# A reason to leave a person out.
NO_SPLIT = "no split is stated: set `splits` of this data set to test, or to a JSON file that lists the person"
SplitRule = Callable[[str, str], str]  # person, and the split that the data set states or "" -> split, "" if unknown


def split_rule(splits: str) -> SplitRule:
    """Return the rule for a data set's `splits`; raise a UserError if `splits` is the path to an invalid file."""
    if splits == "stated":
        return lambda person, stated: stated
    if splits in WORDS:
        return lambda person, stated: "test"
    with reading(splits, 'write {"train": [people], "val": [people], "test": [people]} as JSON, with each person once'):
        content = json.loads(Path(splits).read_text(encoding="utf-8-sig"))
        listed = {str(person): split for split in content for person in content[split]}
        if not set(content) <= set(SPLITS) or len(listed) < sum(map(len, content.values())):
            raise ValueError("a person is listed twice, or a split is unknown")
    return lambda person, stated: listed.get(person, stated)
