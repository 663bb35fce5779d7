"""Rule `train`: normalised strips -> DT-ED checkpoint of one tier and seed.

Under the tier `ddp` the stage becomes torchrun with one process per device; on several nodes start it with torchrun.
A killed training leaves its work folder and resumes from it.
"""

import argparse
import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from faze.base import code_hash
from faze.base.command_line import Parser, one_sentence
from faze.base.machine_lock import machine_shared
from faze.base.output_lock import sole_writer
from faze.base.run_log import RunLog
from faze.config.stage_config import Resolved, load
from faze.data.pairs import load_people
from faze.engine import machine
from faze.engine.parallel import World, check_chunks, join, launch
from faze.training.augmentation import build_augmentation
from faze.training.feed import build_feed
from faze.training.loop import Fit, bare_model, build_step
from faze.training.resume import is_finished, load_training
from faze.training.setup import TrainingSetup


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(__doc__)
    parser.add_config()
    parser.add_argument(
        "--data", type=Path, required=True, help="store of normalised strips, with train and val people"
    )
    parser.add_threads("CPU threads, over all processes")
    parser.add_argument("--out", type=Path, required=True, help="checkpoint.pt to write")
    parser.add_argument("--run-log", type=Path, required=True, help="run.jsonl to write")
    return parser.parse_args()


@one_sentence
def main() -> None:
    """Train, or continue to."""
    args = parse()
    config = load(args.config, "train")
    launch(config.engine, "faze.stages.train", sys.argv[1:])
    work = args.out.parent / "train.work"
    with writing(args.out), join(config.engine, args.threads) as world:
        trained = train(config, args.data, work, world, args.out)
        if trained and world.rank == 0:
            args.run_log.parent.mkdir(parents=True, exist_ok=True)
            (work / "run.jsonl").replace(args.run_log)
            (work / "checkpoint.pt").replace(args.out)
            shutil.rmtree(work)


@contextlib.contextmanager
def writing(out: Path) -> Iterator[None]:
    """Only one training writes this output, and none runs beside a benchmark.

    The first of its processes stands for all; where there are several machines, the first on each.
    """
    with contextlib.ExitStack() as stack:
        if int(os.environ.get("RANK", 0)) == 0:
            stack.enter_context(sole_writer(out))
        if int(os.environ.get("LOCAL_RANK", 0)) == 0:
            stack.enter_context(machine_shared(f"the training {out.absolute()}"))
        yield


def train(config: Resolved, data: Path, work: Path, world: World, out: Path) -> bool:
    """Fit the model; the work folder holds checkpoint and log when it ends.

    Returns:
        False if `out` already is this training's end: an orphan of a killed workflow wrote it while we waited for it.
    """
    size = {"height": config.model.image_height_px, "width": config.model.image_width_px}
    memory = {"memory_gib": config.data.memory_gib}
    people, left_out = load_people(data, "train", min_entries=config.data.min_entries, **size, **memory)
    validation, _ = load_people(data, "val", min_entries=1, **size, **memory)
    setup = TrainingSetup(config.model, config.loss, config.engine, config.train, world, config.seed)
    step = build_step(setup)
    check_chunks(config.train.global_batch, config.loss.chunk_pairs, world.size * step.shares)
    fingerprint = code_hash.fingerprint("faze.stages.train")
    identity = f"{config.hash}-{fingerprint}-{people.digest()}"
    if is_finished(out, identity, config.train.pairs):
        return False
    resume = load_training(work / "checkpoint.pt", identity, bare_model(step), step, world.device)
    feed = build_feed(
        people,
        setup,
        workers=config.data.workers,
        augmentation=build_augmentation(config.augment, config.preprocess, config.model, len(people.names)),
    )
    with contextlib.ExitStack() as stack:
        log = None
        if world.rank == 0:
            log = stack.enter_context(RunLog(work / "run.jsonl", keep_bytes=resume.log_bytes))
            introduce(log, config, fingerprint, (*step.switches, *feed.switches), left_out, resume.pairs)
            for note in feed.notes:
                log.event("note", text=note)
        fit = Fit(
            step,
            feed,
            validation,
            config.model,
            config.loss,
            config.train,
            world,
            log,
            work,
            identity,
        )
        fit.run(resume.step)
    world.wait()  # nobody leaves while the first process still writes
    return True


def introduce(
    log: RunLog, config: Resolved, fingerprint: str, switches: tuple, left_out: list[str], pairs: int
) -> None:
    """Write who is running, how each switch acts, and who is left out; or from where the run goes on."""
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
    if left_out:
        log.event("note", text=f"left out for too few entries (data.min_entries): {', '.join(left_out)}")


if __name__ == "__main__":
    sys.exit(main())
