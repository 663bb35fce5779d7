"""One training run, from its first step to checkpoint and run log; a killed run resumes from its work folder.

If a tier's switches have no effect on this machine, its run is identical to another tier's. Then that run's checkpoint
and metrics are reused.
"""

import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from faze.base.output_cache import key_of, output_cache
from faze.base.preemption import defer
from faze.base.run_log import RunLog, acting, read_events
from faze.config.stage_config import Resolved
from faze.engine import machine
from faze.engine.parallel import World
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
    pixel_source: str | None  # of the strips (`faze.data.store.strips`), if the training has any
    moved: str = ""  # what has changed since the training began, if it resumes

    def key(self, world: World, data: Sequence[str]) -> str:
        """Return a key that identical training runs share: it depends on effective switches, not on the tier's name."""
        acted = {f"engine.{name}": value for name, value in acting(map(asdict, self.switches)).items()}
        facts = machine.describe()
        where = (world.device.type, world.size, torch.get_num_threads(), [facts.get(fact) for fact in ROUNDING_FACTS])
        return key_of("train", dict(self.config.values) | acted, where, data, self.pixel_source)

    def changes_since(self, events: Sequence[Mapping[str, Any]]) -> str:
        """Describe how switches and machine differ from those in the events of a run log; return "" if they do not."""
        before = {event.get("switch"): event.get("acted") for event in events if event["event"] == "switch"}
        now = acting(map(asdict, self.switches))
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


def run_training(
    training: Training,
    run: RunIdentity,
    data: Sequence[str],
    work: WorkFolder,
    outputs: tuple[Path, Path],
    records: Path | None,
) -> None:
    """Train, or reuse an identical run, and write the checkpoint and run log. All processes call this.

    Args:
        training: the training.
        run: its identity.
        data: identity of its data.
        work: its work folder.
        outputs: run log and checkpoint to write.
        records: folder of the output cache; None to neither reuse nor record outputs.
    """
    run_log, out = outputs
    with contextlib.ExitStack() as stack:
        reused, world = False, training.world
        if world.rank == 0:
            before = work.events()
            run = replace(run, moved=run.changes_since(before))
            if run.moved or any(event.get("moved") for event in before):
                records = None  # a run on two machines equals none on either
            copies = (work.donor_log, work.checkpoint)
            reused = stack.enter_context(output_cache(records, run.key(world, data), outputs, copies))
            defer()  # to the end: if it stopped between writing outputs and its end, Snakemake would delete them
        reused = not world.least(int(not reused))
        defer()  # on other ranks only now: while the first one waits for another run, they exit
        if not reused:
            fit(run, training, work)
        elif world.rank == 0:
            reuse_training(run, work)
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


def fit(run: RunIdentity, training: Training, work: WorkFolder) -> None:
    """Train from the work folder's position to the end."""
    resume = work.load(training.module, training.step)
    first = training.world.rank == 0
    with RunLog(work.log, keep_bytes=resume.log_bytes) if first else contextlib.nullcontext() as log:
        if log:
            run.log_start(log, resume.pairs)
        Fit(training, work, log).run(resume)


def reuse_training(run: RunIdentity, work: WorkFolder) -> None:
    """Write the log of a run that reuses another: this run's head, then the metrics of the reused run."""
    donor = read_events(work.donor_log)
    with RunLog(work.log) as log:
        run.log_start(log, 0)
        log.event("reused_from", tier=donor[0]["tier"])
        for event in donor:
            if event["event"] in ("metrics", "resume"):
                log.event(**event)  # with its original time
