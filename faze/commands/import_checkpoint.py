"""`faze import-checkpoint`: published weights of DT-ED -> a checkpoint that encode and walk read.

The model section that the weights were trained with comes from the configuration files, laid over config/config.yaml:

    faze import-checkpoint published.pth.tar --configfile config/paper.yaml --out results/published/checkpoint.pt
"""

import argparse
import sys
from pathlib import Path

from faze.base.command_line import Parser, one_sentence
from faze.base.output_lock import sole_writer
from faze.config.check import build
from faze.config.parameters import Model
from faze.config.validation import read_config
from faze.model.weights import import_published, save_weights


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(__doc__)
    parser.add_argument("published", type=Path, help="state dictionary, with or without `module.` before its keys")
    parser.add_configfile()
    parser.add_argument("--out", type=Path, required=True, help="checkpoint to write")
    return parser.parse_args()


@one_sentence
def main() -> None:
    """Check name by name, and write."""
    args = parse()
    model = build(Model, read_config(args.configfile)["model"])
    dted = import_published(args.published, model)
    with sole_writer(args.out):
        save_weights(args.out, dted)
    parameters = sum(p.numel() for p in dted.parameters())
    print(
        f"{args.out}: {len(dted.state_dict())} tensors, {parameters:,} parameters, growth {model.growth}, strips of "
        f"{model.image_height_px} x {model.image_width_px} px"
    )


if __name__ == "__main__":
    sys.exit(main())
