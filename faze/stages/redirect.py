"""Rule `redirect`: checkpoint, estimator and normalised strips -> redirected strips of test people, measured.

One table has a row per person: whom the strips show. The other has a row per pair and variant: how far eyes and head
turned, as the estimator sees them.
"""

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from faze.base.command_line import CONFIG, argument, command, needed, threads
from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.base.locks import output_lock
from faze.base.progress import Progress
from faze.config.parameters import Redirect
from faze.config.stage_config import load
from faze.data.network_input import to_network
from faze.data.store.strips import StripStore
from faze.engine.precision import exact
from faze.evaluation.redirected_angles import ERRORS, FACTORS, by_variant
from faze.model.dted import DTED
from faze.model.inference import for_inference
from faze.model.reconstruction import RedirectedPerson, compare, deviations, mean_strips
from faze.model.weights import load_model
from faze.redirection.draws import LEAST, Pairs, chosen, draw_pairs
from faze.redirection.estimator import TrainedEstimator, load_estimator
from faze.redirection.judging import judge
from faze.redirection.redirected import redirected


@command(
    __doc__,
    CONFIG,
    needed("--checkpoint", "trained DT-ED"),
    needed("--estimator", "that judges"),
    argument("--data", type=Path, nargs="+", required=True, help="stores of normalised strips"),
    argument(
        "--oracle", type=Path, nargs="*", default=[], help="stores of rendered people anew, of the same data sets"
    ),
    threads(),
    needed("--out", "redirection.parquet to write, a row per person"),
    needed("--pairs", "redirected_pairs.parquet to write, a row per pair and variant"),
)
def main(args: Namespace) -> None:
    """Redirect strips of every test person of each store."""
    torch.set_num_threads(args.threads)
    config = load(args.config, "redirect")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dted, judging = load_model(args.checkpoint, device), load_estimator(args.estimator, device)
    judging.check_size(args.estimator, dted.model.image_height_px, dted.model.image_width_px)
    outputs = [args.out, args.pairs]
    with output_lock(*outputs):
        with exact(dted), ExitStack() as stack:
            oracles = {store.dataset: store for store in map(stack.enter_context, map(StripStore, args.oracle))}
            fast, tables = for_inference(dted), []
            for path in args.data:
                with StripStore(path) as strips:
                    oracle = oracles.get(strips.dataset)
                    tables.append(redirect_store(fast, judging, strips, oracle, config.redirect, path))
        written = [pd.concat(parts) for parts in zip(*tables, strict=True)]
        for path, rows in zip(outputs, written, strict=True):
            with whole_file(path) as temporary:
                rows.to_parquet(temporary, index=False, write_page_checksum=True)
        for sentence in summed_up(written[1]):
            print(sentence)


def summed_up(pairs: pd.DataFrame) -> Iterator[str]:
    """Say of each data set what the estimator sees, and how far it is off itself; means over people."""
    for dataset, rows in by_variant(pairs).groupby("dataset", sort=False):
        means = rows.groupby("variant")[list(ERRORS)].mean()
        told = [
            f"{factor} {means.loc['both', error]:.1f} (not turned {means.loc['still', error]:.1f}, real strips "
            f"{means.loc['real', error]:.1f})"
            for factor, error in zip(FACTORS, ERRORS, strict=True)
        ]
        yield f"{dataset}: redirected strips miss by degrees: {', '.join(told)}, as the estimator sees them"


class People:
    """The test people of a store, everybody where there is no such split, and each one's chosen strips."""

    def __init__(self, strips: StripStore, path: Path, most: int, dted: DTED) -> None:
        everyone = strips.persons("test") or strips.persons()
        self.names = [name for name in everyone if strips.count(name) >= LEAST]
        if not self.names:
            raise UserError(f"{path}: nobody has {LEAST} strips, so none can be redirected to another one's gaze")
        if left_out := [name for name in everyone if name not in self.names]:
            print(f"{path}: {', '.join(left_out)} left out: one strip cannot be redirected to another one's gaze")
        strips.check(self.names)
        self._strips, self._most, self._like = strips, most, dted.fc_enc.weight
        self._size = (dted.model.image_height_px, dted.model.image_width_px)

    def read(self, person: int) -> tuple[Tensor, Tensor]:
        """Read a person's chosen strips, (N, 3, H, W) in [-1, 1], and labels, (N, 4) radians."""
        name = self.names[person]
        rows = chosen(self._strips.count(name), self._most)
        labels = torch.from_numpy(self._strips.labels(name)[rows]).to(self._like.device)
        if not labels.isfinite().all():
            raise UserError(f"labels of person {name} are not numbers: preprocess again")
        return self.to_images(self._strips.pixels(name, rows)), labels

    def to_images(self, pixels: np.ndarray) -> Tensor:
        """Make images of the network's size of stored strips, (N, H, W, 3)."""
        return to_network(torch.from_numpy(pixels).to(self._like.device), *self._size)


def redirect_store(
    dted: DTED,
    judging: TrainedEstimator,
    strips: StripStore,
    oracle: StripStore | None,
    redirect: Redirect,
    path: Path,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Redirect the chosen strips of every test person.

    Raises:
        UserError: nobody has two strips, the network gives no numbers, as after a training that diverged, or the
            estimator knows somebody.
    """
    people = People(strips, path, redirect.strips, dted)
    judging.check_strangers(path, strips, people.names)
    means, compared, rows = mean_strips(len(people.names), people.read), [], []
    progress = Progress("redirect", len(people.names), "people")
    for number, name in enumerate(people.names):
        image, labels = people.read(number)
        pairs = draw_pairs(redirect.seed, len(labels))
        labels = labels.cpu().numpy()
        pictures = redirected(dted, image, pairs, labels)
        if not all(made.isfinite().all() for made in pictures.values()):
            raise UserError(
                f"the trained network's pictures of person {name} are not numbers: its training diverged; "
                "train again with a lower train.base_lr"
            )
        compared.append(compare(pictures["both"], image[pairs.b], number, means))
        known, of_pair = _oracle(oracle, name, people, pairs)
        real = {"real": image[pairs.b], "other": image[pairs.other]}
        table = judge(judging.network, pictures | real | known, of_pair, pairs, labels)
        rows.append(table.assign(person=name))
        progress(number + 1)
    pairs_table = pd.concat(rows, ignore_index=True)
    pairs_table.insert(0, "dataset", strips.dataset)
    return by_person(strips.dataset, people.names, compared, means), pairs_table


def _oracle(
    oracle: StripStore | None, name: str, people: People, pairs: Pairs
) -> tuple[Mapping[str, Tensor], Mapping[str, np.ndarray]]:
    """Read a person's strips rendered anew, and which pairs they are of; nothing where there are none."""
    if oracle is None or name not in oracle.persons():
        return {}, {}
    oracle.check([name])
    rows = oracle.frame_index(name)
    if len(rows) and rows.max() >= len(pairs.a):
        raise UserError(f"the oracle has {rows.max() + 1} pairs of {name}, not {len(pairs.a)}: make it again")
    return {"oracle": people.to_images(oracle.pixels(name))}, {"oracle": rows}


def by_person(
    dataset: str, names: Sequence[str], people: Sequence[RedirectedPerson], means: np.ndarray
) -> pd.DataFrame:
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
    redirected_means = np.stack([person.mean for person in people])
    return rows.assign(deviation=deviations(redirected_means), real_deviation=deviations(means))
