"""Rule `estimator`: normalised strips -> a gaze and head pose estimator for evaluating redirected strips.

It is trained on train people, and its errors are measured on the val and test people of every store.
"""

import json
from pathlib import Path

import torch

from faze.base.files import whole_file
from faze.config.stage_config import Resolved
from faze.data.pairs import cache, open_people
from faze.data.strips import read_store
from faze.redirection.estimator import measure_errors, save_estimator, train_estimator


def main(*, config: Resolved, data: Path, evaluated: list[Path] = (), threads: int, out: Path, errors: Path) -> None:
    """Train the estimator, measure its errors, and write both."""
    torch.set_num_threads(threads)
    size = (config.model.image_height_px, config.model.image_width_px)
    people = cache(open_people(read_store(data, config.fold), size, split="train"))
    network = train_estimator(people, config.estimator, "cuda" if torch.cuda.is_available() else "cpu")
    measured = []
    # Not set by the engine, since any change to the engine would re-run this stage. Without `enabled`, cuDNN is off.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        for path in (data, *evaluated):
            measured += measure_errors(network, read_store(path, config.fold))
    save_estimator(out, network)
    with whole_file(errors) as temporary:
        temporary.write_text(json.dumps({"errors": measured}), encoding="utf-8")
