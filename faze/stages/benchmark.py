"""Rule `benchmark`: speed and memory of every tier, interleaved in fresh processes on fixed batches.

Nothing else may run on the machine meanwhile: the rule claims every core, and the stage refuses to start where another
benchmark or a training runs, of whatever checkout and user.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from faze import machine
from faze.benchmark import Player, conduct, player_command, players
from faze.config import Resolved, load
from faze.engine.parallel import check_chunks, join, launch
from faze.feed import build_feed
from faze.files import sole_writer, whole_file
from faze.measurement import MemoryPeak, refuse_debugging
from faze.pairs import load_people
from faze.solitude import machine_alone
from faze.stages import one_sentence
from faze.training import build_step


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True, help="resolved configuration of this stage")
    parser.add_argument("--data", type=Path, required=True, help="store of normalised strips")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="CPU threads of each tier in its turn")
    parser.add_argument("--out", type=Path, help="benchmark.json to write")
    parser.add_argument("--tier", help=argparse.SUPPRESS)  # with --conductor: be a player
    parser.add_argument("--conductor", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.out and not args.conductor:
        parser.error("--out is needed")
    return args


@one_sentence
def main() -> None:
    """Conduct the benchmark, or play one tier for the conductor."""
    args = parse()
    config = load(args.config, "benchmark")
    if args.conductor:
        play(config, args)
        return
    commands = {tier: player_command(tier, args.config, args.data, args.threads) for tier in config.engines}
    refuse_debugging()
    what = f"the benchmark {args.out.absolute()}"
    with machine_alone(what), sole_writer(args.out), players(commands) as tiers:
        measured = conduct(tiers, config.benchmark, config.train.global_batch)
    result = {"machine": machine.describe(), "tiers": measured}
    with whole_file(args.out) as temporary:
        temporary.write_text(json.dumps(result, indent=2), encoding="utf-8")


def play(config: Resolved, args: argparse.Namespace) -> None:
    """Build the step of one tier and run blocks of it when told to."""
    engine = config.engines[args.tier]
    launch(engine, "faze.stages.benchmark", sys.argv[1:])
    with join(engine, args.threads) as world:
        size = {"height": config.model.image_height_px, "width": config.model.image_width_px}
        memory = {"memory_gib": config.data.memory_gib}
        people, _ = load_people(args.data, "train", min_entries=config.data.min_entries, **size, **memory)
        peak = MemoryPeak(world.device)
        sections = {"model": config.model, "train": config.train}
        acts = {"engine_switches": engine, "world": world, "seed": 0}
        step = build_step(**sections, loss=config.loss, **acts)
        check_chunks(config.train.global_batch, config.loss.chunk_pairs, world.size * step.shares)
        feed = build_feed(people, workers=0, **sections, **acts)
        player = Player(step, feed, world, config.loss, config.train, config.benchmark, peak)
        player.play(args.conductor, args.tier)


if __name__ == "__main__":
    sys.exit(main())
