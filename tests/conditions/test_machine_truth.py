"""faze uses, prints and records what its container may use, not what the machine has."""

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch

from faze.base import cgroup
from faze.base.cgroup import Throttling
from faze.base.command_line import threads
from faze.data import pairs
from faze.engine import machine
from faze.engine.parallel import World
from faze.evaluation.wording import throttled
from faze.report import formats
from faze.training.worker_count import cores_of

GIB = 2**30
Container = Callable[..., Path]


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Container:
    """Return container(version, path, {"file in the group": text}, ...) -> the folder of the groups, on four cores."""

    def build(version: int, path: str, files: Mapping[str, str], root: str = "/") -> Path:
        top = tmp_path / "control groups"  # the kernel escapes the space
        for name, text in files.items():
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            (top / name).write_text(text)
        (tmp_path / "cgroup").write_text(
            f"0::{path}\n" if version == 2 else f"7:cpu,cpuacct:{path}\n3:memory:{path}\n0::/\n"
        )
        where = str(top).replace(" ", r"\040")
        lines = ["22 1 0:5 / /proc rw shared:3 - proc proc rw"]
        if version == 2:
            lines.append(f"31 23 0:28 {root} {where} rw shared:4 - cgroup2  rw")
        else:
            lines.append(f"31 23 0:28 {root} {where} rw - cgroup cgroup rw,cpu,cpuacct")
            lines.append(f"32 23 0:29 {root} {where} rw - cgroup cgroup rw,memory")
        (tmp_path / "mountinfo").write_text("\n".join(lines) + "\n")
        monkeypatch.setattr(cgroup, "PROCESS", tmp_path)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(4))
        return top

    return build


@pytest.mark.parametrize(
    ("version", "path", "root", "files", "quota", "cores"),
    [
        (2, "/", "/", {"cpu.max": "100000 100000\n"}, 1.0, 1),  # in a container with its own namespace
        (2, "/pod/run", "/", {"pod/cpu.max": "250000 100000\n", "pod/run/cpu.max": "max 100000\n"}, 2.5, 2),
        (2, "/pod/run", "/", {"pod/cpu.max": "300000 100000", "pod/run/cpu.max": "50000 100000"}, 0.5, 1),
        (2, "/docker/a1", "/docker/a1", {"cpu.max": "200000 100000"}, 2.0, 2),
        (2, "/host/only", "/docker/a1", {"cpu.max": "200000 100000"}, 2.0, 2),  # not below the mount
        (2, "/", "/", {"cpu.max": "max 100000\n"}, None, 4),
        (2, "/", "/", {"cpu.max": "800000 100000\n"}, None, 4),  # more than there are cores
        (2, "/", "/", {"cpu.max": "damaged"}, None, 4),
        (1, "/docker/a1", "/", {"docker/cpu.cfs_quota_us": "150000", "docker/cpu.cfs_period_us": "100000"}, 1.5, 1),
        (1, "/", "/", {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}, None, 4),
        (1, "/", "/", {}, None, 4),
    ],
)  # fmt: skip
def test_the_cpu_quota_limits_the_cores(container, version, path, root, files, quota, cores) -> None:
    """Regression: in a container with the time of one core, faze used and printed every core of the machine."""
    container(version, path, files, root)
    assert cgroup.cpu_quota() == quota and cgroup.usable_cores() == cores
    assert threads()[1]["default"] == cores
    assert bool(cgroup.quota_warning(4)) == (cores < 4) and not cgroup.quota_warning(cores)
    assert cores_of(World(0, 1, torch.device("cpu"))) == cores
    facts = machine.describe()
    assert facts["cores"] == str(cores)
    assert facts["cpu_quota"] == (f"{quota:g} of 4 cores" if quota else "")
    assert (("CPU quota", facts["cpu_quota"]) in formats.facts(facts)) == bool(quota)


@pytest.mark.parametrize("broken", ["absent", "empty", "nonsense", "unreadable"])
def test_without_readable_control_groups_nothing_is_known_and_nothing_fails(container, broken, tmp_path) -> None:
    container(2, "/", {"cpu.max": "100000 100000"})
    for name in ("cgroup", "mountinfo"):
        (tmp_path / name).unlink()
        if broken == "unreadable":
            (tmp_path / name).mkdir()
        elif broken != "absent":
            (tmp_path / name).write_bytes(b"\xff:\n - \n1 2 - cgroup2\n::\n" if broken == "nonsense" else b"")
    assert cgroup.cpu_quota() is None and cgroup.usable_cores() == 4
    assert cgroup.throttling() == {} and cgroup.throttled_since({}) is None
    assert cgroup.memory_bytes() > 0 and machine.describe()["cpu_quota"] == ""


@pytest.mark.parametrize(
    ("version", "file", "text", "gib"),
    [
        (2, "memory.max", str(GIB // 4), 0.25),
        (2, "memory.max", "max", None),
        (1, "memory.limit_in_bytes", str(GIB // 4), 0.25),
        (1, "memory.limit_in_bytes", "9223372036854771712", None),  # no limit
    ],
)
def test_the_memory_limit_counts(container, monkeypatch, run_stage, capsys, version, file, text, gib) -> None:
    """Regression: strips were cached up to data.memory_gib, and the machine's memory was recorded."""
    container(version, "/pod/run", {f"pod/{file}": text})
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    assert cgroup.memory_bytes() / GIB == (gib or physical)
    assert machine.describe()["memory_gib"] == f"{gib or physical:.1f}"
    monkeypatch.setattr(pairs, "cache", lambda people: "cached")

    class Strips:
        nbytes = int(0.1 * GIB)

    expected = 4 if gib is None else 1  # of half the memory
    assert pairs.cache_what_fits([Strips()] * 4, 1.0).count("cached") == expected
    assert pairs.cache_what_fits([Strips()] * 4, 1.0, 4).count("cached") == (0 if gib else 2)
    if gib:
        assert run_stage("largest-batch", None, "--tier", "baseline", "--memory-gib", 2) == 1
        error = capsys.readouterr().err
        assert "--memory-gib 2" in error and "0.2 GiB" in error and error.count("\n") == 1


@pytest.mark.parametrize("version", [1, 2])
def test_throttling_is_counted_in_the_group_that_is_stopped_most(container, version) -> None:
    time = {1: "throttled_time {}000000000", 2: "throttled_usec {}000000"}[version]
    text = f"usage_usec 9\nnr_periods {{}}\nnr_throttled {{}}\n{time}\n"
    own, around = "pod/run/cpu.stat", "pod/cpu.stat"
    top = container(version, "/pod/run", {own: text.format(900, 800, 90), around: text.format(10, 7, 2)})
    before = cgroup.throttling()
    (top / own).write_text(text.format(1900, 801, 91))  # ran more often, and was stopped earlier
    (top / around).write_text(text.format(318, 223, 14))
    assert cgroup.throttled_since(before) == Throttling(308, 216, 12.0)


COUNTS = Throttling(308, 216, 12.0)
MEASURED = {"cpu_throttling": dataclasses.asdict(COUNTS), "machine": {"cpu_quota": "1 of 2 cores"}}


@pytest.mark.parametrize(
    ("benchmark", "words"),
    [
        (MEASURED, ["quota", "(1 of 2 cores)", "216 of 308", "longer than the machine's"]),
        (MEASURED | {"machine": {}}, ["quota throttled", "216 of 308"]),
        (MEASURED | {"cpu_throttling": dataclasses.asdict(Throttling(308, 0, 0.0))}, []),
        ({"cpu_throttling": None}, []),
        ({}, []),  # of an earlier version
    ],
)
def test_one_sentence_says_that_the_benchmark_was_throttled(benchmark, words) -> None:
    sentence = throttled(benchmark)
    assert all(word in sentence for word in words) and bool(sentence) == bool(words)
