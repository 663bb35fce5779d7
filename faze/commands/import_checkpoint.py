"""`faze import-checkpoint`: convert a published DT-ED state dictionary to a checkpoint for encode and walk.

The `model` section that describes the weights, and the virtual camera in `preprocess`, come from the configuration
files, which override config/config.yaml:

    faze import-checkpoint published.pth.tar --configfile config/paper.yaml --out results/published/checkpoint.pt
"""

from argparse import Namespace
from pathlib import Path

from faze.base.command_line import CONFIGFILE, argument, command, needed
from faze.base.locks import output_lock
from faze.config.check import build
from faze.config.parameters import Model
from faze.config.stage_config import camera_of
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
    config = read_config(args.configfile)
    model = build(Model, config["model"])
    dted = import_published(args.published, model)
    dted.camera = camera_of(config)
    with output_lock(args.out):
        save_weights(args.out, dted)
    print(
        f"{args.out}: {len(dted.state_dict())} tensors, {sum(p.numel() for p in dted.parameters()):,} parameters, "
        f"growth {model.growth}, strips of {model.image_height_px} x {model.image_width_px} px"
    )
