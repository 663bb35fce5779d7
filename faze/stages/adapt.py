"""Adapt few-shot learners to test people and measure errors on these people's query entries. Paper section 4.

The first output belongs to the first learner, and so on. All learners use the same calibrations.

- Errors: one row per person, k and repeat. The rows for k = 0 measure the trained gaze head itself, have no repeat and
  are the same for all learners. The column `steps` is the number of steps before the error was measured:
  fewshot.adapt_steps, or the number chosen on val people.
- Trace: one row per person, k, repeat and number of steps after which the error was measured.
- Predictions, if requested: one row per person, k, repeat and query entry.

Metadata, as JSON: `left_out` describes each person with too few entries, `left_out_of_training` describes those whom
meta_train could not use, and `val_deg` is the mean error of val people at each k. `seconds`, in the errors table only,
contains the duration of learning and that of adapting and measuring.
"""

import sys
import time
from argparse import Namespace
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from faze.base.command_line import CONFIG, KEEP_EXISTING, argument, command, in_rows, needed, threads
from faze.base.errors import UserError
from faze.base.locks import output_lock
from faze.base.output_cache import content, existing_output, key_of
from faze.config.parameters import FewshotAdapt
from faze.config.stage_config import load
from faze.fewshot.interface import Adaptation
from faze.fewshot.learner_file import Learned, load_learned
from faze.fewshot.learners import LEARNERS
from faze.fewshot.person_codes import PersonCodes, draw_calibrations, open_codes, read_people
from faze.fewshot.result_tables import errors_table, predictions_tables, trace_table, write_tables


@command(
    __doc__,
    CONFIG,
    argument("--learner", choices=LEARNERS, nargs="+", required=True),
    needed("--learner-file", "file that meta_train wrote for each learner", nargs="+"),
    needed("--codes", "stores of codes of different data sets", nargs="+"),
    threads(default=1),
    needed("--out", "output files for the errors (parquet), one per learner", nargs="+"),
    argument("--trace", type=Path, nargs="*", help="output files for the errors during adaptation, one per learner"),
    argument("--predictions", type=Path, nargs="*", help="output files for the gaze of query entries, one per learner"),
    KEEP_EXISTING,
)
def main(args: Namespace) -> None:
    """Read test people and learners, draw calibrations, adapt, and write the errors."""
    learners = in_rows(args, "learner", "learner_file", "out", "trace", "predictions")
    config = load(args.config, "adapt")
    settings = config.fewshot
    learnt = [load_learned(file, name, settings.shots) for name, file, *_ in learners]
    people, left_out = people_of_test(args.codes, settings, learnt)
    for sentence in left_out:
        print(f"warning: {sentence}", file=sys.stderr)
    adaptation = Adaptation(draw_calibrations(people, settings, repeats=settings.repeats), settings, args.threads)
    codes = [content(path) for path in args.codes]
    for learned, (name, file, *paths) in zip(learnt, learners, strict=True):
        tables = Tables(*paths)
        outputs = [path for path in tables if path]
        key = key_of("adapt", name, config.values, content(file), codes, args.threads)
        with output_lock(*tables), existing_output(key, outputs, args.keep_existing) as kept:
            if not kept:
                adapt(learned, adaptation, people, left_out, tables)


class Tables(NamedTuple):
    """The paths of a learner's tables."""

    errors: Path
    trace: Path | None
    predictions: Path | None


def adapt(
    learned: Learned, adaptation: Adaptation, people: list[PersonCodes], left_out: list[str], tables: Tables
) -> None:
    """Adapt to all people and write the tables, the errors last."""
    began = time.perf_counter()
    errors = LEARNERS[learned.learner].errors(learned, adaptation)
    seconds = {"learn": learned.seconds, "adapt": time.perf_counter() - began}
    metadata = {"left_out": left_out, "left_out_of_training": learned.left_out, "val_deg": learned.val_deg}
    if tables.trace:
        write_tables([trace_table(learned.learner, adaptation.calibrations, errors)], tables.trace, metadata)
    if tables.predictions:
        write_tables(predictions_tables(learned, adaptation), tables.predictions, metadata)
    table = errors_table(learned.learner, people, adaptation, errors)
    write_tables([table], tables.errors, metadata | {"seconds": seconds})


def people_of_test(
    paths: Sequence[Path], settings: FewshotAdapt, learnt: Collection[Learned]
) -> tuple[list[PersonCodes], list[str]]:
    """Read the test people of every store; in a store without splits, all people are test people.

    Returns:
        The people, and a sentence about each person with too few entries.

    Raises:
        UserError: no person in a store has enough entries, a store and a learner come from different checkpoints, or
            two stores contain the same data set.
    """
    everyone, all_left_out, sources = [], [], {}
    of_draws = (max(settings.shots) + settings.query_entries, "the largest of fewshot.shots + fewshot.query_entries")
    wanted, reason = max(of_draws, (settings.min_entries, "fewshot.min_entries"), key=lambda need: need[0])
    for path in paths:
        codes = open_codes(path, default_split="test")
        if codes.dataset in sources:
            raise UserError(
                f"{path} and {sources[codes.dataset]} contain the same data set, {codes.dataset}: pass only one"
            )
        sources[codes.dataset] = path
        for learned in learnt:
            learned.check_codes(codes.checkpoint, path)
        people, left_out = read_people(codes, "test", needed=wanted, reason=reason)
        if not people:
            if not left_out:
                raise UserError(f"{path} contains no people in the test split: encode a data set with test people")
            raise UserError(
                f"{path}: no person in the test split has {wanted} entries ({reason}; {left_out[0]}): lower these "
                "values, or encode a data set with more entries"
            )
        everyone += people
        all_left_out += left_out
    return everyone, all_left_out
