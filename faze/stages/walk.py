"""Rule `walk`: checkpoint, estimator and normalised strips -> latent walks: a contact sheet, videos and angles.

The people are the same in every tier. They are chosen to span the baseline's errors, from the smallest to the largest.
"""

from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import torch

from faze.base.files import whole_folder
from faze.config.stage_config import Resolved
from faze.data.strips import read_store
from faze.engine.precision import exact
from faze.redirection.redirect import load_networks
from faze.redirection.walk import choose_people, draw_frames, draw_sheet, walk_person, write_video


def main(
    *, config: Resolved, checkpoint: Path, estimator: Path, pairs: Path, data: list[Path], threads: int, out: Path
) -> None:
    """Decode walks from the first strip of each chosen person in each store."""
    torch.set_num_threads(threads)
    dted, network = load_networks(checkpoint, estimator)
    people, sheets, tables = choose_people(pairs, config.walk.people), [], []
    with whole_folder(out) as folder, exact(dted):
        for store in map(read_store, data):
            for person in people.get(store.dataset, []):
                strips, walks = walk_person(dted, network, store, person, config.walk)
                write_video(folder / f"{store.dataset}_{person}.mp4", draw_frames(strips, walks))
                sheets.append(draw_sheet(strips, walks))
                tables.append(walks.drop(columns="picture"))
        cv2.imwrite(str(folder / "contact_sheet.png"), cv2.cvtColor(np.concatenate(sheets), cv2.COLOR_RGB2BGR))
        pd.concat(tables).to_csv(folder / "angles.csv", index=False, float_format="%.4f")
