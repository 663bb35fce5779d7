r"""`faze calibrate`: codes or frames of a person -> a calibrated gaze estimator, and its error on others.

    faze calibrate --manifest me/frames.csv --out me.pt
    faze calibrate --codes mine.h5 --shots 9 --out adapted.pt \
        --learner-file results/default/baseline/seed0/fewshot/maml.pt

From a manifest (docs/how-to/own-frames.md), a third of the targets is held out for measurement. One frame of each other
target, or k frames spread over these, are used for calibration. If the error on held-out targets does not decrease,
nothing is written. The default network is that of the package, with its learner `bayes`.

From codes, the person's first k entries are used for calibration, all others for measurement; the default learner is
`offset`. For maml and none, k must be one of their training.

torch.load(..., weights_only=True) reads the output, a dict of the fields of `faze.fewshot`'s `PersonalEstimator`.
"""

import dataclasses
from pathlib import Path
from typing import Literal

import numpy as np

from faze.base.errors import UserError
from faze.data.codes import CodeStore
from faze.data.readers.manifest import needs_landmarks, read_manifest
from faze.fewshot.interface import Learned, load_learned, save_fields
from faze.fewshot.learners import LEARNERS
from faze.fewshot.person_codes import choose_person, read_person
from faze.fewshot.personal_estimator import PersonalEstimator, calibrate, measure
from faze.weights import FOLDER, SHIPPED, network_path

SHIPPED_LEARNER = "bayes"


def main(
    *,
    codes: Path | None = None,
    manifest: Path | None = None,
    model: Path = Path(SHIPPED),
    landmarker: Path = Path("face_landmarker.task"),
    person: str | None = None,
    shots: int | None = None,
    learner_file: Path | None = None,
    learner: Literal[tuple(LEARNERS)] | None = None,
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
        out: calibration to write
    """
    if (codes is None) == (manifest is None):
        raise UserError("pass either --codes or --manifest")
    if codes and shots is None:
        raise UserError("--codes needs --shots, the number of calibration entries")
    if manifest:
        if learner_file is None and network_path(model).resolve() == network_path(SHIPPED):
            of_package = FOLDER / f"{learner or SHIPPED_LEARNER}.pt"
            learner_file = of_package if of_package.is_file() else None
        found = from_frames(manifest, model, landmarker, person, shots, read_learner(learner_file, learner))
    else:
        found = from_codes(codes, person, shots, read_learner(learner_file, learner))
    save_fields(found, out)
    print(f"{out}: calibration of {found.person}; use it with faze gaze --person {out}")


def from_codes(path: Path, name: str | None, shots: int, learned: Learned) -> PersonalEstimator:
    """Calibrate on a person's first entries in a store of codes."""
    check_shots(learned, shots)
    codes = CodeStore(path)
    learned.check_codes(codes.checkpoint, path)
    person = read_person(codes, choose_person(codes.persons(), path, name))
    count = len(person.code)
    if shots > count:
        raise UserError(f"{person} has {count} entries, fewer than --shots {shots}: use fewer shots or more samples")
    found = measure(calibrate(person, range(shots), learned), person, np.arange(shots, count))
    error = "no entry is left to measure the error on"
    if found.error_deg is not None:
        error = f"{found.error_deg:.2f} degrees instead of {found.unadapted_deg:.2f} unadapted"
        error += f", on {found.query_entries} other entries"
    print(f"{person}: {found.learner} on {shots} samples: {error}")
    return dataclasses.replace(found, checkpoint=codes.checkpoint)


def from_frames(
    path: Path, model: Path, landmarker: Path, name: str | None, shots: int | None, learned: Learned
) -> PersonalEstimator:
    """Calibrate on the frames of a manifest; refuse a calibration that does not improve held-out targets."""
    from faze.gaze.estimator import GazeEstimator
    from faze.gaze.recording import measure_held_out, read_recording
    from faze.model.weights import network_hash

    posed = not needs_landmarks(path)
    people = {person.name: person for person in read_manifest(path, posed=posed)}
    person = people[choose_person(list(people), path, name)]
    with GazeEstimator.load(model, landmarker, faces=int(not posed)) as estimator:
        network = network_hash(estimator.dted)
        learned.check_codes(network, model)
        recording = read_recording(estimator, person, path)
    support = recording.support(shots)
    check_shots(learned, len(support))
    found = calibrate(recording.person, support, learned)
    improves, lines = measure_held_out(recording, found)
    print("\n".join(lines))
    if not improves:
        raise UserError(
            "no calibration was written, because it does not improve the gaze at held-out targets: record more "
            "targets, and check screen, camera and labels"
        )
    return dataclasses.replace(measure(found, recording.person, recording.held_out), checkpoint=network)


def read_learner(path: Path | None, learner: str | None) -> Learned:
    """Read the learner's file, which only `offset` does not need."""
    if path is None:
        if learner not in (None, "offset"):
            raise UserError(f"--learner {learner} needs --learner-file (written by meta_train)")
        return Learned("offset", [], {})
    found = load_learned(path)
    if learner not in (None, found.learner):
        raise UserError(f"{path}: contains the learner {found.learner}, not {learner}")
    if found.learner not in LEARNERS:
        raise UserError(f"{path}: contains a learner that this version of faze does not know: {found.learner:.100}")
    return found


def check_shots(learned: Learned, shots: int) -> None:
    """Refuse a k for which a learner that takes gradient steps was not trained."""
    if LEARNERS[learned.learner].takes_steps and shots not in learned.shots:
        trained = ", ".join(map(str, learned.shots))
        raise UserError(f"--shots {shots}: {learned.learner} was trained for k = {trained}: choose one of these")
