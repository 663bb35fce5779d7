"""One run of the ablation with the faults of a seed: the same command is repeated until it succeeds."""

import random
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from damage import Damage
from faults import FAULTS, Fault, Harm, damage_now, store_away
from world import Command, World

from faze.base.command_line import OUR_FAULT

PATIENCE = 4  # commands that may fail in a row without a new fault
LONGEST_S = 900.0  # of one command
CALM = 3  # faults without a finished job between, after which one is waited for
AFTERWARDS: tuple[Fault, ...] = (damage_now, damage_now, store_away)  # when all is made
LAST = 6  # faults of a run that come when all is made


@dataclass
class Tally:
    """The counts of faults and findings."""

    faults: dict[str, int] = field(default_factory=dict)
    damaged: dict[tuple[str, str], int] = field(default_factory=dict)  # (kind, outcome) -> how often
    failures: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(self.faults.values())

    def add_damage(self, kind: str, outcome: str) -> None:
        self.damaged[kind, outcome] = self.damaged.get((kind, outcome), 0) + 1

    def print(self, say: Callable[[str], None]) -> None:
        say(f"{self.count} faults: " + ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items())))
        for (kind, outcome), count in sorted(self.damaged.items()):
            say(f"  damaged {kind}: {outcome}: {count}")
        say(f"{len(self.failures)} failures")
        for failure in self.failures:
            say(f"  {failure}")


class Play:
    """A run: its world, its random generator, and what is still damaged."""

    def __init__(self, world: World, seed: int, tally: Tally, say: Callable[[str], None]) -> None:
        self.world, self.seed, self.tally, self._say = world, seed, tally, say
        self.draw = random.Random(seed)
        self.damages: list[Damage] = []
        self.number = self.since_job = self.jobs = 0
        self.excuses, self.earlier = False, False  # this command's faults allow it to fail; those of the one before did
        self.timers: list[threading.Timer] = []
        self.removed: list[Path] = []  # as sentences said

    def run(self, faults: int, until_s: float) -> None:
        """Cause a number of faults, or as many as there is time for, and finish the ablation."""
        failed = 0
        command = self.world.start()
        while True:
            left = faults - self.number if time.monotonic() < until_s else 0
            before = self.number
            self._harm(command, left - LAST)
            if not self._ended(command):
                return
            ok = self._judge(command)
            left = faults - self.number if left else 0
            if ok and left <= 0:
                # What is made of a file that was removed is there, so that Snakemake does not miss it by itself.
                missing = [path for path in self.removed if not path.exists()]
                if not missing:
                    return
                command = self.world.start(*missing)
                self.removed.clear()
                continue
            if ok:  # all is made: faults that come afterwards
                self._afterwards()
            failed = 0 if ok or self.number > before else failed + 1
            if failed > PATIENCE:
                self.fail(f"the command fails for the {failed}th time without a new fault: {command.sentences()}")
                return
            command = self.world.start()

    def _ended(self, command: Command) -> bool:
        """Wait for the end of a command and of temporary faults."""
        try:
            command.process.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            self.fail(f"has not ended after {LONGEST_S} s, at {self.world.running()}: {command.text()[-1500:]}")
            return False
        for timer in self.timers:
            timer.join()
        self.timers.clear()
        return True

    def _harm(self, command: Command, left: int) -> None:
        """Cause faults while the command runs."""
        last = 0.0
        while command.runs and left > 0:
            if command.finished() > self.jobs:
                self.jobs, self.since_job = command.finished(), 0
            if self.since_job >= CALM or not self._moment(command, last):
                time.sleep(0.1)
                continue
            left -= self._one(command, self._draw_fault())
            last = time.monotonic()
        self.jobs = 0

    def _moment(self, command: Command, last: float) -> bool:
        """Wait for the moment of the next fault: a change of the running stages, or some time after the last fault."""
        if not self.world.stages():
            return self.draw.random() < 0.002  # Snakemake begins or ends: rarely
        began, wait_s = time.monotonic(), self.draw.uniform(0.2, 7)
        running, by_change = self.world.running(), self.draw.random() < 0.5
        while command.runs and time.monotonic() - began < wait_s:
            if by_change and self.world.running() != running:
                time.sleep(self.draw.uniform(0, 3))
                break
            time.sleep(0.05)
        return command.runs

    def _draw_fault(self) -> Fault:
        return self.draw.choices(list(FAULTS), list(FAULTS.values()))[0]

    def _one(self, command: Command, fault: Fault) -> int:
        """Cause a fault, wait until it is over or the command has ended, and undo it; return 0 if it had no target."""
        running = self.world.running()
        try:
            harm = fault(self.world, command, self.draw)
        except FileNotFoundError:  # what it was to act on went away at this moment
            harm = None
        if harm is None:
            return 0
        self.number += 1
        self.since_job += 1
        self.tally.faults[fault.__name__] = self.tally.faults.get(fault.__name__, 0) + 1
        self._say(f"seed {self.seed}, fault {self.number}, at {running}: {harm.words}")
        if harm.damage:
            harm.damage.seen = (len(self.world.commands), len(self.world.commands[-1].text()))
            self.damages.append(harm.damage)
        self.excuses |= harm.excuses
        if command.runs:
            self._outlast(command, harm)
        else:  # it is for the next command
            self.timers.append(threading.Timer(harm.seconds, harm.undo))
            self.timers[-1].start()
        return 1

    def _outlast(self, command: Command, harm: Harm) -> None:
        began = time.monotonic()
        while command.runs and time.monotonic() - began < harm.seconds:
            time.sleep(0.05)
        harm.undo()

    def settle(self) -> None:
        """Report each damaged file that no message named; restore those that were not replaced.

        Whatever was computed from a damaged file is compared with the reference like everything else.
        """
        for damaged in reversed(self.damages):  # a file may be damaged twice
            outcome = "made again or gone"
            if damaged.stands:
                read = self.world.read_since(damaged.path, damaged.seen)
                outcome = "read and not noticed" if read else "not read again"
                damaged.mend()
            self._say(f"    at the end, {outcome}: {damaged.words}")
            self.tally.add_damage(damaged.kind, outcome)

    def _afterwards(self) -> None:
        """After everything is finished, damage a file, or make MLflow's store unavailable before `track` runs again."""
        fault = self.draw.choice(AFTERWARDS)
        command = self.world.commands[-1]
        if fault is store_away:
            (self.world.results / "tracking/tracked.json").unlink(missing_ok=True)
        self._one(command, fault)

    def _judge(self, command: Command) -> bool:
        """Report how a command ended, follow the remedy in its message, and return whether it succeeded."""
        text, code = command.text(), command.process.returncode
        if OUR_FAULT in text or f"{self.world.checkout.folder}/faze/" in text:
            self.fail(f"a traceback of faze in {command.log}:\n{excerpt(text)}")
        sentences = command.sentences()
        for sentence in sentences:
            self._say(f"    said: {sentence[:400]}")
        named = [damage for damage in self.damages if damage.stands and self._names(sentences, damage)]
        for damaged in named:
            self._say(f"    it is named, so it is removed: {damaged.path.name}")
            self.tally.add_damage(damaged.kind, "named")
            self.removed.append(remove(damaged.path))
        self.damages = [damage for damage in self.damages if damage not in named]
        excused, self.earlier, self.excuses = self.excuses or self.earlier, self.excuses, False
        if code and not (excused or named or self.damages):
            self.fail(f"ends with {code} though nothing was done that excuses it: {command.log}\n{text[-1500:]}")
        self._say("    ended well" if code == 0 else f"    ended with {code}; the same command again")
        return code == 0

    def _names(self, sentences: list[str], damaged: Damage) -> bool:
        return any(str(damaged.path.relative_to(self.world.checkout.folder)) in sentence for sentence in sentences)

    def fail(self, words: str) -> None:
        self._say(f"  FAILURE, seed {self.seed}: {words}")
        self.tally.failures.append(f"seed {self.seed}, after fault {self.number}: {words}")


def remove(path: Path) -> Path:
    """Remove an output (a file or a folder), and return its name."""
    folder = next((above for above in path.parents if above.name in ("evaluation", "walks")), None)
    folder = path.parent if path.parent.parent.name == "inspection" else folder
    if folder is None:
        path.unlink()
        return path
    shutil.rmtree(folder)
    return folder


def excerpt(text: str) -> str:
    """Return the lines from the first traceback on."""
    lines = text.splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith("Traceback") or "/faze/" in line), 0)
    return "\n".join(lines[first : first + 40])
