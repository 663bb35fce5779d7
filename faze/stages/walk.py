"""Rule `walk`: checkpoint, estimator and normalised strips -> latent walks: a contact sheet, videos, angles.

The people are the same in every tier. They are chosen to span the baseline's errors, from the smallest to the largest.
"""

from pathlib import Path

import torch

from faze.config.stage_config import Resolved
from faze.model.weights import load_model
from faze.redirection.estimator import load_estimator
from faze.redirection.walk import choose_people, write_walks


def main(
    *, config: Resolved, checkpoint: Path, estimator: Path, pairs: Path, data: list[Path], threads: int, out: Path
) -> None:
    """Decode walks from the first strips of some people in each store."""
    torch.set_num_threads(threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dted, judge = load_model(checkpoint, device), load_estimator(estimator, device)
    write_walks(dted, judge.network, data, choose_people(pairs, config.walk.people), config.walk, out)
