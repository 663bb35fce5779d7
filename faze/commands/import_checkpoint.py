"""`faze import-checkpoint`: published weights of DT-ED -> a checkpoint that encode and walk read.

The model section that the weights were trained with comes from the configuration files, laid over config/config.yaml:

    faze import-checkpoint published.pth.tar --config config/paper.yaml --out results/published/checkpoint.pt
"""

import argparse
import sys
from pathlib import Path

from faze.base.command_line import one_sentence
from faze.base.output_lock import sole_writer
from faze.config.check import build
from faze.config.parameters import Model
from faze.config.validation import validate
from faze.config.yaml_files import read_yaml
from faze.model.weights import import_published, save_weights

DEFAULTS = Path("config/config.yaml")


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("published", type=Path, help="state dictionary, with or without `module.` before its keys")
    parser.add_argument("--config", type=Path, nargs="*", default=[], help="overrides, such as config/paper.yaml")
    parser.add_argument("--out", type=Path, required=True, help="checkpoint to write")
    return parser.parse_args()


@one_sentence
def main() -> None:
    """Check name by name, and write."""
    args = parse()
    paths = [DEFAULTS, *args.config]
    model = build(Model, validate(read_yaml(*paths), paths)["model"])
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
