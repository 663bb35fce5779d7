"""One training run, from its first step to checkpoint and run log; a killed run resumes from its work folder."""

import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from faze.base.run_log import RunLog
from faze.config.stage_config import Resolved
from faze.engine import machine
from faze.engine.switches import Switch
from faze.training.loop import Fit, Training
from faze.training.resume import WorkFolder

# Facts of the machine that change rounding: another processor leads to slightly different weights.
ROUNDING_FACTS = ("processor", "gpus", "cuda", "cudnn", "torch", "variables")


@dataclass(frozen=True)
class RunIdentity:
    """The identity of one tier's training with one seed on this machine, and the head of its run log."""

    config: Resolved
    fingerprint: str  # of the code
    switches: tuple[Switch, ...]
    notes: tuple[str, ...]
    pixel_source: str | None  # of the strips (`faze.data.strips`), if the training has any
    moved: str = ""  # what has changed since the training began, if it resumes

    def changes_since(self, events: Sequence[Mapping[str, Any]]) -> str:
        """Describe how switches and machine differ from those in the events of a run log; return "" if they do not."""
        before = {event.get("switch"): event.get("acted") for event in events if event["event"] == "switch"}
        now = {switch.switch: switch.acted for switch in self.switches}
        if events:
            first, here = events[0].get("machine") or {}, machine.describe()
            before |= {fact: first[fact] or "none" for fact in ROUNDING_FACTS if fact in first}
            now |= {fact: str(here.get(fact)) or "none" for fact in ROUNDING_FACTS}
        return "; ".join(
            f"{name} {now[name]} (before: {old})" for name, old in before.items() if now.get(name, old) != old
        )

    def log_start(self, log: RunLog, pairs: int) -> None:
        """Log the run and the effect of each switch; if it resumes after `pairs` pairs, log that and the changes."""
        if pairs:
            log.event("resume", step=pairs, moved=self.moved)
            print(f"train: resumed after {pairs} pairs", file=sys.stderr)
            if self.moved:
                run = f"{self.config.tier}, seed {self.config.seed}"
                note = f"{run}: changed after {pairs} pairs: {self.moved}"
                log.event("note", text=note)
                print(f"train: {note}", file=sys.stderr)
        else:
            log.event(
                "start",
                stage=self.config.stage,
                name=self.config.name,
                tier=self.config.tier,
                seed=self.config.seed,
                config=dict(self.config.flat),
                config_hash=self.config.hash,
                fingerprint=self.fingerprint,
                machine=machine.describe(),
                pixel_source=self.pixel_source,
            )
            for switch in self.switches:
                log.event("switch", **asdict(switch))
                if switch.reason:
                    print(f"train: {switch}", file=sys.stderr)
        for note in self.notes:
            log.event("note", text=note)


def run_training(training: Training, run: RunIdentity, work: WorkFolder, run_log: Path, out: Path) -> None:
    """Train from the work folder's position to the end, and write run log and checkpoint. All processes call this."""
    world = training.world
    if world.rank == 0:
        run = replace(run, moved=run.changes_since(work.events()))
    resume = work.load(training.module, training.step)
    with RunLog(work.log, keep_bytes=resume.log_bytes) if world.rank == 0 else contextlib.nullcontext() as log:
        if log:
            run.log_start(log, resume.pairs)
        Fit(training, work, log).run(resume)
    world.wait()  # until the first process has written the work folder
    if world.rank == 0:
        work.publish(out, run_log)


@torch.no_grad()
def perturb_weight(weights: Tensor) -> None:
    """Increase one weight by one unit in the last place, so that all later differences are due to rounding.

    Args:
        weights: weights of the first layer, which affects everything. The largest one changes; a change in a smaller
            one would be lost in the sums.
    """
    weight = weights[torch.unravel_index(weights.abs().argmax(), weights.shape)]
    weight.copy_(torch.nextafter(weight, torch.full_like(weight, torch.inf)))
