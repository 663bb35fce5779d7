"""Rule `walk`: checkpoint and normalised strips -> latent walks as one contact sheet and a video per person."""

from argparse import Namespace
from pathlib import Path

import torch

from faze.base.command_line import CONFIG, argument, command, needed, threads
from faze.base.files import whole_folder
from faze.base.output_lock import sole_writer
from faze.base.progress import Progress
from faze.config.stage_config import load
from faze.data.store.strips import StripStore
from faze.engine.precision import exact
from faze.model.weights import load_model
from faze.redirection.drawing import contact_sheet, video_frames, write_picture
from faze.redirection.video import write_video
from faze.redirection.walk import first_people, walk_person


@command(
    __doc__,
    CONFIG,
    needed("--checkpoint", "trained DT-ED"),
    argument("--data", type=Path, nargs="+", required=True, help="stores of normalised strips"),
    threads(),
    needed("--out", "folder to write"),
)
def main(args: Namespace) -> None:
    """Walk from the first strip of some people of each store."""
    torch.set_num_threads(args.threads)
    walk = load(args.config, "walk").walk
    dted = load_model(args.checkpoint, "cuda" if torch.cuda.is_available() else "cpu")
    progress = Progress("walk", len(args.data) * walk.people, "people")
    walks = []
    with sole_writer(args.out), whole_folder(args.out) as folder, exact(dted):
        for path in args.data:
            with StripStore(path) as strips:
                for person in first_people(strips, walk.people):
                    walks.append(walk_person(dted, strips, person, range_deg=walk.range_deg, steps=walk.frames))
                    write_video(folder / f"{strips.dataset}_{person}.mp4", video_frames(walks[-1]), walk.fps)
                    progress(len(walks))
        write_picture(folder / "contact_sheet.png", contact_sheet(walks))
