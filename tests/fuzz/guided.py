"""Fuzz one parser guided by coverage: what reaches lines of faze that nothing reached before is varied further.

    .venv/bin/pip install atheris
    .venv/bin/python tests/fuzz/guided.py TARGET --cases 50000

The same targets and the same judgement as `python tests/fuzz`; the choices that make a file come from bytes which
atheris (libFuzzer) mutates. It sees Python alone: for the libraries underneath chance is as good. It ends at the first
finding, and says where the file lies.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "shared"), str(Path(__file__).resolve().parents[2])]

import atheris  # noqa: E402

with atheris.instrument_imports(include=["faze"]):
    from cases import emptied, judge
    from limits import Watch, limited_time
    from targets import TARGETS

T = TypeVar("T")


class Guided:
    """Choices from the bytes that atheris gives."""

    def __init__(self, data: bytes) -> None:
        self._data = atheris.FuzzedDataProvider(data)

    def number(self, low: int, high: int) -> int:
        """See Draw."""
        return self._data.ConsumeIntInRange(low, high)

    def pick(self, values: Sequence[T]) -> T:
        """See Draw."""
        return values[self._data.ConsumeIntInRange(0, len(values) - 1)]

    def flip(self) -> bool:
        """See Draw."""
        return self._data.ConsumeBool()

    def some(self, most: int) -> bytes:
        """See Draw."""
        return self._data.ConsumeBytes(self.number(0, most))


def main() -> None:
    """Run the cases; atheris ends the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    target, home = TARGETS[args.target], Path(tempfile.mkdtemp())
    case = home / "case"
    watch = Watch(case)
    os.chdir(home)
    target.warm()

    def one(data: bytes) -> None:
        emptied(case)
        target.make(Guided(data), case)
        try:
            with watch.on(), limited_time():
                judge(target, case)
        except BaseException:
            print(f"the finding's file: {case}", file=sys.stderr)
            raise

    corpus = home / "corpus"
    corpus.mkdir()
    limits = ["-rss_limit_mb=3000", "-timeout=300", "-max_len=65536", "-len_control=0"]
    atheris.Setup([sys.argv[0], f"-runs={args.cases}", f"-seed={args.seed}", *limits, str(corpus)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
