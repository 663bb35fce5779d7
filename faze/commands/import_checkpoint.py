"""`faze import-checkpoint`: convert a published DT-ED state dictionary to a checkpoint for encode and walk.

The `model` section that describes the weights comes from the configuration files, which override config/config.yaml:

    faze import-checkpoint published.pth.tar --configfile config/paper.yaml --out results/published/checkpoint.pt
"""

from argparse import Namespace
from pathlib import Path

from faze.base.command_line import CONFIGFILE, argument, command, needed
from faze.base.locks import output_lock
from faze.config.check import build
from faze.config.parameters import Model
from faze.config.validation import read_config
from faze.model.weights import import_published, save_weights


@command(
    __doc__,
    argument("published", type=Path, help="state dictionary, with or without `module.` before its keys"),
    CONFIGFILE,
    needed("--out", "checkpoint to write"),
)
def main(args: Namespace) -> None:
    """Check the name and shape of each tensor, and write the checkpoint."""
    model = build(Model, read_config(args.configfile)["model"])
    dted = import_published(args.published, model)
    with output_lock(args.out):
        save_weights(args.out, dted)
    print(
        f"{args.out}: {len(dted.state_dict())} tensors, {sum(p.numel() for p in dted.parameters()):,} parameters, "
        f"growth {model.growth}, strips of {model.image_height_px} x {model.image_width_px} px"
    )
