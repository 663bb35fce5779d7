"""The tables of errors that `adapt` writes."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from faze.base.files import whole_file
from faze.fewshot.interface import Errors
from faze.fewshot.person_codes import Calibration, unadapted_error_deg


def errors_table(learner: str, calibrations: Sequence[Calibration], query_entries: int, errors: Errors) -> pa.Table:
    """Build a table with one row per person for k = 0, then one per calibration."""
    people = list(dict.fromkeys(calibration.person for calibration in calibrations))
    rows = [*(Calibration(person, 0, np.empty(0, np.int64)) for person in people), *calibrations]
    unadapted = [unadapted_error_deg(person, query_entries) for person in people]
    return pa.table(
        {
            "person": [row.person.name for row in rows],
            "dataset": [row.person.dataset for row in rows],
            "split": [row.person.split for row in rows],
            "learner": [learner] * len(rows),
            "k": [row.shots for row in rows],
            "repeat": [row.repeat for row in rows],
            "steps": [errors.steps if row.shots else 0 for row in rows],
            "error_deg": np.concatenate([unadapted, errors.adapted_deg]),
            "start_error_deg": np.concatenate([np.full(len(people), np.nan), errors.start_deg]),
        }
    )


def write_tables(tables: Iterable[pa.Table], path: Path, about: Mapping[str, object]) -> None:
    """Write the parts of a table to one file atomically; the metadata has one JSON value per key."""
    table = pa.concat_tables(tables).replace_schema_metadata({key: json.dumps(value) for key, value in about.items()})
    with whole_file(path) as temporary, temporary.open("wb") as file:  # pyarrow itself takes only names in UTF-8
        pq.write_table(table, file, write_page_checksum=True)
