r"""`faze calibrate`: a person's codes or frames -> a calibrated gaze estimator, and its error on other samples.

    faze calibrate --manifest me/frames.csv --out me.pt
    faze calibrate --codes mine.h5 --shots 9 --out adapted.pt \
        --learner-file results/default/baseline/seed0/fewshot/maml.pt

With a manifest, calibration uses one frame of each target, or k frames spread over the targets. Its error is measured
by leave-one-target-out cross-validation. If it is not shown to be better than a constant guess, no file is saved.
With codes, calibration uses the first k entries, and measurement uses the rest. See docs/how-to/gaze.md.
The output is a dict of the fields of `PersonalEstimator` (faze.fewshot); read it with torch.load(weights_only=True).
"""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.run_log import LoggedRun
from faze.base.tier_colors import BASELINE
from faze.config.validation import read_config
from faze.data.codes import CodeStore
from faze.data.readers.manifest import needs_landmarks, read_manifest
from faze.engine import machine
from faze.fewshot.fine_tuning import FineTuned
from faze.fewshot.interface import Learned
from faze.fewshot.learners import LEARNERS, PersonalEstimator, calibrate, load_learned, save_fields
from faze.fewshot.person_codes import PersonCodes, read_person
from faze.gaze.cross_validation import CALIBRATED, SPANS, check
from faze.gaze.estimator import LANDMARKER, GazeEstimator
from faze.gaze.recording import Recording, read_recording
from faze.weights import FOLDER, SHIPPED


def main(
    *,
    codes: Path | None = None,
    manifest: Path | None = None,
    model: Path = Path(SHIPPED),
    landmarker: Path = LANDMARKER,
    person: str | None = None,
    shots: int | None = None,
    learner_file: Path | None = None,
    out: Path,
) -> None:
    """Calibrate on codes or frames, measure the error, and write the calibration.

    Args:
        codes: code store (from the encode stage) that contains the person
        manifest: table of the person's frames, instead of --codes
        model: network for the frames of --manifest, as for faze gaze; default: the shipped network
        landmarker: MediaPipe Face Landmarker file, for frames without a head pose (default: face_landmarker.task)
        person: name of the person; not needed if there is only one
        shots: k, the number of calibration entries; required with --codes
        learner_file: meta_train output for this network (default: offset, or bayes for frames with the shipped network)
    """
    if (codes is None) == (manifest is None) or (codes and shots is None):
        raise UserError("pass either --manifest, or --codes and --shots (the number of calibration entries)")
    if manifest and str(model) == SHIPPED:
        learner_file = learner_file or FOLDER / "bayes.pt"
    learned = load_learned(learner_file) if learner_file else Learned("offset", [], {})
    if codes:
        store = CodeStore(codes)
        own, network = read_person(store, choose(store.persons(), codes, person)), store.checkpoint
        support, query = range(shots), np.arange(shots, len(own.code))
    else:
        recording, network = record(manifest, model, landmarker, person)
        own, support, query = recording.person, recording.support(shots), np.arange(len(recording.files))
    if learned.state and learned.checkpoint != network:
        remedy = "pass the learner of this network, or run meta_train again with its codes"
        raise UserError(f"{learner_file}: {learned.learner} was trained for another network: {remedy}")
    found = adapt(own, support, query, learned)
    if codes:
        error = f"error {found.error_deg:.2f} degrees (unadapted: {found.unadapted_deg:.2f})"
        print(f"{own}: {found.learner} on {shots} samples: {error} on {found.query_entries} other entries")
    else:
        count = len(recording.files)
        print(f"{count} of {count + len(recording.rejects)} frames can be used")
        print(*(f"  rejected: {reject}\n" for reject in recording.rejects), sep="", end="")
        print(f"{found.learner} on {found.shots} samples: {', '.join(recording.files[entry] for entry in support)}")
        span = SPANS["shipped" if str(model) == SHIPPED else "other"]
        means_deg, lines, fault = check(recording, learned, shots, span)
        print("\n".join(lines))
        if fault:
            raise UserError(f"{manifest}: {fault}")
        errors_deg = {"error_deg": float(means_deg[CALIBRATED]), "unadapted_deg": float(means_deg["unadapted"])}
        found = dataclasses.replace(found, **errors_deg)
    save_fields(dataclasses.replace(found, checkpoint=network), out)
    print(f"{out}: calibration of {own.name}; use it with faze gaze --person {out}")
    log(found, own.name, {"learner": found.learner, "shots": len(support), "network": network, "file": str(out)})


def log(found: PersonalEstimator, person: str, values: dict[str, Any]) -> None:
    """Add the calibration to the MLflow store of the working directory's `results`, if mlflow is installed."""
    try:
        from faze import tracking
    except ModuleNotFoundError:
        return
    start = {"stage": "calibrate", "name": "calibrations", "tier": person, "seed": 0, "time": time.time()}
    start |= {"config": values, "config_hash": values["network"], "fingerprint": "", "machine": machine.describe()}
    metrics = {"error/held_out_deg": found.error_deg, "error/held_out_unadapted_deg": found.unadapted_deg}
    outcome = tracking.Outcome({"metrics": metrics}, values["file"], {}, [])
    place = tracking.Place(person, 0, f"calibration-{person}", BASELINE)
    tracking.Store(read_config().tracking, Path("results")).mirror(LoggedRun(start, start["time"]), place, outcome)


def choose(names: Sequence[str], path: Path, name: str | None) -> str:
    """Return `name` if the file contains this person, or the name of its only person; otherwise, raise a UserError."""
    if name is None and len(names) == 1:
        return names[0]
    if name not in names:
        raise UserError(f"{path}: choose one of its people with --person: {', '.join(names)}")
    return name


def record(path: Path, model: Path, landmarker: Path, name: str | None) -> tuple[Recording, str]:
    """Read a person's frames from a manifest; return the recording and the network's hash."""
    posed = not needs_landmarks(path)
    people = {person.name: person for person in read_manifest(path, posed=posed)}
    person = people[choose(list(people), path, name)]
    with GazeEstimator.load(model, landmarker, faces=int(not posed)) as estimator:
        return read_recording(estimator, person, path), estimator.network.hash


def adapt(person: PersonCodes, support: Sequence[int], query: NDArray[np.int64], learned: Learned) -> PersonalEstimator:
    """Calibrate on the support entries, and measure the error on the query entries."""
    shots = len(support)
    if not len(query):
        raise UserError(f"{person} has {len(person.code)} entries: --shots {shots} leaves none for measuring the error")
    if isinstance(LEARNERS[learned.learner], FineTuned) and shots not in learned.shots:
        trained = ", ".join(map(str, learned.shots))
        raise UserError(f"--shots {shots}: {learned.learner} was trained for k = {trained}; choose one of these")
    return calibrate(person, support, query, learned)
