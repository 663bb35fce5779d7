"""Rule `walk`: checkpoint, estimator and normalised strips -> latent walks: a contact sheet, videos, an atlas, angles.

Who walks is the baseline's affair, the same in every tier: from the person whom it redirects best to the worst.
"""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import torch

from faze.base.command_line import CONFIG, argument, command, needed, threads
from faze.base.errors import UserError
from faze.base.files import check_replaceable, whole_folder
from faze.base.locks import output_lock
from faze.base.progress import Progress
from faze.config.parameters import Walk
from faze.config.stage_config import load
from faze.data.store.strips import StripStore
from faze.engine.precision import exact
from faze.evaluation.redirected_angles import by_variant, read_pairs
from faze.model.dted import DTED
from faze.model.inference import for_inference
from faze.model.weights import load_model
from faze.redirection.atlas import Sheet, atlas_sheets, write_atlas
from faze.redirection.drawing import contact_sheet, video_frames, write_picture
from faze.redirection.estimator import GazeHeadEstimator, load_estimator
from faze.redirection.video import write_video
from faze.redirection.walk import PersonWalk, spread_people, walk_person

SHEET, ANGLES = "contact_sheet.png", "angles.csv"


@command(
    __doc__,
    CONFIG,
    needed("--checkpoint", "trained DT-ED"),
    needed("--estimator", "that sees how far gaze and head turn"),
    needed("--pairs", "redirected_pairs.parquet of the baseline, by which people are chosen"),
    argument("--data", type=Path, nargs="+", required=True, help="stores of normalised strips"),
    threads(),
    needed("--out", "folder to write"),
)
def main(args: Namespace) -> None:
    """Walk from the first strip of some people of each store."""
    check_replaceable(args.out, [SHEET])
    torch.set_num_threads(args.threads)
    config = load(args.config, "walk")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dted, judging = load_model(args.checkpoint, device), load_estimator(args.estimator, device)
    judging.check_size(args.estimator, dted.model.image_height_px, dted.model.image_width_px)
    with output_lock(args.out):
        people = walkers(args.pairs, config.walk.people)
        write_walks(dted, judging.network, args.data, people, config.walk, args.out)


def walkers(pairs: Path, count: int) -> dict[str, list[str]]:
    """Choose people of each data set by the baseline's error of redirected gaze."""
    people = by_variant(read_pairs(pairs))
    people = people[people["variant"] == "both"].set_index("person")
    return {
        dataset: spread_people(rows["gaze_error_deg"], count) for dataset, rows in people.groupby("dataset", sort=False)
    }


def write_walks(
    dted: DTED,
    judging: GazeHeadEstimator,
    stores: Sequence[Path],
    people: dict[str, list[str]],
    walk: Walk,
    out: Path,
) -> None:
    """Write a video of each person's walk, all walks on one sheet, the angles asked and seen, and the atlas."""
    progress = Progress("walk", sum(map(len, people.values())), "people")
    walks: list[PersonWalk] = []
    sheets: list[Sheet] = []
    with whole_folder(out) as folder, exact(dted):
        fast = for_inference(dted)
        for path in stores:
            with StripStore(path) as strips:
                names = people.get(strips.dataset, [])
                for person in names:
                    if person not in strips.persons():
                        raise UserError(
                            f"{path}: holds no person {person}, whom the baseline redirected: redirect again"
                        )
                    strips.check([person])
                    how = {"range_deg": walk.range_deg, "steps": walk.frames}
                    walks.append(walk_person(fast, judging, strips, person, **how))
                    write_video(folder / f"{strips.dataset}_{person}.mp4", video_frames(walks[-1]), walk.fps)
                    if person in {names[0], names[-1]}:  # the best and the worst redirected
                        sheets += atlas_sheets(fast, judging, strips, person, walk.range_deg)
                    progress(len(walks))
        if not walks:
            raise UserError(f"{out}: nobody was redirected, so nobody walks")
        write_picture(folder / SHEET, contact_sheet(walks))
        write_atlas(folder, sheets, walk.range_deg)
        angles(walks).to_csv(folder / ANGLES, index=False, float_format="%.4f")


def angles(walks: Sequence[PersonWalk]) -> pd.DataFrame:
    """Tabulate the angles of each walk: asked, and seen by the estimator."""
    return pd.concat(
        pd.DataFrame(
            {
                **{"dataset": walk.dataset, "person": walk.person, "walk": name},
                **{"asked_deg": walk.angles_deg, "seen_deg": seen},
            }
        )
        for walk in walks
        for name, seen in walk.seen_deg.items()
    )
