"""Rule `redirect`: checkpoint, estimator and normalised strips -> measured redirected strips of test people.

One table has a row per person: how closely the redirected strips resemble the person. The other has a row per pair and
variant: the estimated gaze and head pose, and the similarity to the real strip.
"""

from argparse import Namespace
from collections.abc import Iterator, Sequence
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
from faze.evaluation.redirected_angles import ERRORS, FACTORS, REDIRECTED, by_variant
from faze.model.dted import DTED
from faze.model.inference import for_inference
from faze.model.reconstruction import RedirectedPerson, compare, deviations, mean_strips
from faze.model.weights import load_model
from faze.redirection.estimator import TrainedEstimator, load_estimator
from faze.redirection.evaluator import evaluate_person, redirect
from faze.redirection.pairs import MIN_STRIPS, chosen, draw_targets


@command(
    __doc__,
    CONFIG,
    needed("--checkpoint", "trained DT-ED"),
    needed("--estimator", "estimator of gaze and head pose"),
    argument("--data", type=Path, nargs="+", required=True, help="stores of normalised strips"),
    argument("--oracle", type=Path, nargs="*", default=[], help="stores of rendered target strips"),
    threads(),
    needed("--out", "redirection.parquet to write, a row per person"),
    needed("--pairs", "redirected_pairs.parquet to write, a row per pair and variant"),
)
def main(args: Namespace) -> None:
    """Redirect strips of every test person in each store."""
    torch.set_num_threads(args.threads)
    config = load(args.config, "redirect")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dted, estimator = load_model(args.checkpoint, device), load_estimator(args.estimator, device)
    estimator.check_size(args.estimator, dted.model.image_height_px, dted.model.image_width_px)
    outputs = [args.out, args.pairs]
    with output_lock(*outputs):
        with exact(dted), ExitStack() as stack:
            oracles = {store.dataset: store for store in map(stack.enter_context, map(StripStore, args.oracle))}
            fast, tables = for_inference(dted), []
            for path in args.data:
                with StripStore(path, fold=config.fold) as strips:
                    oracle = oracles.get(strips.dataset)
                    tables.append(redirect_store(fast, estimator, strips, oracle, config.redirect, path))
        written = [pd.concat(parts) for parts in zip(*tables, strict=True)]
        for path, rows in zip(outputs, written, strict=True):
            with whole_file(path) as temporary, temporary.open("wb") as file:  # pyarrow takes only names in UTF-8
                rows.to_parquet(file, index=False, write_page_checksum=True)
        for sentence in describe_errors(written[1]):
            print(sentence)


def describe_errors(pairs: pd.DataFrame) -> Iterator[str]:
    """Describe the errors of each data set, averaged over people, in one sentence."""
    for dataset, rows in by_variant(pairs).groupby("dataset", sort=False):
        means = rows.groupby("variant")[list(ERRORS)].mean()
        factors = [
            f"{factor} {means.loc[REDIRECTED, error]:.1f}° (not turned {means.loc['not_turned', error]:.1f}°, real "
            f"strips {means.loc['real', error]:.1f}°)"
            for factor, error in zip(FACTORS, ERRORS, strict=True)
        ]
        yield f"{dataset}: estimated error of redirected strips: {', '.join(factors)}"


class People:
    """The test people of a store (everybody if it has no test split), and the chosen strips of each."""

    def __init__(self, strips: StripStore, path: Path, most: int, dted: DTED) -> None:
        everyone = strips.persons("test") or strips.persons()
        self.names = [name for name in everyone if strips.count(name) >= MIN_STRIPS]
        if not self.names:
            raise UserError(f"{path}: no person has {MIN_STRIPS} strips, which redirection requires; add frames")
        if left_out := [name for name in everyone if name not in self.names]:
            print(f"{path}: {', '.join(left_out)} left out: redirection requires {MIN_STRIPS} strips per person")
        strips.check(self.names)
        self._strips, self._most, self._like = strips, most, dted.fc_enc.weight
        self._size = (dted.model.image_height_px, dted.model.image_width_px)

    def read(self, person: int) -> tuple[Tensor, Tensor]:
        """Read a person's chosen strips, (N, 3, H, W) in [-1, 1], and labels, (N, 4) radians."""
        name = self.names[person]
        rows = chosen(self._strips.count(name), self._most)
        labels = torch.from_numpy(self._strips.labels(name)[rows]).to(self._like.device)
        if not labels.isfinite().all():
            raise UserError(f"labels of person {name} are not finite; run preprocess again")
        return self.to_images(self._strips.pixels(name, rows)), labels

    def to_images(self, pixels: np.ndarray) -> Tensor:
        """Convert stored strips (N, H, W, 3) to images at the network's size."""
        return to_network(torch.from_numpy(pixels).to(self._like.device), *self._size)


def redirect_store(
    dted: DTED,
    estimator: TrainedEstimator,
    strips: StripStore,
    oracle: StripStore | None,
    settings: Redirect,
    path: Path,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Redirect the chosen strips of every test person.

    Raises:
        UserError: nobody has MIN_STRIPS strips, the network's output is not finite (for example because its training
            diverged), or the estimator was trained on one of the people.
    """
    people = People(strips, path, settings.strips, dted)
    estimator.check_unseen(path, strips, people.names)
    means, compared, tables = mean_strips(len(people.names), people.read), [], []
    progress = Progress("redirect", len(people.names), "people")
    for number, name in enumerate(people.names):
        image, labels = people.read(number)
        targets, labels = draw_targets(settings.seed, len(labels)), labels.cpu().numpy()
        images = dict(redirect(dted, image, labels, targets))
        if not all(made.isfinite().all() for made in images.values()):
            raise UserError(
                f"the network's images of person {name} are not finite: its training diverged; "
                "train again with a lower train.base_lr"
            )
        compared.append(compare(images[REDIRECTED], image, image[targets], number, means))
        images["real"], rendered = image[targets], np.arange(0)
        if oracle is not None and name in oracle.persons():
            images["rendered"], rendered = read_rendered(oracle, name, people, len(targets))
        table = evaluate_person(estimator.network, images, labels, targets, rendered)
        tables.append(table.assign(person=name))
        progress(number + 1)
    pairs_table = pd.concat(tables, ignore_index=True)
    pairs_table.insert(0, "dataset", strips.dataset)
    return by_person(strips.dataset, people.names, compared, means), pairs_table


def read_rendered(oracle: StripStore, name: str, people: People, pairs: int) -> tuple[Tensor, np.ndarray]:
    """Read a person's rendered target strips, and the indices of the corresponding pairs."""
    oracle.check([name])
    rows = oracle.frame_index(name)
    if len(rows) and rows.max() >= pairs:
        raise UserError(f"the oracle has {rows.max() + 1} pairs for {name}, not {pairs}; run the rule oracle again")
    return people.to_images(oracle.pixels(name)), rows


def by_person(
    dataset: str, names: Sequence[str], people: Sequence[RedirectedPerson], means: np.ndarray
) -> pd.DataFrame:
    """Return a row per person; the spread between people is the square root of the mean of `deviation`.

    Args:
        dataset: name of the data set.
        names: names of the people.
        people: their redirected strips.
        means: (P, S) mean of each person's real strips.
    """
    rows = pd.DataFrame([person.numbers for person in people])
    rows.insert(0, "dataset", dataset)
    rows.insert(1, "person", names)
    redirected_means = np.stack([person.mean for person in people])
    return rows.assign(deviation=deviations(redirected_means), real_deviation=deviations(means))
