"""Redirect strips of test people to the gaze and head pose of other strips of theirs, and measure the result."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from torch import Tensor

from faze.base.errors import UserError
from faze.base.progress import Progress
from faze.config.parameters import Redirect
from faze.data.network_input import to_network
from faze.data.pairs import open_people
from faze.data.strips import StripStore
from faze.evaluation.redirected_angles import ERRORS, FACTORS, REDIRECTED, by_variant
from faze.model.dted import DTED
from faze.model.reconstruction import RedirectedPerson, compare, deviations, mean_strips
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


def redirect_store(
    dted: DTED, estimator: TrainedEstimator, store: StripStore, settings: Redirect
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Redirect the chosen strips of every test person, or of everybody in a store without test people.

    Raises:
        UserError: nobody has MIN_STRIPS strips, the network's output is not finite (for example because its training
            diverged), or the estimator was trained on one of the people.
    """
    split, size = "test" if store.of_split("test") else None, (dted.model.image_height_px, dted.model.image_width_px)
    people = open_people(store, size, split=split, min_entries=MIN_STRIPS)
    estimator.check_unseen(store.path, people.persons)
    rows = [indices[chosen(len(indices), settings.strips)] for indices in people.person_indices()]
    device = dted.fc_enc.weight.device

    def read(person: int) -> tuple[Tensor, Tensor]:
        strips, labels = people.gather(rows[person]), people.labels[rows[person]]
        return to_network(strips.to(device)), labels.to(device)

    names = [person.name for person in people.persons]
    means, compared, tables = mean_strips(len(names), read), [], []
    progress = Progress("redirect", len(names), "people")
    for number, name in enumerate(names):
        image, labels = read(number)
        targets, labels = draw_targets(0, len(labels)), labels.cpu().numpy()
        images = dict(redirect(dted, image, labels, targets))
        if not all(made.isfinite().all() for made in images.values()):
            raise UserError(
                f"the network's images of person {name} are not finite: its training diverged; "
                "train again with a lower train.base_lr"
            )
        compared.append(compare(images[REDIRECTED], image, image[targets], number, means))
        images["real"] = image[targets]
        tables.append(evaluate_person(estimator.network, images, labels, targets).assign(person=name))
        progress(number + 1)
    pairs_table = pd.concat(tables, ignore_index=True)
    pairs_table.insert(0, "dataset", store.dataset)
    return by_person(store.dataset, names, compared, means), pairs_table


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
