"""`faze COMMAND ...`: every stage of the workflow, and the commands for people beside it."""

import importlib
import sys

from faze.config.check import nearest
from faze.config.parameters import STAGES

PEOPLE = {
    "calibrate": "faze.commands.calibrate",
    "export": "faze.commands.export",
    "import-checkpoint": "faze.commands.import_checkpoint",
    "inspect": "faze.stages.inspect",
    "landmarks": "faze.stages.landmarks",
    "largest-batch": "faze.commands.largest_batch",
    "ledger": "faze.commands.ledger",
    "profile": "faze.commands.profile",
    "resolve": "faze.commands.resolve",
    "ui": "faze.commands.ui",
}


def main() -> int:
    """Hand the arguments to the module of the command; its errors of use become one sentence."""
    commands = {stage: f"faze.stages.{stage}" for stage in STAGES} | PEOPLE
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(f"faze COMMAND --help\n\nstages: {', '.join(STAGES)}\nfor people: {', '.join(PEOPLE)}")
        return 0 if len(sys.argv) > 1 else 2
    command = sys.argv.pop(1)
    if command not in commands:
        print(f"faze: no command {command!r}{nearest(command, list(commands))}", file=sys.stderr)
        return 2
    sys.argv[0] = f"faze {command}"
    try:
        module = importlib.import_module(commands[command])
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] == "faze":
            raise
        print(f"{sys.argv[0]} needs the package {error.name}: pip install 'faze[workflow]'", file=sys.stderr)
        return 1
    return module.main()


if __name__ == "__main__":
    sys.exit(main())
