"""Rule `redirect`: checkpoint and normalised strips -> how much redirected strips resemble the person, one row each."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from faze.base import code_hash
from faze.base.command_line import CONFIG, MADE_ONCE, argument, command, needed, threads
from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.base.made_once import content, key_of, made_once, same_file
from faze.base.output_lock import sole_writer
from faze.base.progress import Progress
from faze.config.stage_config import load
from faze.data.network_input import to_network
from faze.data.store.strips import StripStore
from faze.engine.precision import exact
from faze.model.dted import DTED
from faze.model.inference import for_inference
from faze.model.reconstruction import RedirectedPerson, deviations, mean_strips, redirect_person
from faze.model.weights import load_model

LEAST = 2  # strips of a person: one is turned to the other


@command(
    __doc__,
    CONFIG,
    needed("--checkpoint", "trained DT-ED"),
    argument("--data", type=Path, nargs="+", required=True, help="stores of normalised strips"),
    threads(),
    needed("--out", "redirection.parquet to write"),
    MADE_ONCE,
)
def main(args: Namespace) -> None:
    """Redirect strips of every test person of each store."""
    torch.set_num_threads(args.threads)
    config = load(args.config, "redirect")
    dted = load_model(args.checkpoint, "cuda" if torch.cuda.is_available() else "cpu")
    of = (content(args.checkpoint), [same_file(path) for path in args.data], args.threads, torch.cuda.is_available())
    key = key_of("redirect", config.values, code_hash.fingerprint("faze.stages.redirect"), *of)
    with sole_writer(args.out), made_once(args.made_once, key, [args.out]) as taken:
        if not taken:
            with exact(dted):
                table = pd.concat([redirect_store(for_inference(dted), p, config.redirect.strips) for p in args.data])
            with whole_file(args.out) as temporary:
                table.to_parquet(temporary, index=False)


def redirect_store(dted: DTED, path: Path, strips_each: int) -> pd.DataFrame:
    """Redirect the first strips of every test person, of everybody where there is no such split.

    Raises:
        UserError: nobody has two strips, or the network gives no numbers, as after a training that diverged.
    """
    with StripStore(path) as strips:
        names = [name for name in strips.persons("test") or strips.persons() if strips.count(name) >= LEAST]
        if not names:
            raise UserError(f"{path}: nobody has {LEAST} strips, so none can be redirected to another one's gaze")
        like = dted.fc_enc.weight
        size = (dted.model.image_height_px, dted.model.image_width_px)

        def read(person: int) -> tuple[Tensor, Tensor]:
            pixels = torch.from_numpy(strips.pixels(names[person], slice(strips_each)))
            labels = torch.from_numpy(strips.labels(names[person])[:strips_each])
            return to_network(pixels.to(like.device), *size), labels.to(like.device)

        means, people = mean_strips(len(names), read), []
        progress = Progress("redirect", len(names), "people")
        for number, name in enumerate(names):
            people.append(redirect_person(dted, read, number, means))
            if not np.isfinite(people[-1].mean).all():
                raise UserError(
                    f"the trained network's pictures of person {name} are not numbers: its training diverged; "
                    "train again with a lower train.base_lr"
                )
            progress(number + 1)
        return table(strips.dataset, names, people, means)


def table(dataset: str, names: Sequence[str], people: Sequence[RedirectedPerson], means: np.ndarray) -> pd.DataFrame:
    """Give a row per person; the spread between people is the root of the mean of `deviation`.

    Args:
        dataset: name.
        names: of the people.
        people: their redirected strips.
        means: their mean real strips, (P, S).
    """
    rows = pd.DataFrame([person.numbers for person in people])
    rows.insert(0, "dataset", dataset)
    rows.insert(1, "person", names)
    redirected = np.stack([person.mean for person in people])
    return rows.assign(deviation=deviations(redirected), real_deviation=deviations(means))
