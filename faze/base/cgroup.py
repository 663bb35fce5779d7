"""Limits of the container that this process runs in (Linux control groups), and how often its CPU quota stopped it.

A limit holds for a group and for all groups within it, so the strictest limit from this process's group upwards counts.
A missing or unreadable file sets no limit. Both versions of control groups are read. Standard library only.
"""

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PROCESS = Path("/proc/self")


@dataclass(frozen=True)
class Throttling:
    """How often the CPU quota of a group has stopped it; counted by the kernel in periods of usually 100 ms."""

    periods: int  # in which the group ran
    throttled_periods: int  # in which it ran until the quota was used up
    throttled_s: float  # summed over processors

    def since(self, before: "Throttling") -> "Throttling":
        """Return the difference to an earlier count."""
        return Throttling(
            self.periods - before.periods,
            self.throttled_periods - before.throttled_periods,
            self.throttled_s - before.throttled_s,
        )


def visible_cores() -> int:
    """Return the number of cores on which this process may run."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def usable_cores() -> int:
    """Return how many cores this process may keep busy: those that it sees, within its CPU quota; at least 1."""
    return max(1, int(min(visible_cores(), cpu_quota() or visible_cores())))


def cpu_quota() -> float | None:
    """Return the CPU quota in cores, such as 1.5; None if there is none below the number of visible cores."""
    quotas = [quota for group in _groups("cpu") if (quota := _quota_of(group)) is not None]
    return min(quotas) if quotas and min(quotas) < visible_cores() else None


def describe_quota() -> str:
    """Describe the CPU quota, such as "1 of 2 cores"; return "" if there is none."""
    return f"{quota:g} of {visible_cores()} cores" if (quota := cpu_quota()) else ""


def quota_warning(cores: int) -> str:
    """Return a warning if the user asked for more cores than the CPU quota allows, else ""."""
    if not (quota := describe_quota()) or cores <= (usable := usable_cores()):
        return ""
    return f"--cores {cores} exceeds the CPU quota ({quota}): jobs will be throttled; pass --cores {usable}"


def memory_bytes() -> int:
    """Return the memory that this process may use: the machine's, within the limit of its container."""
    names = ("memory.max", "memory.limit_in_bytes")
    limits = [int(text) for group in _groups("memory") for name in names if (text := _text(group / name)).isdecimal()]
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *limits])


def throttling() -> dict[str, Throttling]:
    """Return the counts so far, by group; empty without control groups."""
    found = {}
    for group in _groups("cpu"):
        counts = dict(line.split()[:2] for line in _text(group / "cpu.stat").splitlines() if " " in line)
        with contextlib.suppress(KeyError, ValueError):
            version_1 = "throttled_time" in counts
            stopped_s = int(counts["throttled_time"]) / 1e9 if version_1 else int(counts["throttled_usec"]) / 1e6
            found[str(group)] = Throttling(int(counts["nr_periods"]), int(counts["nr_throttled"]), stopped_s)
    return found


def throttled_since(before: Mapping[str, Throttling]) -> Throttling | None:
    """Return how often this process was stopped since earlier counts, by the group that was stopped most often.

    Return None if that is unknown.
    """
    changes = [now.since(before[group]) for group, now in throttling().items() if group in before]
    return max(changes, key=lambda change: change.throttled_periods, default=None)


def _quota_of(group: Path) -> float | None:
    words = _text(group / "cpu.max").split() or [
        _text(group / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")
    ]
    if len(words) == 2 and all(word.isdecimal() and int(word) for word in words):  # else "max" or -1: no quota
        return int(words[0]) / int(words[1])
    return None


def _groups(controller: str) -> list[Path]:
    """Return the folder of this process's group for a controller, and of each group around it that is visible."""
    paths = {}
    for line in _text(PROCESS / "cgroup").splitlines():  # 4:cpu,cpuacct:/a/b, or 0::/a/b in version 2
        controllers, _, path = line.partition(":")[2].partition(":")
        paths.update(dict.fromkeys(controllers.split(","), path))
    name = controller if controller in paths else ""  # version 2 has no names
    found: list[Path] = []
    for line in _text(PROCESS / "mountinfo").splitlines():
        mount, _, system = line.partition(" - ")
        kind, _, options = (*system.split(" "), "", "")[:3]
        of_controller = kind == "cgroup" and name in options.split(",") if name else kind == "cgroup2"
        places = [_unescaped(word) for word in mount.split()[3:5]]
        if of_controller and name in paths and len(places) == 2:
            root, top = places
            below = os.path.relpath(paths[name], root)
            own = Path(top) if below.startswith("..") else Path(top, below)  # a container may see the host's path
            found += [group for group in (own, *own.parents) if group.is_relative_to(top)]
    return found


def _unescaped(word: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), word)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
