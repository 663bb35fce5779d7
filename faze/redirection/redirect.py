"""Redirect strips of test people to the gaze and head pose of other strips of theirs, and measure the result."""

from collections.abc import Iterator

import pandas as pd

from faze.base.errors import UserError
from faze.base.progress import Progress
from faze.config.parameters import Redirect
from faze.data.network_input import to_network
from faze.data.pairs import open_people
from faze.data.strips import StripStore
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


def redirect_store(dted: DTED, estimator: TrainedEstimator, store: StripStore, settings: Redirect) -> pd.DataFrame:
    """Redirect the chosen strips of every test person, or of everybody in a store without test people.

    Returns:
        A row per pair and variant.

    Raises:
        UserError: nobody has MIN_STRIPS strips, the network's output is not finite (for example because its training
            diverged), or the estimator was trained on one of the people.
    """
    split, size = "test" if store.of_split("test") else None, (dted.model.image_height_px, dted.model.image_width_px)
    people = open_people(store, size, split=split, min_entries=MIN_STRIPS)
    estimator.check_unseen(store.path, people.persons)
    device, tables = dted.fc_enc.weight.device, []
    progress = Progress("redirect", len(people.persons), "people")
    for number, (person, indices) in enumerate(zip(people.persons, people.person_indices(), strict=True)):
        rows = indices[chosen(len(indices), settings.strips)]
        image, labels = to_network(people.gather(rows).to(device)), people.labels[rows].to(device)
        targets, labels = draw_targets(0, len(labels)), labels.cpu().numpy()
        images = dict(redirect(dted, image, labels, targets))
        if not all(made.isfinite().all() for made in images.values()):
            raise UserError(
                f"the network's images of person {person.name} are not finite: its training diverged; "
                "train again with a lower train.base_lr"
            )
        images["real"] = image[targets]
        tables.append(evaluate_person(estimator.network, images, labels, targets).assign(person=person.name))
        progress(number + 1)
    pairs_table = pd.concat(tables, ignore_index=True)
    pairs_table.insert(0, "dataset", store.dataset)
    return pairs_table
