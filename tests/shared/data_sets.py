"""The data sets of the default configuration, and their entries with other values."""

import json
from collections.abc import Mapping

LAYOUTS = {"laptop": "mpiifacegaze", "phone": "gazecapture"}  # by name, in the order of the report
DATASETS = tuple(LAYOUTS)
SPLITS = {"laptop": "test", "phone": "stated"}


def entries(**changes: Mapping[str, object]) -> list[dict[str, object]]:
    """Return `preprocess.datasets` of the default with changed values, by the name of the data set."""
    default = [{"name": name, "layout": LAYOUTS[name], "splits": SPLITS[name]} for name in DATASETS]
    return [entry | dict(changes.get(str(entry["name"]), {})) for entry in default]


def overrides(**changes: Mapping[str, object]) -> str:
    """Return these entries as text to append to a file of overrides."""
    return f"\npreprocess: {json.dumps({'datasets': entries(**changes)}, default=str)}\n"
