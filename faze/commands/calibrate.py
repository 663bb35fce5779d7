r"""`faze calibrate`: a person at the camera, or frames of a person -> a calibrated gaze estimator and its error.

    faze calibrate --out me.pt
    faze calibrate --manifest me/frames.csv --out me.pt

Without a manifest, the calibration takes place in a browser, at the address that the command prints. The page asks for
13 looks: nine calibrate, and four measure the error. It also shows the gaze live, checks whether a calibration still
holds, and validates it for 20 seconds.
With a manifest, calibration uses one frame of each target, or k frames spread over the targets. Its error is measured
by leave-one-target-out cross-validation.
If a calibration is not shown to be better than a constant guess, no file is saved. See docs/how-to/gaze.md.
The output is a dict of the fields of `PersonalEstimator` (faze.fewshot); read it with torch.load(weights_only=True).
"""

import contextlib
import dataclasses
import tempfile
import time
from datetime import date
from pathlib import Path

import numpy as np
import torch

from faze.base.errors import UserError
from faze.base.run_log import LoggedRun
from faze.base.tier_colors import BASELINE
from faze.config.validation import read_config
from faze.data.landmarks.detector import open_faces
from faze.data.readers.manifest import needs_landmarks, read_manifest
from faze.engine import machine
from faze.fewshot.fine_tuning import FineTuned
from faze.fewshot.interface import Learned
from faze.fewshot.learners import (
    LEARNERS,
    PersonalEstimator,
    calibrate,
    load_learned,
    load_personal_estimator,
    save_fields,
)
from faze.gaze.calibration_page import SHOTS, Sitting, serve
from faze.gaze.cross_validation import CALIBRATED, SPANS, check
from faze.gaze.estimator import LANDMARKER, GazeEstimator
from faze.gaze.recording import Recording, read_recording
from faze.weights import FOLDER, SHIPPED


def main(
    *,
    manifest: Path | None = None,
    model: Path = Path(SHIPPED),
    landmarker: Path = LANDMARKER,
    person: str | None = None,
    shots: int | None = None,
    learner_file: Path | None = None,
    images: Path | None = None,
    out: Path,
) -> None:
    """Calibrate, measure the error, and write the calibration.

    Args:
        manifest: table of the person's frames; default: calibrate in a browser
        model: network, as for faze gaze; default: the shipped network
        landmarker: MediaPipe Face Landmarker file, for frames without a head pose (default: face_landmarker.task)
        person: name of the person in the manifest; not needed if there is only one
        shots: k, the number of frames of the manifest that calibrate
        learner_file: meta_train output for this network (default: offset, or bayes for the shipped network)
        images: folder in which the browser's images are kept; default: a temporary folder
    """
    if learner_file is None and str(model) == SHIPPED:
        learner_file = FOLDER / "bayes.pt"
    learned = load_learned(learner_file) if learner_file else Learned("offset", [], {})
    if manifest:
        recording, network = record(manifest, model, landmarker, person)
        check_learner(learned, learner_file, network, len(recording.support(shots)))
        found = calibrate_frames(recording, shots, learned, manifest, "shipped" if str(model) == SHIPPED else "other")
        setup = {"network": str(model), "date": date.today().isoformat()}
        save(dataclasses.replace(found, checkpoint=network, setup=setup), out)
        return
    torch.set_num_threads(1)  # for one strip at a time, more threads are slower
    with contextlib.ExitStack() as stack:
        folder = images or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="faze-")))
        folder.mkdir(parents=True, exist_ok=True)
        estimator = stack.enter_context(GazeEstimator.load(model, landmarker))
        check_learner(learned, learner_file, estimator.network.hash, SHOTS)
        detect_two = stack.enter_context(open_faces(landmarker, 2))
        sitting = Sitting(estimator, detect_two, learned, str(model), folder, out, save)
        if out.exists():
            sitting.use(load_personal_estimator(out, estimator.network.hash))
        serve(sitting)


def record(path: Path, model: Path, landmarker: Path, name: str | None) -> tuple[Recording, str]:
    """Read a person's frames from a manifest; return the recording and the network's hash."""
    posed = not needs_landmarks(path)
    people = {person.name: person for person in read_manifest(path, posed=posed)}
    if name is None and len(people) == 1:
        [name] = people
    if name not in people:
        raise UserError(f"{path}: choose one of its people with --person: {', '.join(people)}")
    with GazeEstimator.load(model, landmarker, faces=int(not posed)) as estimator:
        return read_recording(estimator, people[name], path), estimator.network.hash


def check_learner(learned: Learned, path: Path | None, network: str, shots: int) -> None:
    """Refuse a learner that was trained for another network or another number of samples."""
    if learned.state and learned.checkpoint != network:
        remedy = "pass the learner of this network, or run meta_train again with its codes"
        raise UserError(f"{path}: {learned.learner} was trained for another network: {remedy}")
    if isinstance(LEARNERS[learned.learner], FineTuned) and shots not in learned.shots:
        trained = ", ".join(map(str, learned.shots))
        raise UserError(f"--shots {shots}: {learned.learner} was trained for k = {trained}; choose one of these")


def calibrate_frames(
    recording: Recording, shots: int | None, learned: Learned, path: Path, span: str
) -> PersonalEstimator:
    """Calibrate on frames of all targets, and measure the error by cross-validation."""
    support, count = recording.support(shots), len(recording.files)
    found = calibrate(recording.person, support, np.arange(count), learned)
    print(f"{count} of {count + len(recording.rejects)} frames can be used")
    print(*(f"  rejected: {reject}\n" for reject in recording.rejects), sep="", end="")
    print(f"{found.learner} on {found.shots} samples: {', '.join(recording.files[entry] for entry in support)}")
    means_deg, lines, fault = check(recording, learned, shots, SPANS[span])
    print("\n".join(lines))
    if fault:
        raise UserError(f"{path}: {fault}")
    errors_deg = {"error_deg": float(means_deg[CALIBRATED]), "unadapted_deg": float(means_deg["unadapted"])}
    return dataclasses.replace(found, **errors_deg)


def save(found: PersonalEstimator, out: Path) -> None:
    """Write the calibration, and add it to the MLflow store of the working directory's `results`."""
    save_fields(found, out)
    print(f"{out}: calibration of {found.person}; use it with faze gaze --person {out}", flush=True)
    from faze import tracking  # importing mlflow takes seconds

    values = {"learner": found.learner, "shots": found.shots, "network": found.checkpoint, "file": str(out)}
    start = {"stage": "calibrate", "name": "calibrations", "tier": found.person, "seed": 0, "time": time.time()}
    start |= {"config": values, "config_hash": values["network"], "fingerprint": "", "machine": machine.describe()}
    metrics = {"error/held_out_deg": found.error_deg, "error/held_out_unadapted_deg": found.unadapted_deg}
    outcome = tracking.Outcome({"metrics": metrics}, values["file"], {}, [])
    place = tracking.Place(found.person, 0, f"calibration-{found.person}", BASELINE)
    tracking.Store(read_config().tracking, Path("results")).mirror(LoggedRun(start, start["time"]), place, outcome)
