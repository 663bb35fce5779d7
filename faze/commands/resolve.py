"""`faze resolve`: write a stage's configuration file, to run the stage without the workflow.

faze resolve train --tier recompute --seed 0 --configfile mine.yaml --out train.yaml
faze train --config train.yaml --data strips.h5 --out checkpoint.pt --run-log run.jsonl
"""

from argparse import Namespace
from pathlib import Path

from faze.base.command_line import CONFIGFILE, argument, command
from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.config.check import nearest
from faze.config.datasets import data_sets
from faze.config.parameters import CONTROLS, PER_DATASET, PER_RUN, STAGES
from faze.config.stage_config import resolve, to_lines
from faze.config.tiers import points, resolve_tier
from faze.config.validation import read_config


@command(
    __doc__,
    argument("stage", choices=STAGES),
    CONFIGFILE,
    argument("--tier", help=f"tier, noise control or point of a sweep; needed for {', '.join(sorted(PER_RUN))}"),
    argument("--seed", type=int, help="seed of the run; needed for the same stages"),
    argument("--dataset", help=f"name of a data set; needed for {', '.join(PER_DATASET)}"),
    argument("--out", type=Path, help="file to write (default: standard output)"),
)
def main(args: Namespace) -> None:
    """Read the configuration and write the part on which one stage depends."""
    for option, stages in {"tier": PER_RUN, "seed": PER_RUN, "dataset": PER_DATASET}.items():
        if (args.stage in stages) != (getattr(args, option) is not None):
            raise UserError(f"--{option} is {'required' if args.stage in stages else 'not accepted'} by {args.stage}")
    config = read_config(args.configfile)
    if args.tier is not None and args.tier not in (*CONTROLS, *points(config)):
        resolve_tier(config, args.tier)  # raises an error if it is not defined
    if args.dataset is not None and args.dataset not in (known := list(data_sets(config))):
        raise UserError(f"--dataset {args.dataset}: is not in preprocess.datasets{nearest(args.dataset, known)}")
    lines = to_lines(resolve(config, args.stage, args.tier, args.seed, args.dataset))
    text = "".join(f"{line}\n" for line in lines)
    if args.out:
        with whole_file(args.out) as temporary:
            temporary.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
