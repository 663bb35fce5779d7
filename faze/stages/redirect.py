"""Rule `redirect`: checkpoint, estimator and normalised strips -> measurements of test people's redirected strips."""

from pathlib import Path

import pandas as pd
import torch

from faze.base.files import whole_file
from faze.config.stage_config import Resolved
from faze.data.strips import read_store
from faze.engine.execution import set_recompute
from faze.engine.precision import exact
from faze.redirection.redirect import load_networks, redirect_store


def main(*, config: Resolved, checkpoint: Path, estimator: Path, data: list[Path], threads: int, out: Path) -> None:
    """Redirect strips of every test person in each store, and measure the results."""
    torch.set_num_threads(threads)
    dted, network = load_networks(checkpoint, estimator)
    set_recompute(dted, True)  # faster: normalises each channel once, and processes few strips at a time
    with exact(dted):
        tables = [redirect_store(dted, network, read_store(path, config.fold), config.redirect) for path in data]
    with whole_file(out) as temporary:
        pd.concat(tables).to_parquet(temporary, index=False)
