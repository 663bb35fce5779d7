"""Meta-train few-shot learners on the gaze codes of the training people. Paper section 3.2.

The first output belongs to the first learner, and so on.
"""

import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from faze.base.errors import UserError
from faze.config.parameters import Fewshot
from faze.config.stage_config import Resolved
from faze.data.codes import CodeStore
from faze.fewshot.interface import Adaptation, Learner, MetaTraining
from faze.fewshot.learner_file import Learned, save_fields
from faze.fewshot.learners import LEARNERS
from faze.fewshot.mlp import gaze_head_weights
from faze.fewshot.person_codes import PersonCodes, draw_calibrations, read_people, unadapted_error_deg


def main(*, config: Resolved, codes: Path, threads: int, out: list[Path]) -> None:
    """Read the people's codes, meta-train each learner, and write the learners' files."""
    settings, store = config.fewshot, CodeStore(codes)
    train, val, few = training_people(store, codes, settings, [LEARNERS[name] for name in settings.learners])
    for sentence in few["train"] + few["val"]:
        print(f"warning: {sentence}", file=sys.stderr)
    head = gaze_head_weights(store.gaze_head) if store.gaze_head else None
    for name, path in zip(settings.learners, out, strict=True):
        learner, began = LEARNERS[name], time.perf_counter()
        seen, left_out = (train, few["train"] + few["val"]) if learner.learns_from_tasks else ([], few["val"])
        training = MetaTraining(seen, val, settings, config.seed, threads, head)
        learned = learner.meta_train(training)
        about = {
            "seconds": time.perf_counter() - began,
            "left_out": left_out,
            "checkpoint": store.checkpoint,
            "val_deg": val_errors(learner, learned, training),
        }
        save_fields(dataclasses.replace(learned, **about), path)


def val_errors(learner: Learner, learned: Learned, training: MetaTraining) -> dict[str, float]:
    """Measure the mean error in degrees at each k of val people calibrated like test people; "0" is unadapted."""
    if not training.val:
        return {}
    settings = training.settings
    calibrations = draw_calibrations(training.val, settings, repeats=settings.repeats)
    errors = learner.errors(learned, Adaptation(calibrations, settings, training.threads)).adapted_deg
    shots = np.array([calibration.shots for calibration in calibrations])
    unadapted = np.mean([unadapted_error_deg(person, settings.query_entries) for person in training.val])
    return {"0": float(unadapted)} | {str(k): float(errors[shots == k].mean()) for k in settings.shots}


def training_people(
    codes: CodeStore, path: Path, settings: Fewshot, learners: Sequence[Learner]
) -> tuple[list[PersonCodes], list[PersonCodes], dict[str, list[str]]]:
    """Read the people that the learners need: train people with enough entries for a task, and val people.

    Returns:
        Train people, val people, and for each split a sentence about each person with too few entries.

    Raises:
        UserError: an outer step requires more train people.
    """
    train, few = [], {"train": []}
    largest, reason = max(settings.shots), "the largest of fewshot.shots + fewshot."
    needed = largest + settings.query_entries
    val, few["val"] = read_people(codes, "val", needed=needed, reason=reason + "query_entries")
    if any(learner.learns_from_tasks for learner in learners):
        needed = largest + settings.meta_query
        train, few["train"] = read_people(codes, "train", needed=needed, reason=reason + "meta_query")
        if len(train) < settings.tasks:
            raise UserError(
                f"{path}: {len(train)} people in the train split have enough entries for a task, fewer than "
                f"fewshot.tasks = {settings.tasks}: lower fewshot.tasks, fewshot.meta_query or fewshot.shots"
            )
    return train, val, few
