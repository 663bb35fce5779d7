"""Adapt a few-shot learner to people of the test split and measure it on their query entries. Paper section 4.

The errors: one row per person, k and repeat; k = 0, the trained gaze head itself, is one row per person and the same in
every learner's file. Its error is that after the steps in its column `steps`: all of fewshot.adapt_steps, or those that
val people chose. The trace: one row per person, k, repeat and number of steps after which the error was measured. The
metadata key `left_out` of both lists, as JSON, a sentence about each person without samples enough,
and `left_out_of_training` those whom meta_train could not use.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from faze.config import load
from faze.fewshot.draws import Calibration, People, Person, draw_calibrations, open_codes, read_people
from faze.fewshot.learners import LEARNERS, Errors, load_learned, unadapted_error_deg
from faze.files import sole_writer, whole_file
from faze.sections import Fewshot
from faze.stages import one_sentence


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--learner", choices=LEARNERS, required=True)
    parser.add_argument("--learner-file", type=Path, required=True, help="of meta_train")
    parser.add_argument("--codes", type=Path, nargs="+", required=True, help="stores of codes of different data sets")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="errors (parquet)")
    parser.add_argument("--trace", type=Path, help="errors along the adaptation (parquet)")
    return parser.parse_args()


@one_sentence
def main() -> None:
    """Read test people and learner, draw calibrations, adapt, write the errors."""
    args = parse()
    settings = load(args.config, "adapt").fewshot
    with sole_writer(args.out):
        learned = load_learned(args.learner_file, args.learner, settings.shots)
        people = people_of_test(args.codes, settings)
        for sentence in people.left_out:
            print(f"warning: {sentence}", file=sys.stderr)
        draws = draw_calibrations(people.persons, settings, repeats=settings.repeats)
        errors = LEARNERS[args.learner].errors(learned, people.persons, draws, settings, threads=args.threads)
        unadapted = [unadapted_error_deg(person, settings.query_entries) for person in people.persons]
        table = errors_table(args.learner, people.persons, unadapted, draws, errors)
        left_out = {"left_out": people.left_out, "left_out_of_training": learned.left_out}
        if args.trace:
            write(trace_table(args.learner, people.persons, draws, errors), args.trace, left_out)
        write(table, args.out, left_out)


def write(table: pa.Table, path: Path, left_out: Mapping[str, Sequence[str]]) -> None:
    """Write a table, whole or not at all, with sentences about people left out as its metadata."""
    with whole_file(path) as temporary:
        metadata = {key: json.dumps(sentences) for key, sentences in left_out.items()}
        pq.write_table(table.replace_schema_metadata(metadata), temporary)


def people_of_test(paths: Sequence[Path], settings: Fewshot) -> People:
    """People of the split test of every store; a store that states no splits is all test.

    Raises:
        ValueError: a store has nobody with entries enough, or two are of one data set.
    """
    everyone, sources = People([], []), {}
    for path in paths:
        codes = open_codes(path, default_split="test")
        if codes.dataset in sources:
            raise ValueError(f"{path} and {sources[codes.dataset]} are both of the data set {codes.dataset}: give one")
        sources[codes.dataset] = path
        needed = max(settings.shots) + settings.query_entries
        people = read_people(
            codes, "test", needed=needed, reason="the largest of fewshot.shots + fewshot.query_entries"
        )
        if not people.persons:
            if not people.left_out:
                raise ValueError(f"{path}: holds nobody of the split test")
            raise ValueError(
                f"{path}: nobody of the split test has the {needed} entries of fewshot.query_entries + the largest of "
                f"fewshot.shots ({people.left_out[0]}): lower one of them, or encode a data set with more"
            )
        everyone = People(everyone.persons + people.persons, everyone.left_out + people.left_out)
    return everyone


def errors_table(
    learner: str,
    people: Sequence[Person],
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


def trace_table(learner: str, people: Sequence[Person], draws: Sequence[Calibration], errors: Errors) -> pa.Table:
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


if __name__ == "__main__":
    sys.exit(main())
