"""Rule `estimator`: normalised strips -> an estimator of gaze and head pose that evaluates redirected strips.

It is trained on train people. Its error on val and test people of every store is measured, printed and written.
"""

from argparse import Namespace
from pathlib import Path

import torch

from faze.base.command_line import CONFIG, OUTPUT_CACHE, argument, command, needed, threads
from faze.base.files import whole_file, write_json
from faze.base.locks import output_lock
from faze.base.output_cache import content, key_of, output_cache
from faze.base.progress import Progress
from faze.config.stage_config import load
from faze.data.pairs import cache, load_people
from faze.data.store.strips import StripStore
from faze.redirection.estimator import TrainedEstimator, measure_errors, save_estimator, train_estimator


@command(
    __doc__,
    CONFIG,
    needed("--data", "store of normalised strips with train people"),
    argument("--evaluated", type=Path, nargs="*", default=[], help="other stores on which to measure its errors"),
    threads(),
    needed("--out", "estimator to write"),
    needed("--errors", "JSON to write: the estimator's errors"),
    OUTPUT_CACHE,
)
def main(args: Namespace) -> None:
    """Train the estimator, measure its errors and write both."""
    torch.set_num_threads(args.threads)
    config = load(args.config, "estimator")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    size = (config.model.image_height_px, config.model.image_width_px)
    stores = [args.data, *args.evaluated]
    key = key_of("estimator", config.values, [content(path) for path in stores], args.threads, device.type)
    with output_lock(args.out, args.errors), output_cache(args.output_cache, key, [args.out, args.errors]) as copied:
        if copied:
            return
        for path in stores:
            with StripStore(path) as strips:
                strips.check(strips.persons())
        people = cache(load_people(args.data, "train", size, min_entries=1, fold=config.fold)[0])
        progress = Progress("estimator", config.estimator.strips, "strips")
        network = train_estimator(people, config.estimator, device, progress)
        errors = []
        with StripStore(args.data) as strips:
            trained_on = [strips.person_digest(person) for person in people.names]
        # Not by the engine, whose changes would re-run this. Without `enabled`, cuDNN would be off.
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            for path in stores:
                with StripStore(path, fold=config.fold) as strips:
                    errors += measure_errors(network, strips)
        save_estimator(args.out, TrainedEstimator(network, trained_on))
        with whole_file(args.errors) as temporary:
            write_json(temporary, {"errors": errors})
        for error in errors:
            print(
                "estimator: {dataset}, {people} {split} people: gaze {gaze_deg:.2f}°, head {head_deg:.2f}°".format(
                    **error
                )
            )
