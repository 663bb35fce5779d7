"""One training, from the store of strips to checkpoint and run log; killed, it goes on from its work folder.

Who would do the very same steps as another run, since its switches cannot act here, takes over checkpoint and metrics.
"""

import contextlib
from dataclasses import replace
from pathlib import Path

import torch

from faze.base import code_hash
from faze.base.output_cache import output_cache
from faze.base.preemption import defer
from faze.base.run_log import RunLog, read_events
from faze.config.stage_config import Resolved
from faze.data.pairs import PeopleStrips, hold_what_fits, load_people
from faze.data.store.strips import StripStore
from faze.engine.parallel import World
from faze.engine.step import Step
from faze.engine.wrap import check_chunks
from faze.model.dted import DTED
from faze.training.augmentation import build_augmentation
from faze.training.feed import Feed, build_feed
from faze.training.loop import Fit, bare_model, build_step
from faze.training.resume import WorkFolder
from faze.training.setup import TrainingSetup
from faze.training.trainee import Trainee


def train(config: Resolved, data: Path, world: World, out: Path, run_log: Path, records: Path | None = None) -> None:
    """Fit the model of one tier and seed, and write its checkpoint and run log.

    Nothing is trained if these are there already: an orphan of a killed workflow may have written them while we waited.
    Nor if the records (None: there are none) lead to another run's training that did the same.
    """
    setup = TrainingSetup(config.model, config.loss, config.engine, config.train, world, config.seed)
    step = build_step(setup)
    if config.control == "rounding":
        move_a_weight(bare_model(step))
    check_chunks(config.train.global_batch, config.loss.chunk_pairs, world.size * step.shares)  # before strips are read
    size = (config.model.image_height_px, config.model.image_width_px)
    people, left_out = load_people(data, "train", size, min_entries=config.data.min_entries)
    validation, _ = load_people(data, "val", size, min_entries=1)
    fingerprint = code_hash.fingerprint("faze.stages.train")
    with StripStore(data) as strips:
        read, pixel_source = strips.identity("train", "val"), strips.pixel_source
        identity = f"{config.hash}-{fingerprint}-{read[0]}"
        if world.rank == 0:
            strips.check([*people.names, *validation.names])
    work = WorkFolder(out.parent / "train.work", identity)
    if work.has_ended(out, run_log, config.train.pairs):
        if world.rank == 0:
            work.remove()
        return
    people, validation = hold_what_fits((people, validation), config.data.memory_gib / world.processes_here)
    augmentation = build_augmentation(config.augment, config.preprocess, config.model, len(people.names))
    feed = build_feed(people, setup, workers=config.data.workers, augmentation=augmentation)
    words = [f"left out for too few entries (data.min_entries): {', '.join(left_out)}"] if left_out else []
    trainee = Trainee(config, fingerprint, (*step.switches, *feed.switches), (*words, *feed.notes), pixel_source)
    with contextlib.ExitStack() as stack:
        taken = False
        if world.rank == 0:
            outputs, copies = (run_log, out), (work.donor_log, work.checkpoint)
            before = work.events()
            trainee = replace(trainee, moved=trainee.moved_from(before))
            if trainee.moved or any(event.get("moved") for event in before):
                records = None  # what two machines made is not what either would make
            taken = stack.enter_context(output_cache(records, trainee.key(world, read), outputs, copies))
            defer()  # to the end: who leaves between the outputs and the end would lose them to the workflow
        anew = world.least(int(not taken))
        defer()  # the others: while the first one waits for another training, they end at once
        if anew:
            go_on(trainee, setup, step, feed, validation, work)
        elif world.rank == 0:
            reuse_training(trainee, work)
        world.wait()  # nobody leaves while the first process still writes
        if world.rank == 0:
            work.publish(out, run_log)


@torch.no_grad()
def move_a_weight(dted: DTED) -> None:
    """Move one weight by one unit in the last place: all that follows differs by what rounding alone does.

    The largest of the first convolution, which all pixels pass: the sums after a smaller one would round it away.
    """
    kernel = dted.encoder.initial.conv1.weight
    weight = kernel[torch.unravel_index(kernel.abs().argmax(), kernel.shape)]
    weight.copy_(torch.nextafter(weight, torch.full_like(weight, torch.inf)))


def go_on(
    trainee: Trainee, setup: TrainingSetup, step: Step, feed: Feed, validation: PeopleStrips, work: WorkFolder
) -> None:
    """Train from where the work folder says to the end."""
    resume = work.load(bare_model(step), step)
    first = setup.world.rank == 0
    with RunLog(work.log, keep_bytes=resume.log_bytes) if first else contextlib.nullcontext() as log:
        if log:
            trainee.introduce(log, resume.pairs)
        Fit(setup, step, feed, validation, work, log).run(resume)


def reuse_training(trainee: Trainee, work: WorkFolder) -> None:
    """Write the log of a training that another run has done: its own beginning, then what the other has measured."""
    donor = read_events(work.donor_log)
    with RunLog(work.log) as log:
        trainee.introduce(log, 0)
        log.event("reused_from", tier=donor[0]["tier"])
        for event in donor:
            if event["event"] in ("metrics", "resume"):
                log.event(**event)  # with the time at which the other wrote it
