"""Rule and command `weights`: publish the checkpoint and learners of one run with a model card.

faze weights --results results/default --tier recompute --seed 0 --learners bayes --out recompute_weights
"""

import shutil
from argparse import Namespace

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
from faze.report.model_card import count_people, write_card

CARD = "model_card.md"
NETWORK = "dted.pt"


@command(
    __doc__,
    needed("--results", "results/<name>"),
    argument("--tier", default="baseline", help="tier of the run (default: baseline)"),
    argument("--seed", type=int, default=0, help="seed of the run (default: 0)"),
    argument("--learners", nargs="+", choices=LEARNERS, required=True, help="learners to include"),
    needed("--out", "output folder for dted.pt, a file for each learner and the model card"),
)
def main(args: Namespace) -> None:
    """Copy the trained files unchanged and write the model card."""
    check_replaceable(args.out, (NETWORK, CARD))
    paths, run = ResultPaths(args.results), (args.tier, args.seed)
    copies = {NETWORK: paths.checkpoint(*run)}
    copies |= {f"{name}.pt": paths.learner(*run, name) for name in args.learners}
    inputs = [*copies.values(), paths.run_log(*run), paths.redirection(*run)]
    inputs += [paths.errors(*run, name) for name in args.learners]
    for path in inputs:
        if not path.is_file():
            raise UserError(f"{path} is missing; run this tier first: snakemake --cores all tier_{args.tier}")
    start = read_ended_run(paths.run_log(*run)).start
    if "fold.folds" in start["config"]:
        raise UserError(
            f"{args.results}: has a network for each fold of the people: to publish one, train it on all of them with "
            "a JSON of splits instead of leave_one_person_out"
        )
    datasets = list(dict.fromkeys(read_table(inputs[-1], {"dataset": TEXT}, AGAIN)["dataset"]))
    ablation = Ablation(paths, [args.tier], [args.seed], args.learners, query_entries=0, datasets=datasets)
    stores = {dataset: _read_store(paths, dataset) for dataset in datasets}
    card = write_card(
        start=start,
        pixel_sources={dataset: source for dataset, (source, _) in stores.items()},
        people=count_people({dataset: people for dataset, (_, people) in stores.items()}),
        errors=read_errors(ablation),
        redirected=redirection(ablation),
        files=list(copies)[1:],
    )
    with output_lock(args.out), whole_folder(args.out) as folder:
        for name, source in copies.items():
            shutil.copyfile(source, folder / name)
        (folder / CARD).write_text(card, encoding="utf-8")
    print(f"weights: see {args.out / CARD}")


def _read_store(paths: ResultPaths, dataset: str) -> tuple[str, list[tuple[str, int]]]:
    """Return the source of a store's pixels, and the split and the number of strips of each person."""
    with StripStore(paths.store(dataset)) as strips:
        return strips.pixel_source, [(strips.split(person), strips.count(person)) for person in strips.persons()]
