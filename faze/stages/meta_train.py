"""Meta-train a few-shot learner on the gaze codes of the training people. Paper section 3.2."""

import argparse
import dataclasses
import sys
from pathlib import Path

from faze.config import load
from faze.fewshot.draws import People, open_codes, read_people
from faze.fewshot.learners import LEARNERS, save_learned
from faze.files import sole_writer
from faze.sections import Fewshot
from faze.stages import one_sentence
from faze.store import Codes


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--learner", choices=LEARNERS, required=True)
    parser.add_argument("--codes", type=Path, required=True, help="store of codes with people of the split train")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


@one_sentence
def main() -> None:
    """Read the people's codes, learn, write the learner's file."""
    args = parse()
    config = load(args.config, "meta_train")
    if config.seed is None:
        raise ValueError(f"{args.config}: has no seed, of initial weights and tasks")
    with sole_writer(args.out):
        train, val = training_people(open_codes(args.codes), args.codes, config.fewshot)
        left_out = train.left_out + val.left_out
        for sentence in left_out:
            print(f"warning: {sentence}", file=sys.stderr)
        learned = LEARNERS[args.learner].meta_train(
            train.persons, val.persons, config.fewshot, seed=config.seed, threads=args.threads
        )
        save_learned(dataclasses.replace(learned, left_out=left_out), args.out)


def training_people(codes: Codes, path: Path, settings: Fewshot) -> tuple[People, People]:
    """People of the splits train, with entries for a task, and val, with entries for a test.

    Raises:
        ValueError: fewer train people than an outer step needs.
    """
    largest = max(settings.shots)
    train = read_people(
        codes, "train", needed=largest + settings.meta_query, reason="the largest of fewshot.shots + fewshot.meta_query"
    )
    val = read_people(
        codes,
        "val",
        needed=largest + settings.query_entries,
        reason="the largest of fewshot.shots + fewshot.query_entries",
    )
    if len(train.persons) < settings.tasks:
        raise ValueError(
            f"{path}: {len(train.persons)} people of the split train have entries enough for a task, fewer than "
            f"fewshot.tasks = {settings.tasks}: lower fewshot.tasks, fewshot.meta_query or fewshot.shots"
        )
    return train, val


if __name__ == "__main__":
    sys.exit(main())
