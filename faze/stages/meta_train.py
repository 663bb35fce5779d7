"""Meta-train few-shot learners on the gaze codes of the training people. Paper section 3.2.

The outputs are in the same order as the learners.
"""

import dataclasses
import sys
import time
from pathlib import Path

import numpy as np
import torch

from faze.base.errors import UserError
from faze.config.stage_config import Resolved
from faze.data.codes import CodeStore
from faze.fewshot.interface import Learned, Learner, MetaTraining
from faze.fewshot.learners import LEARNERS, save_fields
from faze.fewshot.person_codes import draw_calibrations, read_people, unadapted_error_deg


def main(*, config: Resolved, codes: Path, threads: int, out: list[Path]) -> None:
    """Read the people's codes, meta-train each learner, and write the learners' files."""
    torch.set_num_threads(1)  # more threads would only spin on small tensors
    settings, store, largest = config.fewshot, CodeStore(codes), max(config.fewshot.shots)
    learners, reason = [LEARNERS[name] for name in settings.learners], "max(fewshot.shots) + fewshot."
    val, few = read_people(store, "val", needed=largest + settings.query_entries, reason=reason + "query_entries")
    train, few_train = [], []
    if any(learner.learns_from_tasks for learner in learners):
        needed = largest + settings.meta_query
        train, few_train = read_people(store, "train", needed=needed, reason=reason + "meta_query")
        if len(train) < settings.tasks:
            found = f"only {len(train)} training people have {needed} entries"
            raise UserError(f"{codes}: {found}: lower fewshot.tasks or meta_query")
    for sentence in few_train + few:
        print(f"warning: {sentence}", file=sys.stderr)
    for learner, path in zip(learners, out, strict=True):
        examples = train if learner.learns_from_tasks else []
        training = MetaTraining(examples, val, settings, config.seed, threads, store.gaze_head)
        began, left_out = time.perf_counter(), few_train * learner.learns_from_tasks + few
        learned = learner.meta_train(training)
        about = {"checkpoint": store.checkpoint, "seconds": time.perf_counter() - began, "left_out": left_out}
        save_fields(dataclasses.replace(learned, val_deg=val_errors(learner, learned, training), **about), path)


def val_errors(learner: Learner, learned: Learned, training: MetaTraining) -> dict[str, float]:
    """Calibrate val people like test people; return their mean error in degrees for each k ("0": uncalibrated)."""
    if not training.val:
        return {}
    settings = training.settings
    calibrations = draw_calibrations(training.val, settings, repeats=settings.repeats)
    errors = learner.errors(learned, calibrations, settings, training.threads).adapted_deg
    unadapted = np.mean([unadapted_error_deg(person, settings.query_entries) for person in training.val])
    of_shots = errors.reshape(len(settings.shots), -1).mean(axis=1)
    return {"0": float(unadapted)} | dict(zip(map(str, settings.shots), of_shots.tolist(), strict=True))
