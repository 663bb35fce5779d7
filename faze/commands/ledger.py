"""For people: the rows of docs/ledger.md from a benchmark.json."""

import argparse
import json
import sys
from pathlib import Path

from faze.base.command_line import Parser, one_sentence
from faze.base.errors import UserError
from faze.benchmark.tier_table import markdown_tables


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(__doc__)
    parser.add_argument("benchmark", type=Path, help="results/NAME/benchmark/benchmark.json")
    return parser.parse_args()


@one_sentence
def main() -> None:
    """Print them."""
    path = parse().benchmark
    try:
        words = markdown_tables(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{path}: not a finished benchmark.json") from None
    print(words, end="")


if __name__ == "__main__":
    sys.exit(main())
