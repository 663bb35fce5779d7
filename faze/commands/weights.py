"""Publish the network and learners of one run with a model card.

    faze weights --results results/default --tier recompute --seed 0 --learners bayes --out recompute_weights

`dted.pt` contains the weights only; learners' files are unchanged. `errors.csv` has the error of each test person.
"""

import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from faze.base.errors import UserError
from faze.base.files import whole_folder
from faze.base.result_paths import ResultPaths
from faze.base.run_log import read_run
from faze.data.strips import RENDERED, UNKNOWN_SOURCE, read_store
from faze.evaluation.runs import read_errors
from faze.evaluation.wording import join, markdown_table, title_of
from faze.model.weights import load_model, save_weights
from faze.report.page import count_people
from faze.weights import SHIPPED

CARD = "model_card.md"
NETWORK = "dted.pt"
ERRORS = "errors.csv"
LICENCES = {"GazeCapture": "GazeCapture is for research only"}
LICENCES |= {name: f"{name} is CC BY-NC-SA" for name in ("MPIIFaceGaze", "MPIIGaze")}
PIXELS = {RENDERED: "rendered by faze; the images do not depict real people.", UNKNOWN_SOURCE: "of unknown origin."}
COLUMNS = ["dataset", "person", "learner", "k", "error_deg"]  # of ERRORS

CARD_TEXT = """# Model card: DT-ED of `{name}`, tier `{tier}`, seed {seed}

This network estimates the gaze direction from an image of both eyes (a strip) and redirects the strip to another gaze
and head pose. Few-shot learners adapt it to a person. {origin} It follows FAZE (Park et al., ICCV 2019,
arXiv:1905.01941).

- `dted.pt`: the network, for `--model` of `faze gaze`, `--checkpoint` of stages, and `train.start`.
- {files}: trained few-shot learners, for `--learner-file` of `faze calibrate`.

## Data

{data}

{people}

## Errors on test people

Mean angle between estimated and true gaze over people, in degrees. k is the number of calibration samples.

{errors}

{real_people}## Limits

- Errors for other people, cameras and lighting are likely to be far larger.
- This is a single training run. Another seed changes the error of a person by tenths of a degree.
- It is intended for research, not for decisions about people.
- {licence}

## Recipe

{recipe}
"""


def main(
    *,
    results: Path,
    tier: str = "baseline",
    seed: int = 0,
    learners: list[str],
    real_people: Path | None = None,
    out: Path,
) -> None:
    """Write the network, the learners, the errors and the model card.

    Args:
        results: results/NAME of a finished ablation, or after `snakemake tier_TIER`
        tier: tier of the run
        seed: seed of the run
        learners: learners to include
        real_people: Markdown about errors on real people, measured elsewhere, for the card
        out: folder to write
    """
    if out.exists() and not (out / CARD).exists():
        raise UserError(f"--out {out} exists, but contains no {CARD}: choose a new folder")
    paths, run = ResultPaths(results), (tier, seed)
    copies = {f"{name}.pt": paths.run(*run, f"fewshot/{name}.pt") for name in learners}
    inputs = [paths.checkpoint(*run), *copies.values(), *(paths.errors(*run, name) for name in learners)]
    if missing := [str(path) for path in inputs if not path.is_file()]:
        raise UserError(f"{missing[0]} is missing: first run snakemake --cores all tier_{tier}, with these learners")
    start = read_run(paths.run_log(*run)).start
    if "fold.folds" in start["config"]:
        raise UserError(f"{results}: has a network for each fold of the people: train one with a JSON file of splits")
    datasets = list(dict.fromkeys(pd.read_parquet(inputs[-1], columns=["dataset"])["dataset"]))
    pixel_sources, people = {}, []
    for dataset in datasets:
        store = read_store(paths.store(dataset))
        pixel_sources[dataset] = store.pixel_source
        people.append(count_people(store))
    errors = read_errors(paths, [run], learners)
    real = real_people.read_text(encoding="utf-8").strip() if real_people else ""
    card = write_card(start, pixel_sources, pd.concat(people), errors, list(copies), real)
    with whole_folder(out) as folder:
        for name, source in copies.items():
            shutil.copyfile(source, folder / name)
        save_weights(folder / NETWORK, load_model(paths.checkpoint(*run)))
        errors[COLUMNS].to_csv(folder / ERRORS, index=False, float_format="%.4f")
        (folder / CARD).write_text(card, encoding="utf-8")
    print(f"weights: see {out / CARD}")


def write_card(
    start: Mapping[str, Any],
    pixel_sources: Mapping[str, str],
    people: pd.DataFrame,
    errors: pd.DataFrame,
    files: Sequence[str],
    real_people: str,
) -> str:
    """Return the model card, given the training's start event, its data, and errors of test people."""
    config, machine, begun = start["config"], start["machine"], start["config"].get("train.start")
    commit = f"(commit {machine.get('commit') or 'unknown'}, torch {machine.get('torch')})"
    origin = f"It was trained with faze {commit}" + (f", starting from `{begun}`." if begun else ".")
    if config.get("train.pairs") == 0:
        origin = f"Its weights are those of `{begun}`; it was only evaluated with faze {commit}."
    trained_on = people.loc[people["split"] != "test", "dataset"]  # by the learners, and presumably by the network
    of_network = UNKNOWN_SOURCE if begun not in (None, SHIPPED) else start.get("pixel_source", UNKNOWN_SOURCE)
    licence = describe_licence({of_network, *(pixel_sources[name] for name in trained_on)})
    data = [f"- {title_of(name)}: {PIXELS.get(of, f'photographs from {of}.')}" for name, of in pixel_sources.items()]
    counts = people.assign(dataset=people["dataset"].map(title_of), strips=people["strips"].map("{:,}".format))
    means = errors.groupby(["learner", "k", "dataset"], sort=False)["error_deg"].mean().unstack("dataset", sort=False)
    cells = means.map("{:.2f}".format).reset_index().to_numpy()
    recipe = [f"    {key}: {json.dumps(value)}" for key, value in config.items()]
    return CARD_TEXT.format(
        **start | {"origin": origin, "licence": licence},
        files=join([f"`{file}`" for file in files]),
        real_people=f"### Real people\n\n{real_people}\n\n" if real_people else "",
        data="\n".join(data),
        people=markdown_table(("data set", "split", "people", "strips"), counts.to_numpy()),
        errors=markdown_table(("learner", "k", *map(title_of, means)), cells),
        recipe="\n".join(recipe),
    )


def describe_licence(sources: Collection[str]) -> str:
    """Describe the licence of the weights, given the sources of all pixels used to train network and learners."""
    if all(source == RENDERED for source in sources):
        return "Licence: Apache-2.0, like faze itself. Network and learners were trained on rendered people only."
    if UNKNOWN_SOURCE in sources:
        return "Licence: unknown, since the origin of the images used for training is unknown."
    known = [LICENCES.get(source, f"that of {source}") for source in sorted(sources) if source != RENDERED]
    return f"Licence: that of the training data. {join(known)}."
