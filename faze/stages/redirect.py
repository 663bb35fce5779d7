"""Rule `redirect`: checkpoint, estimator and normalised strips -> measured redirected strips of test people.

The table has a row per pair and variant: the estimated gaze and head pose, and the similarity to the real strip.
"""

from pathlib import Path

import pandas as pd
import torch

from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.config.stage_config import Resolved
from faze.data.strips import read_store
from faze.engine.execution import set_recompute
from faze.engine.precision import exact
from faze.model.weights import load_model
from faze.redirection.estimator import load_estimator
from faze.redirection.redirect import describe_errors, redirect_store


def main(*, config: Resolved, checkpoint: Path, estimator: Path, data: list[Path], threads: int, out: Path) -> None:
    """Redirect strips of every test person in each store."""
    torch.set_num_threads(threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dted, judge = load_model(checkpoint, device), load_estimator(estimator, device)
    if judge.network.size != (dted.model.image_height_px, dted.model.image_width_px):
        size = "{} x {}".format(*judge.network.size)
        raise UserError(f"{estimator}: was trained on {size} px, unlike {checkpoint}: run the rule estimator again")
    set_recompute(dted, True)  # normalises each channel once, and processes few strips at a time: faster
    with exact(dted):
        tables = []
        for path in data:
            tables.append(redirect_store(dted, judge, read_store(path, config.fold), config.redirect))
    measured = pd.concat(tables)
    with whole_file(out) as temporary:
        measured.to_parquet(temporary, index=False)
    for sentence in describe_errors(measured):
        print(sentence)
