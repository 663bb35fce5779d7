"""Queries and actions on the cluster that `make cluster` has started."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from cluster import CPUS, MEMORY_MB, start_node


def until(condition: Callable[[], object], what: str, seconds: float = 600) -> None:
    """Wait for a condition on the cluster."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"{what} did not happen in {seconds} s:\n{ask('squeue')}"
        time.sleep(0.3)


def ask(*command: str) -> str:
    """Return the output of a SLURM command."""
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


class Cluster:
    """Three nodes, one of which can be killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def facts(self, job: str) -> dict[str, str]:
        """Return SLURM's record of a job, which SLURM deletes after some minutes."""
        return dict(word.partition("=")[::2] for word in ask("scontrol", "show", "job", "-o", job).split())

    def running(self) -> list[str]:
        return ask("squeue", "-h", "-t", "running", "-o", "%i").split()

    def submit(self, script: Path, *options: str) -> str:
        return ask("sbatch", "--parsable", *options, str(script)).strip()

    def submit_urgent(self, folder: Path, node: str) -> str:
        """Submit a short job to the higher partition; the job takes a whole node from a running job."""
        script = folder / "urgent.sh"
        script.write_text("#!/bin/sh\nsleep 1\n")
        where = ("--partition=urgent", f"--nodelist={node}", "--exclusive", "--output=/dev/null")
        return self.submit(script, f"--chdir={folder}", *where)

    def ends(self, job: str, *, within: float = 600) -> str:
        """Wait for the end of a job and return its state."""
        until(lambda: "EndTime" in self.facts(job) and self.state(job) in ENDED, f"the end of job {job}", within)
        return self.state(job)

    def state(self, job: str) -> str:
        return self.facts(job)["JobState"]

    def give_minutes(self, job: str, minutes: int) -> None:
        """Change a job's time limit to some minutes from now."""
        *days, clock = self.facts(job)["RunTime"].split("-")
        hours, past, _ = map(int, clock.split(":"))
        total = 24 * 60 * int(days[0] if days else 0) + 60 * hours + past + minutes
        ask("scontrol", "update", f"JobId={job}", f"TimeLimit={total}")

    @contextlib.contextmanager
    def dead(self, node: str) -> Iterator[None]:
        """Kill everything on a node at once, as a power failure would; restart the node when the block ends."""
        send(processes_of(node), signal.SIGKILL)
        try:
            yield
        finally:
            start_node(node)
            until(lambda: ask("sinfo", "-h", "-n", node, "-p", "main", "-o", "%T").strip() in UP, f"{node}'s return")


ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"}
UP = {"idle", "mixed", "allocated"}


def processes_of(node: str) -> list[int]:
    """List all processes in a node's hostname namespace."""
    found, own = [], None
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environment = (entry / "environ").read_bytes()
            space = os.readlink(entry / "ns/uts")
            if f"-N\0{node}\0".encode() in (entry / "cmdline").read_bytes():
                own = space
            found.append((int(entry.name), space, environment))
    assert own, f"{node} has no slurmd"
    return [process for process, space, _ in found if space == own]


@contextlib.contextmanager
def held(node: str) -> Iterator[list[int]]:
    """Suspend the training processes on a node until SLURM resumes them or the block ends."""
    stages = [process for process in processes_of(node) if is_stage(process)]
    send(stages, signal.SIGSTOP)
    try:
        yield stages
    finally:
        send(stages, signal.SIGCONT)


def send(processes: list[int], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def is_stage(process: int) -> bool:
    """Return whether a process belongs to a training run: the only process, one of several, or their launcher."""
    with contextlib.suppress(OSError):
        program, *words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        return b"python" in program and words[:3] in ([b"-m", b"faze", b"train"], [b"-u", b"-m", b"faze"])
    return False


def is_held(processes: list[int]) -> bool:
    """Return whether the training processes are still suspended; SLURM resumes them when it sends a signal."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{processes[0]}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False


def fitted(profile: str) -> str:
    """Return the shipped profile with its requests reduced to the size of these nodes, as its page advises."""
    profile = re.sub(r"^(  \w+): 16$", rf"\1: {CPUS}", profile, flags=re.MULTILINE)
    profile = re.sub(r"^(  \w+): 4$", rf"\1: {CPUS}", profile, flags=re.MULTILINE)
    profile = profile.replace("mem_mb: 8000", "mem_mb: 2000").replace("mem_mb: 64000", f"mem_mb: {MEMORY_MB}")
    return profile + QUICK


QUICK = """
slurm-init-seconds-before-status-checks: 2
seconds-between-status-checks: 3
slurm-keep-successful-logs: true
"""
