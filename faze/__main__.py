"""Entry point of `faze COMMAND ...`. The signature of a module's `main` defines the arguments of its stage or command.

Keyword-only parameters are options; all others are positional. `config: Resolved` is read from --config FILE.
"""

import argparse
import contextlib
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Literal, get_args, get_origin, get_type_hints

import faze.commands
import faze.stages
from faze.base.errors import UserError
from faze.base.machine import LAUNCHER, check_environment, usable_cores
from faze.native.allocator_retention import keep_memory

STAGES = {name: f"faze.stages.{name}" for _, name, _ in iter_modules(faze.stages.__path__)}
COMMANDS = {name.replace("_", "-"): f"faze.commands.{name}" for _, name, _ in iter_modules(faze.commands.__path__)}
# Stages and commands that run networks or decode frames, and would otherwise repeatedly free and request memory.
KEEP_MEMORY = ("train", "encode", "walk", "redirect", "preprocess", "gaze")


def main() -> int:
    """Run a stage or command and return its exit code; for an error that the user can fix, print only its message."""
    names = STAGES | COMMANDS
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help"):
        print(f"faze COMMAND --help\n\nstages: {', '.join(STAGES)}\nuser commands: {', '.join(COMMANDS)}")
        return 0
    if name not in names:
        from faze.config.validation import nearest

        print(f"faze {name}: no such command{nearest(name, names)}", file=sys.stderr)
        return 2
    if name in KEEP_MEMORY:
        keep_memory()
    try:
        check_environment()
        function = importlib.import_module(names[name]).main
        arguments = parse(function, f"faze {name}", sys.argv[2:], is_stage=name in STAGES)
        with written(arguments) if name in STAGES else contextlib.nullcontext():
            function(**arguments)
    except (UserError, OSError) as error:
        named = isinstance(error, OSError) and error.filename and error.strerror
        print(f"faze {name}: {f'{error.filename}: {error.strerror}' if named else error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if str(error.name).startswith("faze"):
            raise
        install = "pip install -e '.[workflow,onnx]' in faze's folder"
        print(f"faze {name}: {error.name} is missing: run {install}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def parse(function: Callable[..., None], prog: str, words: list[str], is_stage: bool = False) -> dict[str, Any]:
    """Parse a command line according to the signature and docstring of a function.

    Supported types are Path, str, int, float, bool (a flag), Resolved and Literal, lists of these types, and `| None`.
    The docstring's `Args:` section contains the help texts. Every stage accepts --threads (default: all usable cores).
    """
    from faze.config.stage_config import Resolved
    from faze.config.validation import read_yaml

    doc = inspect.getdoc(function) or ""
    texts = dict(re.findall(r"^    (\w+): (.*(?:\n     .*)*)", doc.partition("Args:\n")[2], flags=re.MULTILINE))
    about = sys.modules[function.__module__].__doc__
    parser = argparse.ArgumentParser(prog, description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    hints, parameters = get_type_hints(function), inspect.signature(function).parameters
    if is_stage and "threads" not in parameters:
        parser.add_argument("--threads", help=argparse.SUPPRESS)
    for name, parameter in parameters.items():
        kind, options = hints[name], {"help": texts.get(name, "").replace("%", "%%")}
        if type(None) in get_args(kind):
            kind = next(arg for arg in get_args(kind) if arg is not type(None))
        if get_origin(kind) is list:
            [kind], options["nargs"] = get_args(kind), "*" if parameter.default == () else "+"
        if get_origin(kind) is Literal:
            kind, options["choices"] = str, get_args(kind)
        if kind is bool:
            options["action"] = "store_true"
        else:
            options["type"] = Path if kind is Resolved else kind
        if parameter.kind is parameter.KEYWORD_ONLY:
            required = parameter.default is parameter.empty and name != "threads"
            options["default"] = usable_cores() if name == "threads" else parameter.default
            parser.add_argument(f"--{name.replace('_', '-')}", required=required, **options)
        else:
            parser.add_argument(name, **options)
    found = {name: value for name, value in vars(parser.parse_args(words)).items() if name in parameters}
    return {name: Resolved(read_yaml(value)) if hints[name] is Resolved else value for name, value in found.items()}


@contextlib.contextmanager
def written(arguments: dict[str, Any]) -> Iterator[None]:
    """Hold a lock on a stage's first output, which a process orphaned by a killed workflow may still be writing."""
    from filelock import FileLock, Timeout

    outputs = arguments.get("out") or arguments.get("truth") or ()
    first = outputs[0] if isinstance(outputs, list) and outputs else outputs
    if not first or LAUNCHER in os.environ:  # another process of the same training holds the lock
        yield
        return
    first.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(first.with_name(f".{first.name}.lock"))
    try:
        held = lock.acquire(timeout=0.2)
    except Timeout:
        print(f"waiting for another process that is writing {first}", file=sys.stderr, flush=True)
        held = lock.acquire()
    with held:
        yield


if __name__ == "__main__":
    sys.exit(main())
