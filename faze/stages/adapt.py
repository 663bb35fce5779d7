"""Adapt few-shot learners to test people, and measure the errors on their query entries. Paper section 4.

The outputs are in the same order as the learners. All learners use the same calibrations. The rows for k = 0
contain the errors of the trained gaze head and are the same for all learners. See docs/reference/formats.md.
"""

import sys
import time
from pathlib import Path

import torch

from faze.base.errors import UserError
from faze.config.stage_config import Resolved
from faze.data.codes import CodeStore
from faze.fewshot.interface import errors_table, write_tables
from faze.fewshot.learners import LEARNERS, load_learned
from faze.fewshot.person_codes import draw_calibrations, read_people


def main(*, config: Resolved, learner_file: list[Path], codes: list[Path], threads: int, out: list[Path]) -> None:
    """Read test people and learners, draw calibrations, adapt the learners, and write the errors."""
    torch.set_num_threads(1)  # more threads would only spin on small tensors
    settings, people, left_out = config.fewshot, [], []
    needed = max(max(settings.shots) + settings.query_entries, settings.min_entries)
    reason = "max(fewshot.shots) + fewshot.query_entries, or fewshot.min_entries"
    for path in codes:
        found, few = read_people(CodeStore(path), "test", needed=needed, reason=reason)
        if not found:
            raise UserError(f"{path}: no person in the test split has {needed} entries ({reason}): lower these values")
        people, left_out = people + found, left_out + few
    for sentence in left_out:
        print(f"warning: {sentence}", file=sys.stderr)
    calibrations = draw_calibrations(people, settings, repeats=settings.repeats)
    for name, file, path in zip(settings.learners, learner_file, out, strict=True):
        learned, began = load_learned(file), time.perf_counter()
        errors = LEARNERS[name].errors(learned, calibrations, settings, threads)
        about = {"left_out": left_out, "left_out_of_training": learned.left_out, "val_deg": learned.val_deg}
        about["seconds"] = {"learn": learned.seconds, "adapt": time.perf_counter() - began}
        write_tables([errors_table(name, calibrations, settings.query_entries, errors)], path, about)
