"""Rule `estimator`: normalised strips -> an estimator of gaze and head pose that evaluates redirected strips.

It is trained on train people. Its error on val and test people of every store is measured, printed and written.
"""

import json
from pathlib import Path

import torch

from faze.base.files import whole_file
from faze.base.progress import Progress
from faze.config.stage_config import Resolved
from faze.data.pairs import cache, load_people
from faze.data.store.strips import StripStore
from faze.redirection.estimator import TrainedEstimator, measure_errors, save_estimator, train_estimator


def main(*, config: Resolved, data: Path, evaluated: list[Path] = (), threads: int, out: Path, errors: Path) -> None:
    """Train the estimator, measure its errors and write both."""
    torch.set_num_threads(threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    size = (config.model.image_height_px, config.model.image_width_px)
    people = cache(load_people(data, "train", size, min_entries=1, fold=config.fold)[0])
    progress = Progress("estimator", config.estimator.strips, "strips")
    network = train_estimator(people, config.estimator, device, progress)
    measured = []
    with StripStore(data) as strips:
        trained_on = [strips.person_digest(person) for person in people.names]
    # Not by the engine, whose changes would re-run this. Without `enabled`, cuDNN would be off.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        for path in (data, *evaluated):
            with StripStore(path, fold=config.fold) as strips:
                measured += measure_errors(network, strips)
    save_estimator(out, TrainedEstimator(network, trained_on))
    with whole_file(errors) as temporary:
        temporary.write_text(json.dumps({"errors": measured}), encoding="utf-8")
    for error in measured:
        found = "{dataset}, {people} {split} people: gaze {gaze_deg:.2f}°, head {head_deg:.2f}°".format(**error)
        print(f"estimator: {found}")
