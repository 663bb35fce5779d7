"""`faze ledger`: print rows for docs/ledger.md from a benchmark.json."""

from argparse import Namespace
from pathlib import Path

from faze.base.command_line import argument, command
from faze.base.errors import UserError
from faze.base.files import parse_json
from faze.benchmark.tier_table import markdown_tables


@command(
    __doc__,
    argument("benchmark", type=Path, help="results/NAME/benchmark/benchmark.json"),
)
def main(args: Namespace) -> None:
    """Print the rows."""
    path = args.benchmark
    try:
        words = markdown_tables(parse_json(path.read_text(encoding="utf-8")))
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
        raise UserError(f"{path}: not a finished benchmark.json") from None
    print(words, end="")
