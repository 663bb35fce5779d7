"""Publish the network and learners of one run with a model card.

    faze weights --results results/default --tier recompute --seed 0 --learners bayes --out recompute_weights

`dted.pt` contains the weights without the state for resuming training; learners' files are unchanged. `errors.csv`
contains the error of each test person, whose means are in the card.
"""

import shutil
from pathlib import Path

import pandas as pd

from faze.base.errors import UserError
from faze.base.files import whole_folder
from faze.base.result_paths import ResultPaths
from faze.base.run_log import read_run
from faze.data.strips import read_store
from faze.evaluation.redirected_angles import REDIRECTED, by_variant
from faze.evaluation.runs import Ablation, read_errors
from faze.model.weights import load_model, save_weights
from faze.report.data_counts import count_people
from faze.report.model_card import write_card

CARD = "model_card.md"
NETWORK = "dted.pt"
ERRORS = "errors.csv"
COLUMNS = ["dataset", "person", "learner", "k", "error_deg"]  # of ERRORS


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
    ablation = Ablation(paths, [tier], [seed], learners, datasets)
    pixel_sources, people = {}, []
    for dataset in datasets:
        store = read_store(paths.store(dataset))
        pixel_sources[dataset] = store.pixel_source
        people.append(count_people(store))
    errors = read_errors(ablation)
    redirected = by_variant(pd.read_parquet(paths.redirected_pairs(*run)))
    card = write_card(
        start=start,
        pixel_sources=pixel_sources,
        people=pd.concat(people),
        errors=errors,
        redirected=redirected[redirected["variant"] == REDIRECTED],
        files=list(copies),
        real_people=real_people.read_text(encoding="utf-8").strip() if real_people else "",
    )
    with whole_folder(out) as folder:
        for name, source in copies.items():
            shutil.copyfile(source, folder / name)
        save_weights(folder / NETWORK, load_model(paths.checkpoint(*run)))
        errors[COLUMNS].to_csv(folder / ERRORS, index=False, float_format="%.4f")
        (folder / CARD).write_text(card, encoding="utf-8")
    print(f"weights: see {out / CARD}")
