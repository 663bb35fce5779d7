"""Redirect strips of test people to the gaze and head pose of other strips of theirs, and measure the result."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from faze.base.errors import UserError
from faze.base.progress import Progress
from faze.config.parameters import Redirect
from faze.data.network_input import to_network
from faze.data.store.strips import StripStore
from faze.evaluation.redirected_angles import ERRORS, FACTORS, REDIRECTED, by_variant
from faze.model.dted import DTED
from faze.redirection.estimator import TrainedEstimator
from faze.redirection.evaluator import evaluate_person, redirect
from faze.redirection.pairs import MIN_STRIPS, chosen, draw_targets


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
        self._strips, self._most, self._like = strips, most, dted.fc_enc.weight
        self._size = (dted.model.image_height_px, dted.model.image_width_px)

    def read(self, person: int) -> tuple[Tensor, Tensor]:
        """Read a person's chosen strips, (N, 3, H, W) in [-1, 1], and labels, (N, 4) radians."""
        name = self.names[person]
        rows = chosen(self._strips.count(name), self._most)
        labels = torch.from_numpy(self._strips.labels(name)[rows]).to(self._like.device)
        if not labels.isfinite().all():
            raise UserError(f"labels of person {name} are not finite; run preprocess again")
        pixels = torch.from_numpy(self._strips.pixels(name, rows)).to(self._like.device)
        return to_network(pixels, *self._size), labels


def redirect_store(
    dted: DTED, estimator: TrainedEstimator, strips: StripStore, settings: Redirect, path: Path
) -> pd.DataFrame:
    """Redirect the chosen strips of every test person; return a row per pair and variant.

    Raises:
        UserError: nobody has MIN_STRIPS strips, the network's output is not finite (for example because its training
            diverged), or the estimator was trained on one of the people.
    """
    people = People(strips, path, settings.strips, dted)
    estimator.check_unseen(path, strips, people.names)
    tables = []
    progress = Progress("redirect", len(people.names), "people")
    for number, name in enumerate(people.names):
        image, labels = people.read(number)
        targets, labels = draw_targets(0, len(labels)), labels.cpu().numpy()
        images = dict(redirect(dted, image, labels, targets))
        if not all(made.isfinite().all() for made in images.values()):
            raise UserError(
                f"the network's images of person {name} are not finite: its training diverged; "
                "train again with a lower train.base_lr"
            )
        images["real"] = image[targets]
        tables.append(evaluate_person(estimator.network, images, labels, targets).assign(person=name))
        progress(number + 1)
    pairs_table = pd.concat(tables, ignore_index=True)
    pairs_table.insert(0, "dataset", strips.dataset)
    return pairs_table
