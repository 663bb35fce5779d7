"""Adapt a few-shot learner to people of the test split and measure it on their query entries. Paper section 4.

The errors: one row per person, k and repeat; k = 0, the trained gaze head itself, is one row per person and the same in
every learner's file. A row's error is measured after as many steps as its column `steps` says: fewshot.adapt_steps, or
the number that val people chose. The trace: one row per person, k, repeat and number of steps after which the error was
measured. The predictions, if wanted: one row per person, k, repeat and query entry. The metadata key `left_out` of all
of them lists, as JSON, a sentence about each person without samples enough, and `left_out_of_training` those whom
meta_train could not use; `val_deg` is the val people's mean error at each k. Of the errors,
`seconds` is what learning took, and what adapting and measuring took.
"""

import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from faze.base import code_hash
from faze.base.command_line import CONFIG, MADE_ONCE, argument, command, needed, threads
from faze.base.errors import UserError
from faze.base.made_once import content, key_of, made_once
from faze.base.output_lock import sole_writer
from faze.config.parameters import FewshotAdapt
from faze.config.stage_config import Resolved, load
from faze.fewshot.draws import draw_calibrations
from faze.fewshot.interface import Adaptation
from faze.fewshot.learner_file import Learned, load_learned
from faze.fewshot.learners import LEARNERS
from faze.fewshot.person_codes import PersonCodes, open_codes, read_people
from faze.fewshot.result_tables import errors_table, predictions_tables, trace_table, write_tables


@command(
    __doc__,
    CONFIG,
    argument("--learner", choices=LEARNERS, required=True),
    needed("--learner-file", "of meta_train"),
    argument("--codes", type=Path, nargs="+", required=True, help="stores of codes of different data sets"),
    threads(default=1),
    needed("--out", "errors (parquet)"),
    argument("--trace", type=Path, help="errors along the adaptation (parquet)"),
    argument("--predictions", type=Path, help="gaze of every query entry (parquet)"),
    MADE_ONCE,
)
def main(args: Namespace) -> None:
    """Read test people and learner, draw calibrations, adapt, write the errors."""
    config = load(args.config, "adapt")
    settings = config.fewshot
    with sole_writer(args.out):
        learned = load_learned(args.learner_file, args.learner, settings.shots)
        people, left_out = people_of_test(args.codes, settings, learned)
        for sentence in left_out:
            print(f"warning: {sentence}", file=sys.stderr)
        outputs = [path for path in (args.trace, args.predictions, args.out) if path]
        with made_once(args.made_once, key_of("adapt", *decisive(args, config)), outputs) as taken:
            if not taken:
                adapt(args, settings, learned, people, left_out)


def decisive(args: Namespace, config: Resolved) -> tuple:
    """List all that the tables depend on."""
    fingerprint, read = code_hash.fingerprint("faze.stages.adapt"), (args.learner_file, *args.codes)
    wanted = (bool(args.trace), bool(args.predictions))
    return args.learner, config.values, fingerprint, *map(content, read), args.threads, wanted


def adapt(
    args: Namespace, settings: FewshotAdapt, learned: Learned, people: list[PersonCodes], left_out: list[str]
) -> None:
    """Adapt to everyone and write the tables, the errors last."""
    calibrations = draw_calibrations(people, settings, repeats=settings.repeats)
    adaptation = Adaptation(calibrations, settings, args.threads)
    began = time.perf_counter()
    errors = LEARNERS[args.learner].errors(learned, adaptation)
    seconds = {"learn": learned.seconds, "adapt": time.perf_counter() - began}
    metadata = {"left_out": left_out, "left_out_of_training": learned.left_out, "val_deg": learned.val_deg}
    if args.trace:
        write_tables([trace_table(args.learner, calibrations, errors)], args.trace, metadata)
    if args.predictions:
        write_tables(predictions_tables(learned, adaptation), args.predictions, metadata)
    write_tables([errors_table(args.learner, people, adaptation, errors)], args.out, metadata | {"seconds": seconds})


def people_of_test(
    paths: Sequence[Path], settings: FewshotAdapt, learned: Learned
) -> tuple[list[PersonCodes], list[str]]:
    """Read the people of the split test of every store; a store that states no splits is all test.

    Returns:
        These people, and a sentence about each who has too few entries.

    Raises:
        UserError: a store has nobody with entries enough, is of another checkpoint than the learner's, or two are of
            one data set.
    """
    everyone, all_left_out, sources = [], [], {}
    of_draws = (max(settings.shots) + settings.query_entries, "the largest of fewshot.shots + fewshot.query_entries")
    wanted, reason = max(of_draws, (settings.min_entries, "fewshot.min_entries"), key=lambda need: need[0])
    for path in paths:
        codes = open_codes(path, default_split="test")
        if codes.dataset in sources:
            raise UserError(f"{path} and {sources[codes.dataset]} are both of the data set {codes.dataset}: give one")
        sources[codes.dataset] = path
        learned.check_codes(codes.checkpoint, path)
        people, left_out = read_people(codes, "test", needed=wanted, reason=reason)
        if not people:
            if not left_out:
                raise UserError(f"{path}: holds nobody of the split test")
            raise UserError(
                f"{path}: nobody of the split test has the {wanted} entries of {reason} ({left_out[0]}): lower "
                "that, or encode a data set with more"
            )
        everyone += people
        all_left_out += left_out
    return everyone, all_left_out
