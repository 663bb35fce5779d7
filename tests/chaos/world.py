"""A checkout with its results on a separate small disk, and the workflow that runs in it.

All processes that it starts have the variable MARK in their environment, so that remaining ones can be found.
"""

import contextlib
import fcntl
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from processes import family, kill, marked, words_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow"))

from checkout import Checkout, environment  # noqa: E402

CONFIG, NAME = "config/smoke.yaml", "smoke"
MARK = "FAZE_CHAOS"
DISK_MIB = 1024  # several times what the smoke ablation writes
STAGES = {path.stem for path in (Path(__file__).resolve().parents[2] / "faze/stages").glob("[a-z]*.py")}
JOB = re.compile(r"^(?:local)?rule (\w+):\n((?:    .*\n)+)", re.MULTILINE)


@dataclass
class Command:
    """One call of Snakemake, in its own process group, and its output."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    def text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def jobs(self) -> list[tuple[str, str]]:
        """List the rule and description of each job that has started."""
        return JOB.findall(self.text())

    def finished(self) -> int:
        """Count the finished jobs, except for those that write config files."""
        return len(re.findall(r"^Finished jobid: \d+ \(Rule: ", self.text(), re.MULTILINE))

    def sentences(self) -> list[str]:
        """List the error messages of stages or, if there are none, of Snakemake, each once."""
        text = self.text()
        told = re.findall(r"^faze \w+: .*", text, re.MULTILINE)
        told = told or re.findall(r"^Error in rule \w+", text, re.MULTILINE)
        told = told or re.findall(r"^\w*(?:Error|Exception)\b.*(?:\n.+)?", text, re.MULTILINE)
        return list(dict.fromkeys(told))


class World:
    """The checkout, its disk, its clock and its processes."""

    def __init__(self, folder: Path, disk: bool = True) -> None:
        """Copy the project; if `disk`, mount a separate small disk at the results folder."""
        self.folder, self.mark = folder, uuid.uuid4().hex
        self.checkout = Checkout(folder / "checkout", CONFIG)
        self.root = self.checkout.folder / "results"
        self.results = self.root / NAME
        self.temporary, self.clock = folder / "tmp", folder / "clock"
        self.temporary.mkdir()
        self.root.mkdir()
        self.set_clock(0)
        self.clock_library = folder / "clock.so"
        source = Path(__file__).with_name("clock.c")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", self.clock_library, source, "-ldl"], check=True)
        self.has_disk = disk and mounted("-t", "tmpfs", "-o", f"size={DISK_MIB}m", "chaos", self.root)
        self.commands: list[Command] = []

    def environment(self) -> dict[str, str]:
        own = {
            MARK: self.mark,
            "FAZE_MACHINE_LOCK": str(self.folder / "machine.lock"),
            "FAZE_OUTPUT_CACHE": "",
            "OMP_WAIT_POLICY": "passive",  # as for the tests: threads sleep while they wait
            "TMPDIR": str(self.temporary),
        }
        own |= {"LD_PRELOAD": str(self.clock_library), "CHAOS_CLOCK": str(self.clock)}
        return environment() | own

    def set_clock(self, off_s: int) -> None:
        """Shift the clock of all processes; files keep the kernel's times."""
        self.off_s = off_s
        with self.clock.open("r+b" if self.clock.exists() else "wb") as file:  # it is mapped: never truncated
            file.write(struct.pack("q", off_s))

    def start(self, *files: Path) -> Command:
        """Start the command, which is always the same except for further target files, if any."""
        log = self.folder / f"command{len(self.commands):03d}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                self.checkout.command(
                    "--cores", "2", "ablation", *(str(f.relative_to(self.checkout.folder)) for f in files)
                ),
                cwd=self.checkout.folder,
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=self.environment(),
            )
        self.commands.append(Command(process, log))
        return self.commands[-1]

    def processes(self) -> set[int]:
        return marked(MARK, self.mark)

    def stages(self) -> dict[int, str]:
        """Map each process that runs a stage to the stage and its run."""
        found = {}
        for process in self.processes():
            words = words_of(process)
            if "faze" in words and (stage := next((word for word in words if word in STAGES), "")):
                tier = next((part.split("/")[2] for part in words if part.endswith("/train.yaml")), "")
                found[process] = f"{stage} {tier}".strip()
        return found

    def running(self) -> str:
        """Return the names of the running stages."""
        return "+".join(sorted(set(self.stages().values()))) or "no stage"

    def job_of(self, process: int) -> set[int]:
        """List all processes of a stage's job: the one that Snakemake started, and all its children."""
        snakemakes, own = {command.process.pid for command in self.commands}, self.processes()
        parent = process
        while (above := parent_of(parent)) in own and above not in snakemakes:  # never up to who does the harm
            parent = above
        return family(parent)

    def read_since(self, path: Path, seen: tuple[int, int]) -> bool:
        """Return whether a job that reads the file, or a folder that contains it, has started since the damage."""
        given, said = seen
        relative = path.relative_to(self.checkout.folder)
        names = {str(part) for part in [relative, *relative.parents]}
        texts = [command.text() for command in self.commands[max(given - 1, 0) :]]
        begun = JOB.findall("".join([texts[0][said:], *texts[1:]]))
        inputs = [line for _, about in begun for line in about.splitlines() if line.startswith("    input: ")]
        return any(names & set(line.removeprefix("    input: ").split(", ")) for line in inputs)

    def end(self) -> None:
        """End every process, and unmount the disk."""
        kill(self.processes())
        for command in self.commands:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(command.process.pid, signal.SIGKILL)
            command.process.wait()
        if self.has_disk:
            subprocess.run(["umount", "--lazy", self.root], check=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def left(self) -> Iterator[str]:
        """Yield everything that must not remain at the end: processes, locks, incomplete files and work folders."""
        began = time.monotonic()
        while (processes := self.processes()) and time.monotonic() - began < 20:
            time.sleep(0.2)
        for process in processes:
            yield f"process {process} is left: {' '.join(words_of(process))[:120]}"
        for path in [*self.root.rglob("*"), self.folder / "machine.lock"]:
            name = path.name
            if name.endswith(".lock"):
                if held(path):
                    yield f"{path.relative_to(self.folder)} is held"
            elif name.endswith(".work") or (name.startswith(".") and not name.endswith((".inputs", "timestamp"))):
                yield f"{path.relative_to(self.folder)} is left"


def mounted(*arguments: object) -> bool:
    """Try to mount something, and return whether it worked; this needs the permission and the program."""
    mount = shutil.which("mount")
    return bool(mount) and subprocess.run([mount, *map(str, arguments)], capture_output=True).returncode == 0


def parent_of(process: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def held(path: Path) -> bool:
    """Return whether some process holds the kernel's lock on a file."""
    if not path.exists():
        return False
    with path.open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
