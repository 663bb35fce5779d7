"""Meta-train few-shot learners on the gaze codes of the training people. Paper section 3.2.

The first output belongs to the first learner, and so on. A killed run resumes from a work folder next to the output.
Snakemake deletes all outputs of a killed job, so each work folder is kept until the last learner is finished.
"""

import dataclasses
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from faze.base import code_hash
from faze.base.command_line import CONFIG, KEEP_EXISTING, argument, command, in_rows, needed, threads
from faze.base.errors import UserError
from faze.base.locks import output_lock
from faze.base.output_cache import content, existing_output, key_of
from faze.config.parameters import Fewshot
from faze.config.stage_config import load
from faze.data.store.codes import CodeStore
from faze.fewshot.interface import Adaptation, Learner, MetaTraining
from faze.fewshot.learner_file import Learned, save_fields
from faze.fewshot.learners import LEARNERS
from faze.fewshot.meta_training import ResumeFile
from faze.fewshot.mlp import gaze_head_weights
from faze.fewshot.person_codes import PersonCodes, draw_calibrations, open_codes, read_people, unadapted_error_deg


@command(
    __doc__,
    CONFIG,
    argument("--learner", choices=LEARNERS, nargs="+", required=True),
    needed("--codes", "store of codes with people in the train split"),
    threads(default=1),
    needed("--out", "learners' files to write, one per learner", nargs="+"),
    KEEP_EXISTING,
)
def main(args: Namespace) -> None:
    """Read the people's codes, meta-train each learner, and write the learners' files."""
    learners = in_rows(args, "learner", "out")
    config = load(args.config, "meta_train")
    if config.seed is None:
        raise UserError(f"{args.config} has no seed, which is needed for initial weights and tasks: add the key seed")
    codes = open_codes(args.codes)
    train, val, few = training_people(codes, args.codes, config.fewshot, [LEARNERS[name] for name in args.learner])
    for sentence in few["train"] + few["val"]:
        print(f"warning: {sentence}", file=sys.stderr)
    head = gaze_head_weights(codes.gaze_head) if codes.gaze_head else None
    fingerprint, learnt_from = code_hash.fingerprint("faze.stages.meta_train"), content(args.codes)
    resume_files = []
    for name, out in learners:
        learner = LEARNERS[name]
        seen, left_out = (train, few["train"] + few["val"]) if learner.learns_from_tasks else ([], few["val"])
        own = f"{name}-{config.hash}-{fingerprint}-{learnt_from}"
        resume_files.append(ResumeFile(out.with_suffix(".work") / "resume.pt", own))
        training = MetaTraining(seen, val, config.fewshot, config.seed, args.threads, head, resume_files[-1])
        key = key_of("meta_train", name, config.values, learnt_from, args.threads)
        with output_lock(out), existing_output(key, [out], args.keep_existing) as kept:
            if not kept:
                began = time.perf_counter()
                learned = learner.meta_train(training)
                about = {
                    "seconds": time.perf_counter() - began,
                    "left_out": left_out,
                    "checkpoint": codes.checkpoint,
                    "val_deg": val_errors(learner, learned, training),
                }
                save_fields(dataclasses.replace(learned, **about), out)
    for resume_file in resume_files:
        resume_file.remove()


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
        UserError: an outer step requires more train people, or there are no val people for selecting the number of
            steps.
    """
    train, few = [], {"train": []}
    largest, reason = max(settings.shots), "the largest of fewshot.shots + fewshot."
    needed = largest + settings.query_entries
    val, few["val"] = read_people(codes, "val", needed=needed, reason=reason + "query_entries")
    from_tasks = any(learner.learns_from_tasks for learner in learners)
    if from_tasks:
        needed = largest + settings.meta_query
        train, few["train"] = read_people(codes, "train", needed=needed, reason=reason + "meta_query")
    if settings.stopping == "validation" and not val and any(learner.takes_steps for learner in learners):
        raise UserError(
            f"{path}: no person in the val split has enough entries to choose the number of adaptation steps: set "
            "fewshot.stopping: fixed"
        )
    if from_tasks and len(train) < settings.tasks:
        raise UserError(
            f"{path}: {len(train)} people in the train split have enough entries for a task, fewer than "
            f"fewshot.tasks = {settings.tasks}: lower fewshot.tasks, fewshot.meta_query or fewshot.shots"
        )
    return train, val, few
