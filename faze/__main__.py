"""`faze COMMAND ...`: run a stage of the workflow or a user command."""

import importlib
import os
import pkgutil
import signal
import sys

import faze.commands
import faze.stages
from faze.base.allocator_retention import keep_memory
from faze.base.command_line import TRACEBACK
from faze.base.environment import clean_environment
from faze.base.errors import UserError
from faze.base.preemption import INTERRUPTED, PREEMPTED, Preempted, ignore_signals, install_handlers
from faze.config.check import nearest

STAGES = {module.name: f"faze.stages.{module.name}" for module in pkgutil.iter_modules(faze.stages.__path__)}
COMMANDS = {
    module.name.replace("_", "-"): f"faze.commands.{module.name}"
    for module in pkgutil.iter_modules(faze.commands.__path__)
}

PREEMPTIBLE = ("train", "train_workload")  # these resume; others are repeated
KEEP_MEMORY = ("train", "train_workload", "encode", "walk", "redirect")  # these compute networks


def main() -> int:
    """Run the stage or command; return its exit code, after a message if it was asked to stop."""
    _open_standard_streams()
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(f"faze COMMAND --help\n\nstages: {', '.join(STAGES)}\nuser commands: {', '.join(COMMANDS)}")
        return 0 if len(sys.argv) > 1 else 2
    try:
        preemptible = sys.argv[1] in PREEMPTIBLE
        if preemptible:
            install_handlers()  # before anything that takes time
        elif os.getpid() == 1:  # of a container, for which the kernel ignores signals without a handler
            signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        code = _run(sys.argv.pop(1))
        if preemptible and code == 0:
            ignore_signals()
        return code
    except Preempted as asked:
        if str(asked) and os.environ.get("RANK", "0") == "0":  # only the first process prints
            print(f"{sys.argv[0]}: {asked}", file=sys.stderr)
        return PREEMPTED
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # several may arrive, from terminal and parent process
        if os.environ.get("RANK", "0") == "0":
            print(f"{sys.argv[0]}: {INTERRUPTED}", file=sys.stderr)
        return 128 + signal.SIGINT


def _open_standard_streams() -> None:
    """Open /dev/null as each standard stream that is closed; otherwise, a result could get its file descriptor."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if (stream.encoding or "utf-8").lower() != "utf-8":  # such as Latin-1, which has no minus sign
            stream.reconfigure(errors="backslashreplace")


def _run(wanted: str) -> int:
    modules = STAGES | COMMANDS
    try:
        clean_environment()  # before any library reads it
    except UserError as error:
        print(f"faze {wanted}: {error}", file=sys.stderr)
        return 1
    if wanted in KEEP_MEMORY:
        keep_memory()
    if wanted not in modules:
        print(f"faze: no such command: {wanted!r}{nearest(wanted, list(modules))}", file=sys.stderr)
        return 2
    sys.argv[0] = f"faze {wanted}"
    try:
        return importlib.import_module(modules[wanted]).main()
    except BaseExceptionGroup as group:  # from filelock, if a second signal interrupts its cleanup
        error = group.subgroup((Preempted, KeyboardInterrupt)) or group
        while error is not group and isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] == "faze" or TRACEBACK in sys.argv:
            raise
        print(f"{sys.argv[0]}: the package {error.name} is missing: pip install 'faze[workflow]'", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
