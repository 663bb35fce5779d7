"""The data sets of a configuration, `preprocess.datasets`: their entries, and which of them trains the networks."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from faze.config.check import Fault, build, folded, names_a_folder, shown
from faze.config.parameters import RENDERED_LAYOUTS, DataSet

ALL_TEST = "test"  # splits: all people are test people
STATED = "stated"  # splits: as the data state them
LEAVE_ONE_OUT = "leave_one_person_out"  # splits: everyone is a test person of the network of one fold
WORDS = (ALL_TEST, STATED, LEAVE_ONE_OUT)  # any other value of splits is the path of a file
_OTHERS = re.compile(r"_(oracle|k\d+)$", re.IGNORECASE)  # ends of the names of other files and metrics of a data set
WITHOUT_SPLITS = ("mpiifacegaze", "mpiigaze")  # layouts that state no splits


def data_sets(config: Mapping[str, Any]) -> dict[str, DataSet]:
    """Return the entries of all data sets by name, in the order of the configuration."""
    return {entry["name"]: build(DataSet, entry) for entry in config["preprocess"]["datasets"]}


def training_set(config: Mapping[str, Any]) -> str:
    """Return the name of the data set whose train and val people train the networks."""
    return next(name for name, entry in data_sets(config).items() if entry.splits != ALL_TEST)


def training_folds(config: Mapping[str, Any]) -> int:
    """Return how many networks each run trains, one per fold of the people; 0 without leave-one-person-out."""
    data = data_sets(config)[training_set(config)]
    return data.folds or 0


def check_datasets(config: Mapping[str, Any]) -> Iterator[Fault]:
    """Check each entry, that names differ, and that exactly one data set has training people."""
    key, taken, rendered, training = "preprocess.datasets", set(), set(), []
    entries = [build(DataSet, entry) for entry in config["preprocess"]["datasets"]]
    for position, data in enumerate(entries):
        here = f"{key}[{position}]"
        if not names_a_folder(data.name):
            yield Fault(f"{here}.name", f"{shown(data.name)} must be letters, digits, - and _: it names files")
        elif _OTHERS.search(data.name):
            yield Fault(f"{here}.name", f"{data.name}: must not end with _oracle, or with _k and a number")
        elif folded(data.name) in taken:
            yield Fault(f"{here}.name", f"{data.name}: another data set has this name: choose another one")
        taken.add(folded(data.name))
        yield from _check_entry(here, data)
        if not data.path and data.layout in rendered:
            yield Fault(f"{here}.path", f"people are already rendered in the layout {data.layout}: give a path")
        rendered |= {data.layout} if not data.path else set()
        training += [data.name] if data.splits != ALL_TEST else []
    if any(entry.splits == LEAVE_ONE_OUT for entry in entries) and len(entries) > 1:
        yield Fault(key, f"with `splits: {LEAVE_ONE_OUT}`, no other data set can be tested: list only one")
    elif len(training) != 1:
        found = f"{', '.join(training)} have" if training else "none has"
        yield Fault(key, f"one data set must have training people, but {found}: give all others `splits: {ALL_TEST}`")


def _check_entry(key: str, data: DataSet) -> Iterator[Fault]:
    if not data.path and data.layout not in RENDERED_LAYOUTS:
        yield Fault(f"{key}.path", f"missing; faze renders people only in the layouts {', '.join(RENDERED_LAYOUTS)}")
    if data.supplementary and (not data.path or data.layout == "strips"):
        # It would annotate rendered frames, whose names are the same, or be ignored silently.
        yield Fault(f"{key}.supplementary", "annotates frames, but `path` contains none")
    if (data.splits == LEAVE_ONE_OUT) != (data.folds is not None):
        yield Fault(
            f"{key}.folds",
            f"is the number of networks for `splits: {LEAVE_ONE_OUT}`, at most the number of people: give both or none",
        )
    if data.splits == STATED and data.layout in WITHOUT_SPLITS:
        yield Fault(
            f"{key}.splits",
            f"{data.layout} states no splits: write {ALL_TEST}, {LEAVE_ONE_OUT}, or the path of a JSON file",
        )
