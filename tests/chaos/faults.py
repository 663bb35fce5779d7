"""The faults. Each takes the world, the running command and a random generator, and describes what it did.

A fault with no target returns nothing and is not counted.
"""

import contextlib
import os
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from damage import Damage, damage_one, truncated
from processes import send, words_of
from world import Command, World, mounted


@dataclass
class Harm:
    """The effect of a fault, and how to undo it."""

    words: str
    seconds: float = 0.0  # that it lasts, unless the command ends before
    undo: Callable[[], None] = lambda: None
    excuses: bool = True  # the command may fail after it, with a sentence
    damage: Damage | None = None


Fault = Callable[[World, Command, Random], Harm | None]


def short(process: int) -> str:
    words = words_of(process)
    names = [Path(word).name for word in words[:1]] + [word for word in words[1:5] if not word.startswith("-")]
    return f"process {process} ({' '.join(' '.join(names).split())[:60]})"


def kill_one(world: World, command: Command, draw: Random) -> Harm | None:
    """Kill any process except Snakemake itself."""
    victims = sorted(world.processes() - {command.process.pid})
    if not victims:
        return None
    victim = draw.choice(victims)
    words = f"kill -9 of {short(victim)}"
    send([victim], signal.SIGKILL)
    return Harm(words)


def kill_stage(world: World, command: Command, draw: Random) -> Harm | None:
    """Kill a process that runs a stage."""
    victims = sorted(world.stages())
    if not victims:
        return None
    victim = draw.choice(victims)
    words = f"kill -9 of {short(victim)}"
    send([victim], signal.SIGKILL)
    return Harm(words)


def kill_job(world: World, command: Command, draw: Random) -> Harm | None:
    """Kill all processes of one job at once."""
    stages = world.stages()
    if not stages:
        return None
    victim = draw.choice(sorted(stages))
    processes = world.job_of(victim) - {command.process.pid}
    send(processes, signal.SIGKILL)
    return Harm(f"kill -9 of the {len(processes)} processes of the job {stages[victim]}")


def kill_group(world: World, command: Command, draw: Random) -> Harm | None:
    """Kill Snakemake's process group, as closing the terminal or reaching a cluster's time limit does."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(command.process.pid, signal.SIGKILL)
    return Harm("kill -9 of Snakemake's process group")


def kill_snakemake(world: World, command: Command, draw: Random) -> Harm | None:
    """Kill Snakemake alone: its jobs become orphans, which the next command must handle."""
    command.process.kill()
    return Harm("kill -9 of Snakemake alone")


def interrupt(world: World, command: Command, draw: Random) -> Harm | None:
    """Send Ctrl-C."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(command.process.pid, signal.SIGINT)
    return Harm("Ctrl-C")


def stop(world: World, command: Command, draw: Random) -> Harm | None:
    """Stop one process, one job or everything for some seconds."""
    everything = world.processes()
    victims = sorted(everything)
    if not victims:
        return None
    victim, seconds = draw.choice(victims), draw.uniform(1, 6)
    whom = draw.choice(["one", "job", "all"])
    held = {"one": {victim}, "job": world.job_of(victim), "all": everything}[whom]
    words = {"one": short(victim), "job": f"{len(held)} processes of a job", "all": "every process"}[whom]
    send(held, signal.SIGSTOP)
    return Harm(f"SIGSTOP of {words} for {seconds:.1f} s", seconds, lambda: send(held, signal.SIGCONT), excuses=False)


def disk_full(world: World, command: Command, draw: Random) -> Harm | None:
    """Fill the disk that contains the results, except for a few pages."""
    if not world.has_disk:
        return None
    pages, seconds = draw.choice([0, 0, 1, 10, 100, 1000]), draw.uniform(1, 8)
    filler, status = world.root / "filler", os.statvfs(world.root)
    room = max(status.f_bavail - pages, 0) * status.f_frsize
    with contextlib.suppress(OSError), filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, room)
    return Harm(f"disk full but for {pages} pages, {seconds:.1f} s", seconds, lambda: filler.unlink(missing_ok=True))


def read_only(world: World, command: Command, draw: Random) -> Harm | None:
    """Make one folder of the results read-only. Root can write anywhere, so it mounts the folder on itself."""
    folders = sorted(path for path in [world.root, *world.results.rglob("*")] if path.is_dir() and kept(path, world))
    if not folders:
        return None
    folder, seconds = draw.choice(folders), draw.uniform(1, 8)
    words = f"{folder.relative_to(world.checkout.folder)} is read-only for {seconds:.1f} s"
    if os.geteuid():
        mode = folder.stat().st_mode
        folder.chmod(0o555)
        return Harm(words, seconds, lambda: folder.chmod(mode))
    if not mounted("--bind", folder, folder) or not mounted("-o", "remount,bind,ro", folder):
        return None

    def undo() -> None:
        subprocess.run(["umount", "--lazy", folder], check=True)

    return Harm(words, seconds, undo)


def kept(folder: Path, world: World) -> bool:
    """Return whether a folder stays in place, so that something can be mounted on it."""
    parts = folder.relative_to(world.root).parts
    return not any(part.startswith(".") or part.endswith(".work") for part in parts) and len(parts) <= 4


def clock_jump(world: World, command: Command, draw: Random) -> Harm | None:
    """Make the clock jump: a preloaded library shifts it for processes, and the times of existing files are shifted."""
    by_s = draw.choice([-10, -5, -2, 5, 3600, 86400])
    world.set_clock(world.off_s + by_s)
    for path in [*world.root.rglob("*"), *(world.checkout.folder / ".snakemake").rglob("*")]:
        with contextlib.suppress(OSError):
            status = path.stat()
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - by_s * 10**9))
    return Harm(f"the clock jumps by {by_s:+d} s", excuses=by_s < 0)


def damage(world: World, command: Command, draw: Random) -> Harm | None:
    """Truncate a finished file, or flip a bit in it; its modification time is either kept or updated."""
    done = damage_one(world.results, draw)
    return done and Harm(done.words, damage=done)


def damage_now(world: World, command: Command, draw: Random) -> Harm | None:
    """Damage a finished file and update its modification time, so that its readers run again."""
    done = damage_one(world.results, draw, may_keep_time=False)
    return done and Harm(done.words, damage=done)


def second_snakemake(world: World, command: Command, draw: Random) -> Harm | None:
    """Run the same command a second time while the first one runs, and kill it later if it has not ended."""
    other, seconds = world.start(), draw.choice([draw.uniform(3, 12), 60])

    def undo() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(other.process.pid, signal.SIGKILL)
        other.process.wait()

    return Harm(f"a second Snakemake, killed after {seconds:.0f} s", seconds, undo)


def store_away(world: World, command: Command, draw: Random) -> Harm | None:
    """Make MLflow's store unavailable: the database is deleted, locked or damaged."""
    database = world.root / "mlflow.db"
    if not database.exists():
        return None
    how, seconds = draw.choice(["gone", "held", "torn"]), draw.uniform(2, 8)
    if how == "gone":
        database.unlink()
        return Harm("MLflow's database is removed")
    if how == "torn":
        before = database.read_bytes()
        after, words = truncated(before, draw)
        database.write_bytes(after)
        return Harm(f"MLflow's database {words}", damage=Damage(database, "mlflow.db", words, before, after))
    holder = sqlite3.connect(database, check_same_thread=False, isolation_level=None)
    with contextlib.suppress(sqlite3.OperationalError):
        holder.execute("BEGIN EXCLUSIVE")
    return Harm(f"MLflow's database is held by somebody else for {seconds:.1f} s", seconds, holder.close)


FAULTS: dict[Fault, int] = {  # and how often, in parts
    kill_one: 3,
    kill_stage: 3,
    kill_job: 2,
    kill_group: 3,
    kill_snakemake: 3,
    interrupt: 1,
    stop: 3,
    disk_full: 4,
    read_only: 3,
    clock_jump: 2,
    damage: 8,
    second_snakemake: 2,
    store_away: 1,
}
