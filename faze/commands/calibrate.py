r"""`faze calibrate`: codes or frames of a person -> a calibrated gaze estimator, and its error on others.

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
from pathlib import Path
from typing import Literal

from faze.base.errors import UserError
from faze.data.codes import CodeStore
from faze.data.readers.manifest_lines import ManifestLines
from faze.fewshot.learner_file import Learned, load_learned, save_fields
from faze.fewshot.learners import LEARNERS
from faze.fewshot.person_codes import choose_person, read_person
from faze.fewshot.personal_estimator import PersonalEstimator, calibrate, measure, split_entries
from faze.weights import FOLDER, SHIPPED, network_path

SHIPPED_LEARNER = "bayes"


def main(
    *,
    codes: Path | None = None,
    manifest: Path | None = None,
    model: Path = Path(SHIPPED),
    landmarker: Path | None = None,
    person: str | None = None,
    shots: int | None = None,
    learner_file: Path | None = None,
    learner: Literal[tuple(LEARNERS)] | None = None,
    query_entries: int | None = None,
    out: Path,
) -> None:
    """Calibrate on codes or frames, measure the error, and write the calibration.

    Args:
        codes: store of codes (from encode) that contains the person
        manifest: table of the person's frames, instead of --codes
        model: with --manifest, the network (default: that of the package)
        landmarker: with --manifest, as for faze gaze
        person: name of the person; not needed if there is only one
        shots: k, the number of calibration entries; needed with --codes
        learner_file: file that meta_train wrote for this network (default: that of the package's bayes, or offset)
        learner: use this learner; refuse files of others
        query_entries: how many of the last entries measure the error (default: all remaining)
        out: calibration to write
    """
    if (codes is None) == (manifest is None):
        raise UserError("pass either --codes or --manifest")
    if out.resolve() in [path.resolve() for path in (codes, manifest, model, learner_file) if path]:
        raise UserError(f"--out {out}: is also an input: choose another path")
    if manifest and query_entries is not None:
        raise UserError("--query-entries needs --codes; with --manifest, a third of the targets measures the error")
    if manifest:
        found = from_frames(manifest, model, landmarker, person, shots, learner_file, learner, out)
    elif shots is None:
        raise UserError("--codes needs --shots, the number of calibration entries")
    else:
        found = from_codes(codes, person, shots, learner_file, learner, query_entries, out)
    save_fields(found, out)
    print(f"{out}: calibration of {found.person}; use it with faze gaze --person {out}")


def from_codes(
    path: Path,
    person: str | None,
    shots: int,
    learner_file: Path | None,
    learner: str | None,
    query_entries: int | None,
    out: Path,
) -> PersonalEstimator:
    """Calibrate on a person's first entries in a store of codes."""
    learned = read_learner(learner_file, learner)
    check_shots(learned, learner_file, shots)
    codes = CodeStore(path, default_split="test")
    if learned is not None:
        learned.check_codes(codes.checkpoint, path)
    read = read_person(codes, choose_person(codes.persons(), path, person))
    support, query = split_entries(read, shots, query_entries)
    found = dataclasses.replace(measure(calibrate(read, support, learned), read, query), checkpoint=codes.checkpoint)
    print(describe(found, out))
    return found


def from_frames(
    manifest: Path,
    model: Path,
    landmarker: Path | None,
    person: str | None,
    shots: int | None,
    learner_file: Path | None,
    learner: str | None,
    out: Path,
) -> PersonalEstimator:
    """Calibrate on the frames of a manifest; refuse a calibration that does not improve held-out targets."""
    from faze.gaze.estimator import GazeEstimator
    from faze.gaze.recording import describe_frames, measure_held_out, read_recording

    shipped = FOLDER / f"{learner or SHIPPED_LEARNER}.pt"
    is_shipped = network_path(model).resolve() == network_path(SHIPPED)
    path = shipped if learner_file is None and is_shipped and shipped.is_file() else learner_file
    learned = read_learner(path, learner)
    lines = ManifestLines(manifest)
    name = choose_person(lines.persons(), manifest, person)
    with GazeEstimator.load(model, landmarker, faces=int(not lines.layout.has_pose)) as estimator:
        network = estimator.network
        if learned is not None:
            learned.check_codes(network, model)
        recording = read_recording(estimator, lines, name)
    support = recording.support(shots)
    if shots is None and learned is not None and LEARNERS[learned.learner].takes_steps:
        support = support[: max((k for k in learned.shots if k <= len(support)), default=len(support))]
    check_shots(learned, path, len(support))
    found = calibrate(recording.person, support, learned)
    measured, query = measure_held_out(recording, found), recording.held_out()
    found = dataclasses.replace(measure(found, recording.person, query), checkpoint=network)
    print("\n".join(describe_frames(recording, found, measured)))
    if not measured.change.difference < 0:
        raise UserError(
            f"{out} was not written, because the calibration does not improve the gaze at held-out targets: "
            "record more targets, and check screen, camera and labels"
        )
    return found


def read_learner(path: Path | None, learner: str | None) -> Learned | None:
    """Read the learner's file; return None for `offset`, which needs no file.

    Raises:
        UserError: the file belongs to another learner, or is required but missing.
    """
    if path is None:
        if learner in (None, "offset"):
            return None
        raise UserError(f"--learner {learner} needs --learner-file (written by meta_train)")
    found = load_learned(path)
    if learner not in (None, found.learner):
        raise UserError(f"{path}: contains the learner {found.learner}, not {learner}")
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


def describe(found: PersonalEstimator, path: Path) -> str:
    """Summarise the result in one line."""
    begun = f"{path}: {found.person} of {found.dataset}, {found.learner} on {found.shots} samples"
    if found.error_deg is None:
        return f"{begun}; no entry is left to measure the error on"
    error = f"{found.error_deg:.2f} degrees instead of {found.unadapted_deg:.2f} unadapted"
    return f"{begun}: {error}, on {found.query_entries} other entries"
