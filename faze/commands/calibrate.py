"""`faze calibrate`: codes or frames of a person -> a calibrated gaze estimator, and its error on others.

    faze calibrate --manifest me/frames.csv --out me.pt
    faze calibrate --codes mine.h5 --shots 9 --out adapted.pt \
        --learner-file results/default/baseline/seed0/fewshot/maml.pt

From a manifest (docs/how-to/own-frames.md), a third of the targets is held out for measurement. One frame of each other
target, or k frames spread over these, are used for calibration; for maml and none, k must be one of their training. If
the error on held-out targets does not decrease, nothing is written. The default network is that of the package, with
its learner `bayes`.

From codes, the person's first k entries are used for calibration, all others (or the last --query-entries of them) for
measurement. Without a learner file, the simplest learner, `offset`, is used.

The output contains plain tensors and numbers, documented in `faze.fewshot.personal_estimator.PersonalEstimator`;
torch.load(..., weights_only=True) reads it.
"""

import dataclasses
import math
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from faze.base.command_line import argument, at_least_one, command, needed
from faze.base.errors import UserError
from faze.base.geometry import pitchyaw_from_vector
from faze.base.locks import output_lock
from faze.base.untrusted import read_isolated
from faze.config.shipped import FOLDER, SHIPPED, network_path
from faze.data.readers.manifest_lines import ManifestLines
from faze.data.store.codes import read_all
from faze.evaluation.wording import counted, signed
from faze.fewshot.learner_file import Learned, load_learned, save_fields
from faze.fewshot.learners import LEARNERS
from faze.fewshot.person_codes import PersonCodes, choose_person, open_codes, read_person
from faze.fewshot.personal_estimator import PersonalEstimator, calibrate, measure
from faze.fewshot.residual_model import ResidualModel

if TYPE_CHECKING:  # these need more packages than the calibration on codes
    from faze.gaze.recording import HeldOut, Recording

SHIPPED_LEARNER = "bayes"
MOST_LISTED = 20  # rejected frames


@command(
    __doc__,
    argument("--codes", type=Path, help="store of codes (from encode) that contains the person"),
    argument("--manifest", type=Path, help="table of the person's frames, instead of --codes"),
    argument("--model", type=Path, default=SHIPPED, help="with --manifest: network (default: that of the package)"),
    argument("--landmarker", type=Path, help="with --manifest: as for faze gaze"),
    argument("--person", help="name of the person; not needed if there is only one"),
    argument("--shots", type=at_least_one, help="k, the number of calibration entries; needed with --codes"),
    argument(
        "--learner-file",
        type=Path,
        help="file that meta_train wrote for this network (default: with --manifest and the package's network, that of "
        "the package, bayes; otherwise offset, which needs none)",
    ),
    argument("--learner", choices=LEARNERS, help="use this learner; refuse files of others"),
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
    if (args.codes is None) == (args.manifest is None):
        raise UserError("pass either --codes or --manifest")
    if args.manifest:
        from_frames(args)
        return
    if args.shots is None:
        raise UserError("--codes needs --shots, the number of calibration entries")
    began = time.perf_counter()
    learned = read_learner(args.learner_file, args.learner)
    check_shots(learned, args.learner_file, args.shots)
    read_isolated(args.codes, read_all)
    codes = open_codes(args.codes, default_split="test")
    if learned is not None:
        learned.check_codes(codes.checkpoint, args.codes)
    person = read_person(codes, choose_person(codes.persons(), args.codes, args.person))
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


def from_frames(args: Namespace) -> None:
    """Calibrate on the frames of a manifest, and write the calibration if it improves held-out targets."""
    if args.suggest or args.query_entries is not None:
        raise UserError("--suggest and --query-entries are only for --codes")
    from faze.gaze.estimator import GazeEstimator
    from faze.gaze.recording import measure_held_out, read_recording

    shipped = FOLDER / f"{args.learner or SHIPPED_LEARNER}.pt"
    is_shipped = network_path(args.model).resolve() == network_path(SHIPPED)
    own = args.learner_file is None and is_shipped and shipped.is_file()
    path = shipped if own else args.learner_file
    learned = read_learner(path, args.learner)
    lines = ManifestLines(args.manifest)
    name = choose_person(lines.persons(), args.manifest, args.person)
    with GazeEstimator.load(args.model, args.landmarker, faces=int(not lines.layout.has_pose)) as estimator:
        network = estimator.network
        if learned is not None:
            learned.check_codes(network, args.model)
        recording = read_recording(estimator, lines, name)
    support = recording.support(args.shots)
    if args.shots is None and learned is not None and LEARNERS[learned.learner].takes_steps:
        support = support[: max((k for k in learned.shots if k <= len(support)), default=len(support))]
    check_shots(learned, path, len(support))
    found = calibrate(recording.person, support, learned)
    measured, query = measure_held_out(recording, found), recording.held_out()
    found = dataclasses.replace(measure(found, recording.person, query), checkpoint=network)
    print("\n".join(describe_frames(recording, found, measured)))
    if not measured.change.difference < 0:
        raise UserError(
            f"{args.out} was not written, because the calibration does not improve the gaze at held-out targets: "
            "record more targets, and check screen, camera and labels with `faze inspect`"
        )
    with output_lock(args.out):
        save_fields(found, args.out)
    print(f"{args.out}: calibration of {found.person}; use it with faze gaze --person {args.out}")


def describe_frames(recording: "Recording", found: PersonalEstimator, measured: "HeldOut") -> Iterator[str]:
    """Describe the frames, the samples and the errors, line by line."""
    count = len(recording.files)
    yield f"{count} of {count + len(recording.rejects)} frames can be used"
    yield from (f"  rejected: {reject}" for reject in recording.rejects[:MOST_LISTED])
    yield f"{found.learner} on {found.shots} samples: {', '.join(recording.files[entry] for entry in found.support)}"
    yield f"mean error on {counted(measured.targets, 'held-out target')}, with its 95 % interval over targets:"
    for when, error, mm in (
        ("before", measured.before, measured.before_mm),
        ("after", measured.after, measured.after_mm),
    ):
        at_target = "" if math.isnan(mm) else f", {mm:.0f} mm at the target"
        ends = "" if math.isnan(error.low) else f" ({max(error.low, 0):.2f} to {error.high:.2f})"
        yield f"  {when}: {error.difference:.2f} degrees{ends}{at_target}"
    change = measured.change
    ends = "" if math.isnan(change.low) else f" ({signed(change.low)} to {signed(change.high)})"
    shown = "" if change.high < 0 or change.difference >= 0 else "; not shown to be an improvement"
    yield f"  change: {signed(change.difference)} degrees{ends}{shown}"


def read_learner(path: Path | None, learner: str | None) -> Learned | None:
    """Read the learner's file; return None for `offset`, which needs no file.

    Raises:
        UserError: the file belongs to another learner, or is required but missing.
    """
    if path is None:
        if learner in (None, "offset"):
            return None
        raise UserError(f"--learner {learner} needs --learner-file (written by meta_train)")
    found = load_learned(path, learner, [])
    if found.learner not in LEARNERS:
        raise UserError(f"{path}: contains a learner that this version of faze does not know: {found.learner:.100}")
    return found


def check_shots(learned: Learned | None, path: Path | None, shots: int) -> None:
    """Check that a learner that takes gradient steps was trained for this k.

    Raises:
        UserError: it was not; the message lists the k for which it was.
    """
    if learned is not None and LEARNERS[learned.learner].takes_steps and shots not in learned.shots:
        raise UserError(
            f"--shots {shots}: {path} was trained for k = {', '.join(map(str, learned.shots))}: choose one of these"
        )


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
