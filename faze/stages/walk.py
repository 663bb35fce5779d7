"""Rule `walk`: checkpoint, estimator and normalised strips -> latent walks: a contact sheet, videos, an atlas, angles.

The people are the same in every tier. They are chosen to span the baseline's errors, from the smallest to the largest.
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
from faze.evaluation.redirected_angles import REDIRECTED, by_variant, read_pairs
from faze.model.dted import DTED
from faze.model.inference import for_inference
from faze.model.weights import load_model
from faze.redirection.atlas import Sheet, atlas_sheets, write_atlas
from faze.redirection.estimator import GazeHeadEstimator, load_estimator
from faze.redirection.walk import (
    PersonWalk,
    contact_sheet,
    spread_people,
    video_frames,
    walk_person,
    write_picture,
    write_video,
)

SHEET, ANGLES = "contact_sheet.png", "angles.csv"


@command(
    __doc__,
    CONFIG,
    needed("--checkpoint", "trained DT-ED"),
    needed("--estimator", "estimator of gaze and head pose"),
    needed("--pairs", "redirected_pairs.parquet of the baseline, which selects the people"),
    argument("--data", type=Path, nargs="+", required=True, help="stores of normalised strips"),
    threads(),
    needed("--out", "folder to write"),
)
def main(args: Namespace) -> None:
    """Decode walks from the first strips of some people in each store."""
    check_replaceable(args.out, [SHEET])
    torch.set_num_threads(args.threads)
    config = load(args.config, "walk")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dted, estimator = load_model(args.checkpoint, device), load_estimator(args.estimator, device)
    estimator.check_size(args.estimator, dted.model.image_height_px, dted.model.image_width_px)
    with output_lock(args.out):
        people = choose_people(args.pairs, config.walk.people)
        write_walks(dted, estimator.network, args.data, people, config.walk, args.out)


def choose_people(pairs: Path, count: int) -> dict[str, list[str]]:
    """Choose people from each data set by the baseline's error in redirected gaze."""
    people = by_variant(read_pairs(pairs))
    people = people[people["variant"] == REDIRECTED].set_index("person")
    return {
        dataset: spread_people(rows["gaze_error_deg"], count) for dataset, rows in people.groupby("dataset", sort=False)
    }


def write_walks(
    dted: DTED,
    estimator: GazeHeadEstimator,
    stores: Sequence[Path],
    people: dict[str, list[str]],
    walk: Walk,
    out: Path,
) -> None:
    """Write a video of each person's walks, a sheet of all walks, the requested and estimated angles, and the atlas."""
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
                            f"{path}: does not contain person {person}, whom the baseline redirected; run redirect "
                            "again"
                        )
                    strips.check([person])
                    how = {"range_deg": walk.range_deg, "steps": walk.frames}
                    walks.append(walk_person(fast, estimator, strips, person, **how))
                    write_video(folder / f"{strips.dataset}_{person}.mp4", video_frames(walks[-1]), walk.fps)
                    if person in {names[0], names[-1]}:  # those with the smallest and the largest error
                        sheets += atlas_sheets(fast, estimator, strips, person, walk.range_deg)
                    progress(len(walks))
        if not walks:
            raise UserError(f"{out}: the stores contain no people whom the baseline redirected; run redirect again")
        write_picture(folder / SHEET, contact_sheet(walks))
        write_atlas(folder, sheets, walk.range_deg)
        angles(walks).to_csv(folder / ANGLES, index=False, float_format="%.4f")


def angles(walks: Sequence[PersonWalk]) -> pd.DataFrame:
    """Tabulate the requested and estimated angles of each walk."""
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
