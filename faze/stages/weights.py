"""Rule and command `weights`: publish the network and learners of one run with a model card.

    faze weights --results results/default --tier recompute --seed 0 --learners bayes --out recompute_weights

`dted.pt` contains the weights without the state for resuming training; learners' files are unchanged. `errors.csv`
contains the error of each test person, whose means are in the card.
"""

import shutil
from argparse import Namespace
from pathlib import Path

from faze.base.command_line import argument, command, needed
from faze.base.errors import UserError
from faze.base.files import check_replaceable, whole_folder
from faze.base.locks import output_lock
from faze.base.logged_run import read_ended_run
from faze.base.result_paths import ResultPaths
from faze.data.store.strips import StripStore
from faze.evaluation.parquet_file import TEXT, read_table
from faze.evaluation.redirection_tables import redirection
from faze.evaluation.runs import AGAIN, Ablation, read_errors
from faze.fewshot.learners import LEARNERS
from faze.model.weights import load_model, save_weights
from faze.report.model_card import count_people, write_card

CARD = "model_card.md"
NETWORK = "dted.pt"
ERRORS = "errors.csv"
COLUMNS = ["dataset", "person", "learner", "k", "error_deg"]  # of ERRORS


@command(
    __doc__,
    needed("--results", "results/<name>"),
    argument("--tier", default="baseline", help="tier of the run (default: baseline)"),
    argument("--seed", type=int, default=0, help="seed of the run (default: 0)"),
    argument("--learners", nargs="+", choices=LEARNERS, required=True, help="learners to include"),
    argument("--real-people", type=Path, help="Markdown about errors on real people, measured elsewhere, for the card"),
    needed("--out", "output folder for dted.pt, a file for each learner, errors.csv and the model card"),
)
def main(args: Namespace) -> None:
    """Write the network, the learners, the errors and the model card."""
    check_replaceable(args.out, (NETWORK, CARD))
    paths, run = ResultPaths(args.results), (args.tier, args.seed)
    copies = {f"{name}.pt": paths.learner(*run, name) for name in args.learners}
    inputs = [paths.checkpoint(*run), *copies.values(), paths.run_log(*run), paths.redirection(*run)]
    inputs += [paths.errors(*run, name) for name in args.learners]
    if not args.results.is_dir():
        raise UserError(f"{args.results}: there is no such folder: pass results/NAME of a finished ablation")
    for path in inputs:
        if not path.is_file():
            raise UserError(
                f"{path} is missing: first run, with the ablation's --configfile and with these learners in "
                f"fewshot.learners: snakemake --cores all tier_{args.tier}"
            )
    start = read_ended_run(paths.run_log(*run)).start
    if "fold.folds" in start["config"]:
        raise UserError(
            f"{args.results}: has a network for each fold of the people: to publish one, train it on all of them with "
            "a JSON of splits instead of leave_one_person_out"
        )
    datasets = list(dict.fromkeys(read_table(inputs[-1], {"dataset": TEXT}, AGAIN)["dataset"]))
    ablation = Ablation(paths, [args.tier], [args.seed], args.learners, query_entries=0, datasets=datasets)
    stores = {dataset: _read_store(paths, dataset) for dataset in datasets}
    errors = read_errors(ablation)
    card = write_card(
        start=start,
        pixel_sources={dataset: source for dataset, (source, _) in stores.items()},
        people=count_people({dataset: people for dataset, (_, people) in stores.items()}),
        errors=errors,
        redirected=redirection(ablation),
        files=list(copies),
        real_people=args.real_people.read_text(encoding="utf-8").strip() if args.real_people else "",
    )
    with output_lock(args.out), whole_folder(args.out) as folder:
        for name, source in copies.items():
            shutil.copyfile(source, folder / name)
        save_weights(folder / NETWORK, load_model(paths.checkpoint(*run)))
        errors[COLUMNS].to_csv(folder / ERRORS, index=False, float_format="%.4f")
        (folder / CARD).write_text(card, encoding="utf-8")
    print(f"weights: see {args.out / CARD}")


def _read_store(paths: ResultPaths, dataset: str) -> tuple[str, list[tuple[str, int]]]:
    """Return the source of a store's pixels, and the split and the number of strips of each person."""
    with StripStore(paths.store(dataset)) as strips:
        return strips.pixel_source, [(strips.split(person), strips.count(person)) for person in strips.persons()]
