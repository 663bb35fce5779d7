"""Rule `walk`: checkpoint and normalised strips -> latent walks as one contact sheet and a video per person."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import torch

from faze.base import code_hash
from faze.base.command_line import CONFIG, MADE_ONCE, argument, command, needed, threads
from faze.base.files import check_replaceable, whole_folder
from faze.base.made_once import content, key_of, made_once, same_file
from faze.base.output_lock import sole_writer
from faze.base.progress import Progress
from faze.config.parameters import Walk
from faze.config.stage_config import load
from faze.data.store.strips import StripStore
from faze.engine.precision import exact
from faze.model.dted import DTED
from faze.model.inference import for_inference
from faze.model.weights import load_model
from faze.redirection.drawing import contact_sheet, video_frames, write_picture
from faze.redirection.video import write_video
from faze.redirection.walk import first_people, walk_person

SHEET = "contact_sheet.png"


@command(
    __doc__,
    CONFIG,
    needed("--checkpoint", "trained DT-ED"),
    argument("--data", type=Path, nargs="+", required=True, help="stores of normalised strips"),
    threads(),
    needed("--out", "folder to write"),
    MADE_ONCE,
)
def main(args: Namespace) -> None:
    """Walk from the first strip of some people of each store."""
    check_replaceable(args.out, [SHEET])
    torch.set_num_threads(args.threads)
    config = load(args.config, "walk")
    dted = load_model(args.checkpoint, "cuda" if torch.cuda.is_available() else "cpu")
    of = (content(args.checkpoint), [same_file(path) for path in args.data], args.threads, torch.cuda.is_available())
    key = key_of("walk", config.values, code_hash.fingerprint("faze.stages.walk"), *of)
    with sole_writer(args.out), made_once(args.made_once, key, [args.out]) as taken:
        if not taken:
            write_walks(dted, args.data, config.walk, args.out)


def write_walks(dted: DTED, stores: Sequence[Path], walk: Walk, out: Path) -> None:
    """Write a video of each person's walk, and all walks on one sheet."""
    progress = Progress("walk", len(stores) * walk.people, "people")
    walks = []
    with whole_folder(out) as folder, exact(dted):
        fast = for_inference(dted)
        for path in stores:
            with StripStore(path) as strips:
                for person in first_people(strips, walk.people):
                    walks.append(walk_person(fast, strips, person, range_deg=walk.range_deg, steps=walk.frames))
                    write_video(folder / f"{strips.dataset}_{person}.mp4", video_frames(walks[-1]), walk.fps)
                    progress(len(walks))
        write_picture(folder / SHEET, contact_sheet(walks))
