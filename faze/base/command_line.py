"""The command line that every stage and command has: the arguments that many of them take, and how an error ends it."""

import argparse
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path

from faze.base.errors import UserError

TRACEBACK = "--traceback"
OUR_FAULT = "This is a fault of faze: please report it, with the traceback above."
NO_MEMORY = "The memory did not suffice: less at a time (a smaller batch, more parts), or a machine with more."


class Parser(argparse.ArgumentParser):
    """Reads a command line; `doc` is the description, line by line as it stands there."""

    def __init__(self, doc: str | None) -> None:
        # Without abbreviations, so that one_sentence finds --traceback by its name.
        super().__init__(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
        self.add_argument(TRACEBACK, action="store_true", help="show where in the code an error arose")

    def add_config(self) -> None:
        """Take the file of a stage's own parameters."""
        words = "this stage's own parameters, as the workflow and `faze resolve` write them"
        self.add_argument("--config", type=Path, required=True, help=words)

    def add_configfile(self) -> None:
        """Take overrides as Snakemake does."""
        words = "overrides, each laid over the defaults and the files before it, as for snakemake"
        self.add_argument("--configfile", type=Path, nargs="+", default=[], help=words)

    def add_threads(self, words: str = "CPU threads", default: int | None = None) -> None:
        """Take a number of threads, at least 1; as many as there are CPU cores, if nothing else is the default."""
        self.add_argument("--threads", type=at_least_one, default=default or os.cpu_count(), help=words)


def at_least_one(text: str) -> int:
    """Read an argument that is a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def one_sentence(main: Callable[[], None]) -> Callable[[], int]:
    """Let a command end with exit code 1 and one sentence where the person can mend it: UserError, or a file's OSError.

    Any other error shows its traceback and says whose fault it is; with --traceback, every error shows its own.
    """

    @functools.wraps(main)
    def run() -> int:
        try:
            main()
        except (UserError, OSError) as error:
            if TRACEBACK in sys.argv:
                raise
            named = isinstance(error, OSError) and error.filename and error.strerror
            sentence = f"{error.filename}: {error.strerror}" if named else error
            print(f"{sys.argv[0].rsplit('/', 1)[-1]}: {sentence}", file=sys.stderr)
            return 1
        except Exception as error:
            # torch, which this room does not import, has an OutOfMemoryError of its own.
            error.add_note(NO_MEMORY if type(error).__name__ in ("MemoryError", "OutOfMemoryError") else OUR_FAULT)
            raise
        return 0

    return run
