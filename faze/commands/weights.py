"""Publish the network and learners of one run with a model card.

    faze weights --results results/default --tier recompute --seed 0 --learners bayes --out recompute_weights

`dted.pt` contains only the weights. The learners' files are copied. `errors.csv` contains each test person's errors.
"""

import shutil
import textwrap
from pathlib import Path

import pandas as pd

from faze.base.errors import UserError
from faze.base.result_paths import ResultPaths
from faze.base.run_log import read_run
from faze.config.stage_config import to_lines
from faze.data.strips import RENDERED, UNKNOWN_SOURCE, StripStore, read_store
from faze.evaluation.runs import read_errors
from faze.evaluation.wording import join, markdown_table, title_of
from faze.model.weights import load_model, save_weights
from faze.report.page import count_people
from faze.weights import SHIPPED

LICENCES = "GazeCapture is for research only; MPIIFaceGaze and MPIIGaze are CC BY-NC-SA"
PIXELS = {RENDERED: "rendered by faze; the images do not depict real people.", UNKNOWN_SOURCE: "origin unknown."}

CARD = """# Model card: DT-ED of `{name}`, tier `{tier}`, seed {seed}

This network estimates the gaze direction from an image of both eyes (a strip) and redirects the strip to another gaze
and head pose. Few-shot learners adapt it to a person. {origin} It follows FAZE (Park et al., ICCV 2019,
arXiv:1905.01941).

- `dted.pt`: the network, for `--model` of `faze gaze`, `--checkpoint` of stages, and `train.start`.
- {files}: trained few-shot learners, for `--learner-file` of `faze calibrate`.

## Data

{data}

{people}

## Errors on test people

Angle between estimated and true gaze in degrees, averaged over people. k is the number of calibration samples.

{errors}

## Limits

- Errors for other people, cameras and lighting are likely to be far larger.
- This is a single training run. Another seed changes the error of a person by tenths of a degree.
- It is intended for research, not for decisions about people.
- {licence}

## Recipe

{recipe}
"""


def main(*, results: Path, tier: str = "baseline", seed: int = 0, learners: list[str], out: Path) -> None:
    """Write the network, the learners, the errors and the model card.

    Args:
        results: results/NAME of a finished ablation, or of a finished `snakemake tier_TIER`
    """
    paths, run = ResultPaths(results), (tier, seed)
    start, network = read_run(paths.run_log(*run)).start, load_model(paths.checkpoint(*run))
    if "fold.folds" in start["config"]:
        raise UserError(f"{results} contains a network for each fold: train a single one, with a JSON file of splits")
    errors = read_errors(paths, [run], learners)
    stores = [read_store(paths.store(dataset)) for dataset in errors["dataset"].unique()]
    card = write_card(start, stores, errors, learners)
    out.mkdir(parents=True, exist_ok=True)
    for learner in learners:
        shutil.copyfile(paths.run(*run, f"fewshot/{learner}.pt"), out / f"{learner}.pt")
    save_weights(out / "dted.pt", network)
    errors.drop(columns=["tier", "seed"]).to_csv(out / "errors.csv", index=False, float_format="%.4f")
    (out / "model_card.md").write_text(card, encoding="utf-8")
    print(f"weights: see {out / 'model_card.md'}")


def write_card(start: dict, stores: list[StripStore], errors: pd.DataFrame, learners: list[str]) -> str:
    """Return the model card, given the training run's start event, its data and the errors of test people."""
    config, machine, begun = start["config"], start["machine"], start["config"].get("train.start")
    made = f"faze (commit {machine.get('commit') or 'unknown'}, torch {machine.get('torch')})"
    origin = f"It was trained with {made}" + (f", starting from `{begun}`." if begun else ".")
    if config.get("train.pairs") == 0:
        origin = f"Its weights are those of `{begun}`; it was only evaluated with {made}."
    of_network = UNKNOWN_SOURCE if begun not in (None, SHIPPED) else start.get("pixel_source", UNKNOWN_SOURCE)
    # Learners, and presumably the network, are trained on the stores that contain train or val people.
    of_learners = {store.pixel_source for store in stores if store.of_split("train") + store.of_split("val")}
    origins = {store.dataset: (store.pixel_source, f"photographs from {store.pixel_source}.") for store in stores}
    people = pd.concat(map(count_people, stores)).replace({"dataset": {name: title_of(name) for name in origins}})
    means = errors.groupby(["learner", "k", "dataset"], sort=False)["error_deg"].mean().unstack("dataset", sort=False)
    header = ("learner", "k", *map(title_of, means))
    return CARD.format(
        **start | {"origin": origin, "licence": describe_licence({of_network, *of_learners})},
        files=join([f"`{learner}.pt`" for learner in learners]),
        data="\n".join(f"- {title_of(name)}: {PIXELS.get(*of)}" for name, of in origins.items()),
        people=markdown_table(("data set", "split", "people", "strips"), people.to_numpy()),
        errors=markdown_table(header, means.map("{:.2f}".format).reset_index().to_numpy()),
        recipe=textwrap.indent("\n".join(to_lines(config)), "    "),
    )


def describe_licence(sources: set[str]) -> str:
    """Describe the licence of the weights, given the sources of all pixels used for training."""
    if sources == {RENDERED}:
        return "Licence: Apache-2.0, like faze itself. The network and learners were trained only on rendered people."
    if UNKNOWN_SOURCE in sources:
        return "Licence: unknown, since the origin of the images used for training is unknown."
    return f"Licence: that of the training data, {join(sorted(sources - {RENDERED}))}. {LICENCES}."
