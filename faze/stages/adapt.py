"""Adapt a few-shot learner to people of the test split and measure it on their query entries. Paper section 4.

The errors: one row per person, k and repeat; k = 0, the trained gaze head itself, is one row per person and the same in
every learner's file. Its error is that after the steps in its column `steps`: all of fewshot.adapt_steps, or those that
val people chose. The trace: one row per person, k, repeat and number of steps after which the error was measured. The
predictions, if wanted: one row per person, k, repeat and query entry. The metadata key `left_out` of all of them lists,
as JSON, a sentence about each person without samples enough, and `left_out_of_training` those whom meta_train could
not use.
"""

import argparse
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from faze.base.command_line import Parser, one_sentence
from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.base.geometry import angular_error, pitchyaw_from_vector
from faze.base.output_lock import sole_writer
from faze.base.progress import Progress
from faze.config.parameters import FewshotSection
from faze.config.stage_config import load
from faze.fewshot.draws import Calibration, People, PersonCodes, draw_calibrations, open_codes, read_people
from faze.fewshot.fine_tuning import Errors
from faze.fewshot.learner_file import Learned, load_learned
from faze.fewshot.learners import LEARNERS, unadapted_error_deg


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(__doc__)
    parser.add_config()
    parser.add_argument("--learner", choices=LEARNERS, required=True)
    parser.add_argument("--learner-file", type=Path, required=True, help="of meta_train")
    parser.add_argument("--codes", type=Path, nargs="+", required=True, help="stores of codes of different data sets")
    parser.add_threads(default=1)
    parser.add_argument("--out", type=Path, required=True, help="errors (parquet)")
    parser.add_argument("--trace", type=Path, help="errors along the adaptation (parquet)")
    parser.add_argument("--predictions", type=Path, help="gaze of every query entry (parquet)")
    return parser.parse_args()


@one_sentence
def main() -> None:
    """Read test people and learner, draw calibrations, adapt, write the errors."""
    args = parse()
    settings = load(args.config, "adapt").fewshot
    with sole_writer(args.out):
        learned = load_learned(args.learner_file, args.learner, settings.shots)
        people = people_of_test(args.codes, settings, learned)
        for sentence in people.left_out:
            print(f"warning: {sentence}", file=sys.stderr)
        draws = draw_calibrations(people.persons, settings, repeats=settings.repeats)
        errors = LEARNERS[args.learner].errors(learned, people.persons, draws, settings, threads=args.threads)
        unadapted = [unadapted_error_deg(person, settings.query_entries) for person in people.persons]
        table = errors_table(args.learner, people.persons, unadapted, draws, errors)
        left_out = {"left_out": people.left_out, "left_out_of_training": learned.left_out}
        if args.trace:
            write([trace_table(args.learner, people.persons, draws, errors)], args.trace, left_out)
        if args.predictions:
            tables = predictions_tables(learned, people.persons, draws, settings, args.threads)
            write(tables, args.predictions, left_out)
        write([table], args.out, left_out)


def write(tables: Iterable[pa.Table], path: Path, left_out: Mapping[str, Sequence[str]]) -> None:
    """Write the parts of a table, whole or not at all, with sentences about people left out as its metadata."""
    tables = iter(tables)
    first = next(tables)
    metadata = {key: json.dumps(sentences) for key, sentences in left_out.items()}
    with whole_file(path) as temporary, pq.ParquetWriter(temporary, first.schema.with_metadata(metadata)) as writer:
        for table in itertools.chain([first], tables):
            writer.write_table(table.replace_schema_metadata(metadata))


def people_of_test(paths: Sequence[Path], settings: FewshotSection, learned: Learned) -> People:
    """People of the split test of every store; a store that states no splits is all test.

    Raises:
        UserError: a store has nobody with entries enough, is of another checkpoint than the learner's, or two are of
            one data set.
    """
    everyone, sources = People([], []), {}
    for path in paths:
        codes = open_codes(path, default_split="test")
        if codes.dataset in sources:
            raise UserError(f"{path} and {sources[codes.dataset]} are both of the data set {codes.dataset}: give one")
        sources[codes.dataset] = path
        learned.check_codes(codes.checkpoint, path)
        needed, reason = _needed_entries(settings)
        people = read_people(codes, "test", needed=needed, reason=reason)
        if not people.persons:
            if not people.left_out:
                raise UserError(f"{path}: holds nobody of the split test")
            raise UserError(
                f"{path}: nobody of the split test has the {needed} entries of {reason} ({people.left_out[0]}): lower "
                "that, or encode a data set with more"
            )
        everyone = People(everyone.persons + people.persons, everyone.left_out + people.left_out)
    return everyone


def _needed_entries(settings: FewshotSection) -> tuple[int, str]:
    """Of a test person, and what they are needed for."""
    protocol = max(settings.shots) + settings.query_entries
    if settings.min_entries > protocol:
        return settings.min_entries, "fewshot.min_entries"
    return protocol, "the largest of fewshot.shots + fewshot.query_entries"


def errors_table(
    learner: str,
    people: Sequence[PersonCodes],
    unadapted_deg: Sequence[float],
    draws: Sequence[Calibration],
    errors: Errors,
) -> pa.Table:
    """One row per person for k = 0, then one per calibration."""
    of = [*people, *(people[draw.person] for draw in draws)]
    no_draw = np.zeros(len(people), np.int64)
    return pa.table(
        {
            "person": [person.name for person in of],
            "dataset": [person.dataset for person in of],
            "split": [person.split for person in of],
            "learner": [learner] * len(of),
            "k": np.concatenate([no_draw, [draw.shots for draw in draws]]),
            "repeat": np.concatenate([no_draw, [draw.repeat for draw in draws]]),
            "steps": np.concatenate([no_draw, errors.steps]),
            "error_deg": np.concatenate([unadapted_deg, errors.adapted_deg]),
            "start_error_deg": np.concatenate([np.full(len(people), np.nan), errors.start_deg]),
        }
    )


def trace_table(learner: str, people: Sequence[PersonCodes], draws: Sequence[Calibration], errors: Errors) -> pa.Table:
    """One row per calibration and number of steps; none for a learner that takes no steps."""
    of = [draw for draw in draws for _ in errors.trace_steps]
    return pa.table(
        {
            "person": pa.array([people[draw.person].name for draw in of], pa.string()),
            "dataset": pa.array([people[draw.person].dataset for draw in of], pa.string()),
            "learner": pa.array([learner] * len(of), pa.string()),
            "k": pa.array([draw.shots for draw in of], pa.int64()),
            "repeat": pa.array([draw.repeat for draw in of], pa.int64()),
            "steps": pa.array(list(errors.trace_steps) * len(draws) if of else [], pa.int64()),
            "error_deg": errors.trace_deg.ravel(),
        }
    )


def predictions_tables(
    learned: Learned,
    people: Sequence[PersonCodes],
    draws: Sequence[Calibration],
    settings: FewshotSection,
    threads: int,
) -> Iterator[pa.Table]:
    """The estimate for every query entry of every calibration; adapted once more, since `errors` keeps no network."""
    progress, done = Progress("predict", len(draws), "models"), 0
    estimates = LEARNERS[learned.learner].gaze(learned, people, draws, settings, threads=threads)
    for positions, gaze in estimates:
        of = [draws[position] for position in positions]
        persons = [people[draw.person] for draw in of]
        entries = [np.arange(len(person.code))[-settings.query_entries :] for person in persons]
        truth = np.stack([person.gaze[query] for person, query in zip(persons, entries, strict=True)])
        pitch, yaw = pitchyaw_from_vector(gaze.reshape(-1, 3)).T

        def each_entry(values: Sequence) -> NDArray:
            return np.repeat(values, settings.query_entries)

        yield pa.table(
            {
                "person": each_entry([person.name for person in persons]),
                "dataset": each_entry([person.dataset for person in persons]),
                "learner": each_entry([learned.learner] * len(of)),
                "k": each_entry([draw.shots for draw in of]),
                "repeat": each_entry([draw.repeat for draw in of]),
                "entry": np.concatenate(entries),
                "pitch_rad": pitch,
                "yaw_rad": yaw,
                "error_deg": np.degrees(angular_error(gaze, truth)).ravel(),
            }
        )
        done += len(of)
        progress(done)


if __name__ == "__main__":
    sys.exit(main())
