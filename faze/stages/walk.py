"""Rule `walk`: checkpoint and normalised strips -> latent walks as one contact sheet and a video per person."""

import argparse
import sys
from pathlib import Path

import torch

from faze.base.command_line import Parser, one_sentence
from faze.base.files import whole_folder
from faze.base.output_lock import sole_writer
from faze.base.progress import Progress
from faze.config.stage_config import load
from faze.data.store.strips import StripStore
from faze.model.weights import load_model
from faze.redirection.drawing import contact_sheet, video_frames, write_picture
from faze.redirection.video import write_video
from faze.redirection.walk import first_people, walk_person


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(__doc__)
    parser.add_config()
    parser.add_argument("--checkpoint", type=Path, required=True, help="trained DT-ED")
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="stores of normalised strips")
    parser.add_threads()
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    return parser.parse_args()


@one_sentence
def main() -> None:
    """Walk from the first strip of some people of each store."""
    args = parse()
    torch.set_num_threads(args.threads)
    walk = load(args.config, "walk").walk
    dted = load_model(args.checkpoint, "cuda" if torch.cuda.is_available() else "cpu")
    progress = Progress("walk", len(args.data) * walk.people, "people")
    walks = []
    with sole_writer(args.out), whole_folder(args.out) as folder:
        for path in args.data:
            with StripStore(path) as strips:
                for person in first_people(strips, walk.people):
                    walks.append(walk_person(dted, strips, person, range_deg=walk.range_deg, steps=walk.frames))
                    write_video(folder / f"{strips.dataset}_{person}.mp4", video_frames(walks[-1]), walk.fps)
                    progress(len(walks))
        write_picture(folder / "contact_sheet.png", contact_sheet(walks))


if __name__ == "__main__":
    sys.exit(main())
