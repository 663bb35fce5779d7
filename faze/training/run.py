"""One training, from the store of strips to checkpoint and run log; killed, it goes on from its work folder."""

import contextlib
import sys
from pathlib import Path

from faze.base import code_hash
from faze.base.run_log import RunLog
from faze.config.stage_config import Resolved
from faze.data.pairs import hold_what_fits, load_people
from faze.engine import machine
from faze.engine.parallel import World, check_chunks
from faze.training.augmentation import build_augmentation
from faze.training.feed import build_feed
from faze.training.loop import Fit, bare_model, build_step
from faze.training.resume import WorkFolder
from faze.training.setup import TrainingSetup


def train(config: Resolved, data: Path, world: World, out: Path, run_log: Path) -> None:
    """Fit the model of one tier and seed, and write its checkpoint and run log.

    Nothing is trained if these are there already: an orphan of a killed workflow may have written them while we waited.
    """
    setup = TrainingSetup(config.model, config.loss, config.engine, config.train, world, config.seed)
    step = build_step(setup)
    check_chunks(config.train.global_batch, config.loss.chunk_pairs, world.size * step.shares)  # before strips are read
    size = (config.model.image_height_px, config.model.image_width_px)
    people, left_out = load_people(data, "train", size, min_entries=config.data.min_entries)
    validation, _ = load_people(data, "val", size, min_entries=1)
    fingerprint = code_hash.fingerprint("faze.stages.train")
    work = WorkFolder(out.parent / "train.work", f"{config.hash}-{fingerprint}-{people.digest()}")
    if not work.has_ended(out, run_log, config.train.pairs):
        people, validation = hold_what_fits((people, validation), config.data.memory_gib / world.processes_here)
        resume = work.load(bare_model(step), step)
        augmentation = build_augmentation(config.augment, config.preprocess, config.model, len(people.names))
        feed = build_feed(people, setup, workers=config.data.workers, augmentation=augmentation)
        with contextlib.ExitStack() as stack:
            log = None
            if world.rank == 0:
                log = stack.enter_context(RunLog(work.log, keep_bytes=resume.log_bytes))
                introduce(log, config, fingerprint, (*step.switches, *feed.switches), resume.pairs)
                if left_out and not resume.pairs:
                    log.event("note", text=f"left out for too few entries (data.min_entries): {', '.join(left_out)}")
                for note in feed.notes:
                    log.event("note", text=note)
            Fit(setup, step, feed, validation, work, log).run(resume.step)
        world.wait()  # nobody leaves while the first process still writes
        if world.rank == 0:
            work.publish(out, run_log)
    elif world.rank == 0:
        work.remove()


def introduce(log: RunLog, config: Resolved, fingerprint: str, switches: tuple, pairs: int) -> None:
    """Log who is running and how each switch acts; or, if resumed, from where the run goes on."""
    if pairs:
        log.event("resume", step=pairs)
        print(f"train: resumed after {pairs} pairs", file=sys.stderr)
        return
    log.event(
        "start",
        stage=config.stage,
        name=config.name,
        tier=config.tier,
        seed=config.seed,
        config=dict(config.flat),
        config_hash=config.hash,
        fingerprint=fingerprint,
        machine=machine.describe(),
    )
    for switch in switches:
        log.event("switch", switch=switch.switch, wanted=switch.wanted, acted=switch.acted, reason=switch.reason)
        if switch.reason:
            print(f"train: {switch}", file=sys.stderr)
