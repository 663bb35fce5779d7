"""Fresh processes of a tier, one for each rank, that answer requests: lines of JSON on their standard input."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Self

from faze.base import code_hash
from faze.base.errors import UserError
from faze.base.machine import LAUNCHER
from faze.config.parameters import Engine
from faze.config.stage_config import Resolved
from faze.engine import machine
from faze.engine.parallel import rank_environments
from faze.native.allocator_retention import VARIABLE, with_allocator_retention

PIPE = "FAZE_ANSWERS"  # file descriptor to which a process writes its answers; its standard output is for people


class TierProcesses:
    """The processes of a tier, addressed as one; leaving the context ends them."""

    def __init__(self, tier: str, engine: Engine, command: Sequence[str]) -> None:
        """Start `faze COMMAND --tier TIER`."""
        self.tier, self._processes, self._answers = tier, [], []
        common = {LAUNCHER: str(os.getpid())}
        if engine.allocator == "keep":  # which glibc reads when a process starts
            common[VARIABLE] = with_allocator_retention(os.environ.get(VARIABLE, ""))
        for rank in rank_environments(engine):
            ours, theirs = os.pipe()
            variables = os.environ | common | rank | {PIPE: str(theirs)}
            words = [sys.executable, "-m", "faze", *command, "--tier", tier]
            self._processes.append(subprocess.Popen(words, stdin=subprocess.PIPE, env=variables, pass_fds=[theirs]))
            os.close(theirs)
            self._answers.append(os.fdopen(ours))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        for process in self._processes:
            process.stdin.close()
            if error:
                process.kill()
            process.wait()

    def ask(self, request: str, *arguments: object) -> list[Any]:
        """Send all processes the same request; return their answers in the order of their ranks."""
        for process in self._processes:
            process.stdin.write(json.dumps([request, *arguments]).encode() + b"\n")
            process.stdin.flush()
        return self.receive()

    def receive(self) -> list[Any]:
        """Return the next answer of every process.

        Raises:
            UserError: a process has ended instead.
        """
        found: dict[Any, Any] = {}
        while waiting := [pipe for pipe in self._answers if pipe not in found]:
            for pipe in wait(waiting):  # one that ended is noticed, though others may wait for it
                if not (line := pipe.readline()):
                    raise UserError(f"{self.tier}: its process ended early; see its output above")
                found[pipe] = json.loads(line)
        return [found[pipe] for pipe in self._answers]


def answer(value: object) -> None:
    """Send a value to the process that started this one."""
    os.write(int(os.environ[PIPE]), json.dumps(value).encode() + b"\n")


def identify(config: Resolved, data: Path | None) -> str:
    """Hash what the results of a stage depend on: code, configuration, data and machine."""
    module = config.workload.partition(":")[0]
    code = [*code_hash.sources(f"faze.stages.{config.stage}"), *code_hash.sources(module, Path.cwd())]
    stored = [data.stat().st_size, data.stat().st_mtime_ns] if data else []
    facts = {name: fact for name, fact in machine.describe().items() if name != "commit"}
    return hashlib.sha256(repr([config.hash, code, stored, facts]).encode()).hexdigest()[:12]
