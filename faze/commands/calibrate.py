"""`faze calibrate`: codes of a person -> a calibrated gaze estimator, and its error on other entries.

    faze calibrate --codes mine.h5 --shots 9 --out adapted.pt \
        --learner-file results/default/baseline/seed0/fewshot/maml.pt

The person's first k entries are used for calibration, all others (or the last --query-entries of them) for measurement.
Without a learner file, the simplest learner, `offset`, is used. The output contains plain tensors and numbers,
documented in `faze.fewshot.personal_estimator.PersonalEstimator`; torch.load(..., weights_only=True) reads it.
"""

import dataclasses
import time
from argparse import Namespace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from faze.base.command_line import argument, at_least_one, command, needed
from faze.base.errors import UserError
from faze.base.geometry import pitchyaw_from_vector
from faze.base.locks import output_lock
from faze.base.untrusted import read_isolated
from faze.data.store.codes import CodeStore, read_all
from faze.fewshot.learner_file import Learned, load_learned, save_fields
from faze.fewshot.learners import LEARNERS
from faze.fewshot.person_codes import PersonCodes, open_codes, read_person
from faze.fewshot.personal_estimator import PersonalEstimator, calibrate, measure
from faze.fewshot.residual_model import ResidualModel


@command(
    __doc__,
    needed("--codes", "store of codes (from encode) that contains the person"),
    argument("--person", help="name of the person; not needed if the store contains only one"),
    argument(
        "--shots", type=at_least_one, required=True, help="k, the number of calibration entries: the person's first k"
    ),
    argument(
        "--learner-file",
        type=Path,
        help="file that meta_train wrote for the checkpoint of these codes (default: use offset)",
    ),
    argument("--learner", choices=LEARNERS, help="refuse files of other learners"),
    argument(
        "--query-entries",
        type=int,
        help="how many of the last entries are used to measure the error (default: all remaining)",
    ),
    argument("--suggest", action="store_true", help="print the entry that would help most as the next sample"),
    needed("--out", "calibration to write"),
)
def main(args: Namespace) -> None:
    """Read the codes and the learner, adapt, measure the error, and write the calibration."""
    began = time.perf_counter()
    learned = read_learner(args.learner_file, args.learner, args.shots)
    read_isolated(args.codes, read_all)
    codes = open_codes(args.codes, default_split="test")
    if learned is not None:
        learned.check_codes(codes.checkpoint, args.codes)
    person = pick_person(codes, args.codes, args.person)
    support, query = split_entries(person, args.shots, args.query_entries)
    suggested = suggest(person, support, learned) if args.suggest else ""
    read = time.perf_counter()
    found = calibrate(person, support, learned)
    adapted = time.perf_counter()
    found = dataclasses.replace(measure(found, person, query), checkpoint=codes.checkpoint)
    with output_lock(args.out):
        save_fields(found, args.out)
    print(describe(found, args.out))
    if suggested:
        print(suggested)
    print(f"took {1e3 * (adapted - read):.0f} ms to adapt, {1e3 * (read - began):.0f} ms to read the files")


def read_learner(path: Path | None, learner: str | None, shots: int) -> Learned | None:
    """Read the learner's file and check that it was trained for this k; return None for `offset`, which needs no file.

    Raises:
        UserError: the file belongs to another learner, was not trained for this k, or is required but missing.
    """
    if path is None:
        if learner in (None, "offset"):
            return None
        raise UserError(f"--learner {learner} needs --learner-file (written by meta_train)")
    found = load_learned(path, learner, [])
    if found.learner not in LEARNERS:
        raise UserError(f"{path}: contains a learner that this version of faze does not know: {found.learner:.100}")
    if LEARNERS[found.learner].takes_steps and shots not in found.shots:
        raise UserError(
            f"--shots {shots}: {path} was trained for k = {', '.join(map(str, found.shots))}: choose one of these"
        )
    return found


def pick_person(codes: CodeStore, path: Path, name: str | None) -> PersonCodes:
    """Read the named person, or the only person if none is named.

    Raises:
        UserError: the store does not contain the person, or contains several and none is named.
    """
    persons = codes.persons()
    if name is None and len(persons) > 1:
        raise UserError(
            f"{path}: contains {len(persons)} people, {persons[0]} to {persons[-1]}: choose one with --person"
        )
    if name is not None and name not in persons:
        raise UserError(
            f"{path}: contains no person {name}, only {persons[0]}" + (f" to {persons[-1]}" if persons[1:] else "")
        )
    return read_person(codes, name or persons[0])


def split_entries(person: PersonCodes, shots: int, query_entries: int | None) -> tuple[list[int], NDArray[np.int64]]:
    """Split the entries: the first k are for calibration; the rest, or the last ones, are for measurement.

    Raises:
        UserError: the person has too few entries.
    """
    count = len(person.code)
    if query_entries is not None and query_entries < 0:
        raise UserError(f"--query-entries {query_entries} is negative")
    wanted = shots + (query_entries or 0)
    if count < wanted:
        query = f" + --query-entries {query_entries}" if query_entries else ""
        raise UserError(
            f"{person} has {count} entries, fewer than --shots {shots}{query}: use fewer shots or more samples"
        )
    first = shots if query_entries is None else count - query_entries
    return list(range(shots)), np.arange(first, count)


def suggest(person: PersonCodes, support: list[int], learned: Learned | None) -> str:
    """Describe the entry that would reduce the learner's uncertainty most, and its approximate gaze direction.

    Raises:
        UserError: the learner has no variance, or no entry is left.
    """
    learner = LEARNERS[learned.learner if learned else "offset"]
    if not isinstance(learner, ResidualModel):
        able = ", ".join(name for name, other in LEARNERS.items() if isinstance(other, ResidualModel))
        raise UserError(f"--suggest: {learner.name} has no variance; pass a --learner-file of one of {able}")
    if len(support) == len(person.code):
        raise UserError(f"--suggest: {person} has no entries besides the {len(support)} used for calibration")
    (entry,) = learner.choose(learned, person.seen(slice(None)), 1, support)
    pitch, yaw = np.degrees(pitchyaw_from_vector(person.gaze_hat[entry]))
    return f"next: entry {entry} would help most; its gaze is about {pitch:+.0f}° in pitch and {yaw:+.0f}° in yaw"


def describe(found: PersonalEstimator, path: Path) -> str:
    """Summarise the result in one line."""
    begun = f"{path}: {found.person} of {found.dataset}, {found.learner} on {found.shots} samples"
    if found.error_deg is None:
        return f"{begun}; no entry is left to measure the error on"
    error = f"{found.error_deg:.2f} degrees instead of {found.unadapted_deg:.2f} unadapted"
    return f"{begun}: {error}, on {found.query_entries} other entries"
