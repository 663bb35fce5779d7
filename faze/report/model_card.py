"""The model card of trained weights: data, errors, redirected strips, limits and recipe, as Markdown."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from faze.evaluation import UNADAPTED
from faze.evaluation.wording import NAMES, join, markdown_table, plain

SECTIONS = ("model", "loss", "train", "augment", "data", "preprocess", "engine")  # of the recipe


def write_card(
    *,
    start: Mapping[str, Any],
    rendered: bool,
    people: pd.DataFrame,
    errors: pd.DataFrame,
    redirected: pd.DataFrame,
    files: Sequence[str],
) -> str:
    """Write the card of one run.

    Args:
        start: the start event of its training (`faze.base.run_log`).
        rendered: whether its people are.
        people: what the stores hold; columns dataset, split, people, strips.
        errors: of each test person (`faze.evaluation.runs.read_errors`).
        redirected: how much redirected strips resemble the person (`faze.evaluation.redirection_tables`).
        files: names of the learners' files beside the weights.
    """
    config, machine = start["config"], {name: plain(fact) for name, fact in start["machine"].items()}
    tier, seed = plain(start["tier"]), start["seed"]
    parts = [
        f"# Model card: DT-ED of `{plain(start['name'])}`, tier `{tier}`, seed {seed}",
        "A network that tells where a person looks from a strip with both eyes, and redirects the strip to another "
        "gaze and head pose. Few-shot learners on its codes adapt it to a person. It was trained with faze "
        f"(commit {machine.get('commit') or 'unknown'}, torch {machine.get('torch')}) after FAZE (Park et al., ICCV "
        "2019, arXiv:1905.01941).",
        "- `dted.pt`: the weights. encode, walk, redirect and export take it as `--checkpoint`.\n"
        f"- {join([f'`{file}`' for file in files])}: what few-shot learners learnt on its codes. `faze calibrate` "
        "takes one as `--learner-file`.",
        "## Data",
        _data_words(rendered),
        markdown_table(
            ("data set", "split", "people", "strips"),
            ((NAMES[row.dataset], row.split, row.people, f"{row.strips:,}") for row in people.itertuples()),
        ),
        "## Errors on test people",
        "Mean angle between estimated and true gaze, in degrees, over people; k is the number of calibration samples.",
        _errors(errors),
        "## Redirected strips of test people",
        "Each strip is redirected to the gaze and head pose of another one of the same person. L1 is the mean "
        "difference to that strip, of pixels in [-1, 1]; the spread is the standard deviation between persons' mean "
        "strips; the last column tells how often the nearest mean strip is the person's own. In brackets: L1 of the "
        "mean of the person's other strips, and the others of real strips.",
        markdown_table(
            ("data set", "L1", "spread", "right person"),
            (
                (
                    NAMES[row.dataset],
                    f"{row.l1:.3f} ({row.own_mean_l1:.3f})",
                    f"{row.spread:.3f} ({row.real_spread:.3f})",
                    f"{row.right_person:.0%} ({row.real_right_person:.0%})",
                )
                for row in redirected.itertuples()
            ),
        ),
        "## Limits",
        "\n".join(f"- {limit}" for limit in _limits(rendered, config)),
        "## Recipe",
        "\n".join(f"    {plain(k)}: {json.dumps(value)}" for k, value in config.items() if k.split(".")[0] in SECTIONS),
    ]
    return "\n\n".join(parts) + "\n"


def count_people(inspected: Mapping[str, Iterable[tuple[str, int]]]) -> pd.DataFrame:
    """Count people and strips: data set -> (split, strips) of each person."""
    rows = [(dataset, *person) for dataset, people in inspected.items() for person in people]
    table = pd.DataFrame(rows, columns=["dataset", "split", "strips"])
    groups = table.groupby(["dataset", "split"], sort=False)["strips"]
    return groups.agg(people="size", strips="sum").reset_index()


def _data_words(rendered: bool) -> str:
    if rendered:
        return "Rendered people, whom faze draws itself (docs/explanation/people.md): no photograph of anybody."
    return "Photographed people. The licence of each data set applies to what is made of it."


def _errors(errors: pd.DataFrame) -> str:
    """Tabulate a row for each learner and k, with a column for each data set."""
    datasets = list(dict.fromkeys(errors["dataset"]))
    means = errors.groupby(["learner", "k", "dataset"], sort=False)["error_deg"].mean()
    cells = dict.fromkeys((learner, k) for learner, k, _ in means.index)
    rows = (
        ("not adapted" if learner == UNADAPTED else learner, k, *(f"{means[learner, k, d]:.2f}" for d in datasets))
        for learner, k in cells
    )
    return markdown_table(("learner", "k", *(NAMES[dataset] for dataset in datasets)), rows)


def _limits(rendered: bool, config: Mapping[str, Any]) -> list[str]:
    size = f"{config['model.image_height_px']} × {config['model.image_width_px']} px"
    return [
        "Errors on photographs of real people were never measured; expect them to be far larger."
        if rendered
        else "People, cameras and light unlike those of the data sets were never measured.",
        f"Strips must be normalised by the camera of the recipe, and are shrunk to {size}.",
        "It is one training: another seed moves a person's error by tenths of a degree.",
        "It is made for research. It is not made to decide anything about a person.",
        "Licence: Apache-2.0, as faze itself."
        if rendered
        else "Licence: that of the data sets. MPIIFaceGaze is CC BY-NC-SA, GazeCapture is for research only.",
    ]
