"""Fresh processes of a tier, one for each rank, that answer requests: lines of JSON on their standard input."""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Self

from faze.base import code_hash
from faze.base.errors import UserError
from faze.base.machine import LAUNCHER
from faze.config.parameters import Engine
from faze.config.stage_config import Resolved
from faze.engine import machine
from faze.engine.parallel import World, end_with_parent, join, rank_environments, share
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
            UserError: a process failed instead.
        """
        found: dict[Any, Any] = {}
        while waiting := [pipe for pipe in self._answers if pipe not in found]:
            for pipe in wait(waiting):  # one that ended is noticed, though others may wait for it
                if not (line := pipe.readline()):
                    raise UserError(f"{self.tier}: its process ended early; see its output above")
                found[pipe] = json.loads(line)
                if "error" in found[pipe]:
                    raise UserError(f"{self.tier}: {found[pipe]['error']}")
        return [found[pipe] for pipe in self._answers]


@contextlib.contextmanager
def taking_part(engine: Engine, threads: int) -> Iterator[World]:
    """Join a tier's processes, which end with the process that started them; answer with the error of a failure."""
    end_with_parent()
    try:
        with join(engine, share(threads, engine)) as world:
            yield world
    except (UserError, RuntimeError, MemoryError) as error:
        answer({"error": first_line(error)})
        raise


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().split("\n")[0] or type(error).__name__


def answer(value: object) -> None:
    """Send a value to the process that started this one."""
    os.write(int(os.environ[PIPE]), json.dumps(value).encode() + b"\n")


def number_format(switches: Sequence[Mapping[str, str]]) -> str:
    """Return the number format of matrix products under a tier's switches: fp32, tf32, fp16 or bf16."""
    active = {switch["switch"]: switch["wanted"] for switch in switches if not switch["reason"]}
    precision = active.get("precision", "fp32")
    return "tf32" if precision == "fp32" and active.get("tf32") == "true" else precision


def identify(config: Resolved, data: Path | None) -> str:
    """Hash what the results of a stage depend on: code, configuration, data and machine."""
    module = config.workload.partition(":")[0]
    code = [*code_hash.sources(f"faze.stages.{config.stage}"), *code_hash.sources(module, Path.cwd())]
    stored = [data.stat().st_size, data.stat().st_mtime_ns] if data else []
    facts = {name: fact for name, fact in machine.describe().items() if name != "commit"}
    return hashlib.sha256(repr([config.hash, code, stored, facts]).encode()).hexdigest()[:12]
