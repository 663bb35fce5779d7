"""The tables that `adapt` writes: errors, errors during adaptation, and the estimated gaze for every query entry."""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from faze.base.files import whole_file
from faze.base.geometry import angular_error, pitchyaw_from_vector
from faze.base.progress import Progress
from faze.fewshot.interface import COVERAGES, Adaptation, Errors
from faze.fewshot.learner_file import Learned
from faze.fewshot.learners import LEARNERS
from faze.fewshot.person_codes import Calibration, PersonCodes, unadapted_error_deg

COVERED = tuple(f"covered_{coverage:.0%}".rstrip("%") for coverage in COVERAGES)  # NaN for a learner without a variance


def errors_table(learner: str, people: Sequence[PersonCodes], adaptation: Adaptation, errors: Errors) -> pa.Table:
    """Build a table with one row per person for k = 0, then one per calibration."""
    rows = [*(Calibration(person, 0, np.empty(0, np.int64)) for person in people), *adaptation.calibrations]
    unadapted = [unadapted_error_deg(person, adaptation.settings.query_entries) for person in people]
    columns = _keys(learner, rows) | {
        "split": [row.person.split for row in rows],
        "steps": np.concatenate([np.zeros(len(people), np.int64), errors.steps]),
        "error_deg": np.concatenate([unadapted, errors.adapted_deg]),
        "start_error_deg": np.concatenate([np.full(len(people), np.nan), errors.start_deg]),
    }
    order = ["person", "dataset", "split", "learner", "k", "repeat", "steps", "error_deg", "start_error_deg"]
    covered = errors.covered if errors.covered is not None else np.full((len(errors.steps), len(COVERAGES)), np.nan)
    for name, shares in zip(COVERED, covered.T, strict=True):
        columns[name] = np.concatenate([np.full(len(people), np.nan), shares])
    return pa.table(columns).select([*order, *COVERED])


def trace_table(learner: str, calibrations: Sequence[Calibration], errors: Errors) -> pa.Table:
    """Build a table with one row per calibration and step count; it is empty for a learner without steps."""
    rows = [calibration for calibration in calibrations for _ in errors.trace_steps]
    steps = np.tile(np.array(errors.trace_steps, np.int64), len(calibrations))
    return pa.table(_keys(learner, rows) | {"steps": steps, "error_deg": errors.trace_deg.ravel()})


def predictions_tables(learned: Learned, adaptation: Adaptation) -> Iterator[pa.Table]:
    """Adapt again, since `errors` does not store networks, and yield one row per query entry of every calibration."""
    count, query = len(adaptation.calibrations), adaptation.settings.query_entries
    progress, done = Progress("predict", count, "models"), 0
    for positions, gaze in LEARNERS[learned.learner].gaze(learned, adaptation):
        rows = [adaptation.calibrations[position] for position in positions]
        truth = np.stack([row.person.gaze[-query:] for row in rows])
        pitch, yaw = pitchyaw_from_vector(gaze.reshape(-1, 3)).T
        keys = {name: np.repeat(values, query) for name, values in _keys(learned.learner, rows).items()}
        yield pa.table(
            keys
            | {
                "entry": np.concatenate([np.arange(len(row.person.gaze))[-query:] for row in rows]),
                "pitch_rad": pitch,
                "yaw_rad": yaw,
                "error_deg": np.degrees(angular_error(gaze, truth)).ravel(),
            }
        )
        done += len(rows)
        progress(done)


def write_tables(tables: Iterable[pa.Table], path: Path, about: Mapping[str, object]) -> None:
    """Write the parts of a table to one file atomically; the metadata has one JSON value per key."""
    tables = iter(tables)
    first = next(tables)
    metadata = {key: json.dumps(value) for key, value in about.items()}
    schema = first.schema.with_metadata(metadata)
    # A file, since pyarrow takes only names in UTF-8.
    with (
        whole_file(path) as temporary,
        temporary.open("wb") as file,
        pq.ParquetWriter(file, schema, write_page_checksum=True) as writer,
    ):
        for table in itertools.chain([first], tables):
            writer.write_table(table.replace_schema_metadata(metadata))


def _keys(learner: str, rows: Sequence[Calibration]) -> dict[str, np.ndarray]:
    return {
        "person": np.array([row.person.name for row in rows], str),
        "dataset": np.array([row.person.dataset for row in rows], str),
        "learner": np.array([learner] * len(rows), str),
        "k": np.array([row.shots for row in rows], np.int64),
        "repeat": np.array([row.repeat for row in rows], np.int64),
    }
