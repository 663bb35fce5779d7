"""Rule `redirect`: checkpoint, estimator and normalised strips -> measured redirected strips of test people.

The table has a row per pair and variant: the estimated gaze and head pose, and the similarity to the real strip.
"""

from pathlib import Path

import pandas as pd
import torch

from faze.base.files import whole_file
from faze.config.stage_config import Resolved
from faze.data.strips import read_store
from faze.engine.execution import set_recompute
from faze.engine.precision import exact
from faze.evaluation.diagnostics import by_variant
from faze.redirection.redirect import load_networks, redirect_store


def main(*, config: Resolved, checkpoint: Path, estimator: Path, data: list[Path], threads: int, out: Path) -> None:
    """Redirect strips of every test person in each store."""
    torch.set_num_threads(threads)
    dted, network = load_networks(checkpoint, estimator)
    set_recompute(dted, True)  # normalises each channel once, and processes few strips at a time: faster
    with exact(dted):
        tables = [redirect_store(dted, network, read_store(path, config.fold), config.redirect) for path in data]
    measured = pd.concat(tables)
    with whole_file(out) as temporary:
        measured.to_parquet(temporary, index=False)
    means = by_variant(measured).groupby(["dataset", "variant"], sort=False).mean(numeric_only=True)
    print(means[["gaze_error_deg", "head_error_deg", "gaze_gain", "head_gain"]].round(2).to_string())
