"""The Markdown model card of a trained checkpoint: data, errors, redirected strips, limits and recipe."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd

from faze.data.strips import RENDERED, UNKNOWN_SOURCE
from faze.evaluation import UNADAPTED
from faze.evaluation.wording import join, markdown_table, title_of
from faze.weights import SHIPPED

LICENCES = {
    "GazeCapture": "GazeCapture is for research only",
    "MPIIFaceGaze": "MPIIFaceGaze is CC BY-NC-SA",
    "MPIIGaze": "MPIIGaze is CC BY-NC-SA",
}
SECTIONS = ("model", "loss", "train", "augment", "data", "preprocess", "engine")  # of the recipe


def write_card(
    *,
    start: Mapping[str, Any],
    pixel_sources: Mapping[str, str],
    people: pd.DataFrame,
    errors: pd.DataFrame,
    redirected: pd.DataFrame,
    files: Sequence[str],
    real_people: str = "",
) -> str:
    """Return the model card of one run.

    Args:
        start: the start event of its training (`faze.base.run_log`).
        pixel_sources: source of the pixels of each data set's strips (`faze.data.strips`).
        people: contents of the stores, with the columns dataset, split, people and strips.
        errors: errors of each test person (`faze.evaluation.runs.read_errors`).
        redirected: similarities of redirected strips (`faze.evaluation.redirected_angles.by_variant`).
        files: names of the learner files next to the checkpoint.
        real_people: Markdown about errors on real people that were measured elsewhere; "" if there are none.
    """
    config, machine = start["config"], start["machine"]
    tier, seed, begun = start["tier"], start["seed"], config.get("train.start")
    commit = f"(commit {machine.get('commit') or 'unknown'}, torch {machine.get('torch')})"
    origin = f"It was trained with faze {commit}" + (f", starting from `{begun}`" if begun else "")
    if config.get("train.pairs") == 0:
        origin = f"Its weights are those of `{begun}`; it was only evaluated with faze {commit}"
    trained_on = people.loc[people["split"] != "test", "dataset"]  # by the learners, and presumably by the network
    of_network = UNKNOWN_SOURCE if begun not in (None, SHIPPED) else start.get("pixel_source", UNKNOWN_SOURCE)
    training_sources = {of_network, *(pixel_sources[name] for name in trained_on)}
    parts = [
        f"# Model card: DT-ED of `{start['name']}`, tier `{tier}`, seed {seed}",
        "This network estimates the gaze direction from an image of both eyes (a strip) and redirects the strip to "
        "another gaze and head pose. Few-shot learners adapt it to a person. "
        f"{origin}. It follows FAZE (Park et al., ICCV 2019, arXiv:1905.01941).",
        "- `dted.pt`: the network, for `--checkpoint` of encode, walk, redirect and export, for `--model` of `faze "
        "gaze` and `faze calibrate`, and for `train.start`.\n"
        f"- {join([f'`{file}`' for file in files])}: trained few-shot learners, for `--learner-file` of `faze "
        "calibrate`.",
        "## Data",
        "\n".join(f"- {title_of(dataset)}: {_describe_pixels(source)}" for dataset, source in pixel_sources.items()),
        markdown_table(
            ("data set", "split", "people", "strips"),
            ((title_of(row.dataset), row.split, row.people, f"{row.strips:,}") for row in people.itertuples()),
        ),
        "## Errors on test people",
        "Mean angle between estimated and true gaze over people, in degrees. k is the number of calibration samples.",
        _errors(errors),
        *(["### Real people", real_people] if real_people else []),
        "## Redirected strips of test people",
        "Each strip is redirected to the gaze and head pose of another strip of the same person. L1 is the mean "
        "absolute difference from that strip, with pixels in [-1, 1].",
        markdown_table(
            ("data set", "L1", "PSNR", "SSIM"),
            (
                (title_of(dataset), f"{row.l1:.3f}", f"{row.psnr:.1f} dB", f"{row.ssim:.3f}")
                for dataset, row in redirected.groupby("dataset", sort=False)[["l1", "psnr", "ssim"]].mean().iterrows()
            ),
        ),
        "## Limits",
        "\n".join(f"- {limit}" for limit in _limits(pixel_sources, config, training_sources, real_people)),
        "## Recipe",
        "\n".join(f"    {k}: {json.dumps(value)}" for k, value in config.items() if k.split(".")[0] in SECTIONS),
    ]
    return "\n\n".join(parts) + "\n"


def _describe_pixels(source: str) -> str:
    if source == RENDERED:
        return "rendered by faze; the images do not depict real people (docs/explanation/people.md)."
    if source == UNKNOWN_SOURCE:
        return "images of unknown origin. The licence of their owner also applies to derived works."
    return f"photographs from {source}. Its licence also applies to derived works."


def _errors(errors: pd.DataFrame) -> str:
    """Return a table with a row per learner and k, and a column per data set."""
    datasets = list(dict.fromkeys(errors["dataset"]))
    means = errors.groupby(["learner", "k", "dataset"], sort=False)["error_deg"].mean()
    cells = dict.fromkeys((learner, k) for learner, k, _ in means.index)
    rows = (
        ("unadapted" if learner == UNADAPTED else learner, k, *(f"{means[learner, k, d]:.2f}" for d in datasets))
        for learner, k in cells
    )
    return markdown_table(("learner", "k", *(title_of(dataset) for dataset in datasets)), rows)


def _limits(
    pixel_sources: Mapping[str, str], config: Mapping[str, Any], training_sources: Collection[str], real_people: str
) -> list[str]:
    size = f"{config['model.image_height_px']} × {config['model.image_width_px']} px"
    all_rendered = all(source == RENDERED for source in pixel_sources.values())
    unmeasured = "Errors for people, cameras and lighting that are not in the data sets have not been measured."
    if all_rendered:
        unmeasured = "Errors on photographs of real people have not been measured. They are likely to be far larger."
    return [
        *([] if real_people else [unmeasured]),
        f"Strips must be normalised with the camera of the recipe and scaled to {size}.",
        "This is a single training run. Another seed changes the error of a person by tenths of a degree.",
        "It is intended for research, not for decisions about people.",
        _describe_licence(training_sources),
    ]


def _describe_licence(sources: Collection[str]) -> str:
    """Describe the licence of the weights, given the sources of all pixels used to train network and learners."""
    if all(source == RENDERED for source in sources):
        return "Licence: Apache-2.0, like faze itself. Network and learners were trained on rendered people only."
    if UNKNOWN_SOURCE in sources:
        return "Licence: unknown, since the origin of the images used for training is unknown."
    known = [LICENCES.get(source, f"that of {source}") for source in sorted(sources) if source != RENDERED]
    return f"Licence: that of the training data. {join(known)}."
