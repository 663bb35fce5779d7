"""Shared arguments, and the command line of a stage or command, declared by a decorator of its main function.

@command(__doc__, CONFIG, needed("--data", "store of normalised strips"), threads(), needed("--out", "file to write"))
def main(args: Namespace) -> None:
"""

import argparse
import functools
import os
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from faze.base.cgroup import usable_cores
from faze.base.errors import UserError

Argument = tuple[str, dict[str, Any]]  # arguments of argparse's add_argument

TRACEBACK = "--traceback"
OUR_FAULT = "This is a bug in faze; please report it with the traceback above."
NO_MEMORY = "Out of memory: process less at a time (a smaller batch, more parts), or use a machine with more memory."
NO_THREAD = (
    "The system refused to start another thread or process: lower --threads, or raise its limits (`ulimit -u`, "
    "`ulimit -v`; --pids-limit of a container)."
)


def argument(name: str, **options: Any) -> Argument:
    """Declare an argument with the options of argparse's add_argument."""
    return name, options


def needed(name: str, words: str, **options: Any) -> Argument:
    """Declare a required path argument."""
    return argument(name, type=Path, required=True, help=words, **options)


def threads(words: str = "CPU threads", default: int | None = None) -> Argument:
    """Declare the number of threads, at least 1; its default is `usable_cores` unless `default` is given."""
    return argument("--threads", type=at_least_one, default=default or usable_cores(), help=words)


def in_rows(args: Namespace, *names: str) -> list[tuple]:
    """Return the first values of several arguments, then the second ones, and so on; None for a missing argument.

    Raises:
        UserError: they have different numbers of values.
    """
    columns = [getattr(args, name) for name in names]
    first, count = names[0], len(columns[0])
    for name, column in zip(names, columns, strict=True):
        if column and len(column) != count:
            option = name.replace("_", "-")
            raise UserError(f"--{option} has {len(column)} values, but --{first} has {count}: pass the same number")
    return list(zip(*(column or [None] * count for column in columns), strict=True))


def at_least_one(text: str) -> int:
    """Parse an argument that is a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def port_number(least: int) -> Callable[[str], int]:
    """Return the argparse type of a port number of at least `least`; port 0 means any free port."""

    def read(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= 65535:
            raise argparse.ArgumentTypeError(f"{text!r} is not a port number from {least} to 65535")
        return int(text)

    return read


CONFIG = needed("--config", "configuration of this stage, written by the workflow or by `faze resolve`")
OUTPUT_CACHE = argument(
    "--output-cache",
    type=Path,
    help="folder of records of other runs' outputs, which are copied if they were made from the same inputs",
)
KEEP_EXISTING = argument(
    "--keep-existing",
    action="store_true",
    help="keep each output that an earlier run with this option made from the same inputs",
)
CONFIGFILE = argument(
    "--configfile",
    type=Path,
    nargs="+",
    action="extend",
    default=[],
    help="config files that override the defaults; later files take precedence, as with snakemake",
)


def command(doc: str | None, *arguments: Argument) -> Callable[[Callable[[Namespace], None]], Callable[[], int]]:
    """Make a main function a command that parses its command line and returns an exit code.

    The exit code is 1, after a one-sentence message, if the user can fix the error: a UserError, or a file's OSError.
    Any other error shows its traceback and is reported as a bug in faze; with --traceback, every error shows its
    traceback.

    Args:
        doc: description of the command; line breaks are kept.
        arguments: its arguments, in addition to --traceback.
    """
    # Without abbreviations, so that --traceback is found by its name.
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument(TRACEBACK, action="store_true", help="show the traceback of every error")
    for name, options in arguments:
        parser.add_argument(name, **options)

    def decorate(main: Callable[[Namespace], None]) -> Callable[[], int]:
        if main.__module__ == "__main__":  # would otherwise do nothing, without a message
            sys.exit("start it as `faze STAGE`, or `python -m faze STAGE`")
        return functools.partial(_run, main, parser)

    return decorate


def printable(words: str) -> str:
    """Escape control characters, since names come from foreign files."""
    return "".join(
        letter if letter.isprintable() or letter == "\n" else letter.encode("unicode_escape").decode()
        for letter in words
    )


def _run(main: Callable[[Namespace], None], parser: argparse.ArgumentParser) -> int:
    parser.prog = os.path.basename(sys.argv[0])  # `faze train`: known when it runs
    args = parser.parse_args()
    try:
        _check_own_names(args)
        main(args)
    except (UserError, OSError) as error:
        if args.traceback:
            raise
        named = isinstance(error, OSError) and error.filename and error.strerror
        words = f"{error.filename}: {error.strerror}" if named else str(error)
        if isinstance(error, BlockingIOError):  # EAGAIN
            words += f". {NO_THREAD}"
        print(f"{parser.prog}: {printable(words)}", file=sys.stderr)
        return 1
    except Exception as error:
        error.add_note(_remedy(error))
        raise
    return 0


def _remedy(error: Exception) -> str:
    """Return what to do about an unexpected error: provide what the machine lacks, or report a bug."""
    # torch, which this package does not import, has its own OutOfMemoryError, but reports a CPU's by text.
    if type(error).__name__ in ("MemoryError", "OutOfMemoryError") or "can't allocate memory" in str(error):
        return NO_MEMORY
    no_thread = ("can't start new thread", "Resource temporarily unavailable")
    return NO_THREAD if any(words in str(error) for words in no_thread) else OUR_FAULT


def _check_own_names(args: Namespace) -> None:
    """Refuse an --out path that is also another argument's, or that is given twice: a file would be overwritten."""
    paths = {name: [path for path in _listed(value) if isinstance(path, Path)] for name, value in vars(args).items()}
    listed = paths.pop("out", [])
    outputs = {path.resolve() for path in listed}
    if len(outputs) < len(listed):
        raise UserError("--out contains a path twice: choose different paths")
    for name, others in paths.items():
        for path in others:
            if path.resolve() in outputs:
                words = name.replace("_", "-")
                raise UserError(f"--out {path} is also the path of `{words}`: choose a different path")


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]
