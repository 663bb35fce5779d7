"""After a kill, the same plain command resumes; two writers never run at the same time, nor do measured jobs."""

import contextlib
import fcntl
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from checkout import ROOT, Checkout

from faze.base.locks import machine_exclusive

pytestmark = pytest.mark.kills

STORE = "results/smoke/data/mpiigaze.h5"
MEASURED = "results/measured/benchmark/benchmark.json"


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "faze", "config/smoke.yaml")


@pytest.fixture
def groups() -> Iterator[list[int]]:
    """Yield a list for the process groups that a test starts, and kill any that remain at its end."""
    started: list[int] = []
    yield started
    for group in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"{what} did not happen in {seconds} s"
        time.sleep(0.02)


def children_of(group: int) -> list[int]:
    """List the living processes of a group."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def stage_runs(log: Path, stage: str, group: int) -> bool:
    """Return whether a stage has started in this process group and is writing."""
    for process in children_of(group):
        with contextlib.suppress(OSError):
            if f"faze\0{stage}\0".encode() in Path(f"/proc/{process}/cmdline").read_bytes():
                return bool(list(log.parent.glob("faze/results/smoke/raw/.*")))
    return False


def killed_while_synthesising(checkout: Checkout, tmp_path: Path, groups: list[int], whole_group: bool) -> int:
    log = tmp_path / "first.log"
    process = checkout.start("--cores", "all", STORE, log=log)
    groups.append(process.pid)
    wait_for(lambda: stage_runs(log, "synthesise", process.pid), 120, "synthesise")
    if whole_group:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()
    return process.pid


def whole(checkout: Checkout) -> bool:
    return (checkout.folder / STORE).exists()


def test_killed_with_all_its_jobs(checkout: Checkout, tmp_path: Path, groups: list[int]) -> None:
    killed_while_synthesising(checkout, tmp_path, groups, whole_group=True)
    assert not (checkout.folder / "results/smoke/raw/truth.h5").exists()
    answer = checkout.snakemake("--cores", "all", STORE)
    assert answer.code == 0, answer.text[-4000:]
    assert whole(checkout)


def test_killed_alone_its_orphan_and_the_re_run_do_not_write_together(
    checkout: Checkout, tmp_path: Path, groups: list[int]
) -> None:
    """The orphan is stopped until the next run waits for it; on a slow machine, it would otherwise end too early."""
    group = killed_while_synthesising(checkout, tmp_path, groups, whole_group=False)
    assert children_of(group), "the job died with Snakemake: nothing is tested"
    os.killpg(group, signal.SIGSTOP)
    log = tmp_path / "second.log"
    again = checkout.start("--cores", "all", STORE, log=log)
    groups.append(again.pid)
    wait_for(lambda: "held by process" in log.read_text(), 120, "the re-run's wait")
    assert not whole(checkout)
    os.killpg(group, signal.SIGCONT)
    assert again.wait(240) == 0, log.read_text()[-4000:]
    assert whole(checkout)
    wait_for(lambda: not children_of(group), 120, "the orphan's end")


@pytest.fixture(scope="module")
def measuring(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """Create a checkout with everything that a benchmark of one tier needs."""
    checkout = Checkout(tmp_path_factory.mktemp("measuring") / "faze", "config/measured.yaml")
    smoke = yaml.safe_load((ROOT / "config/smoke.yaml").read_text(encoding="utf-8"))
    values = smoke | {"name": "measured", "run": {"tiers": ["baseline"]}}
    (checkout.folder / checkout.config).write_text(yaml.safe_dump(values), encoding="utf-8")
    answer = checkout.snakemake("--cores", "all", "results/measured/data/gazecapture.h5")
    assert answer.code == 0, answer.text[-4000:]
    return checkout


@contextlib.contextmanager
def another_job_on_this_machine(checkout: Checkout) -> Iterator[None]:
    path = checkout.folder / ".snakemake" / f"{socket.gethostname()}.lock"
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


def test_measured_job_waits_for_jobs_that_its_snakemake_does_not_know(
    measuring: Checkout, tmp_path: Path, groups: list[int]
) -> None:
    log = tmp_path / "benchmark.log"
    measured = measuring.folder / MEASURED
    with another_job_on_this_machine(measuring):
        process = measuring.start("--cores", "all", "--force", MEASURED, log=log)
        groups.append(process.pid)
        wait_for(lambda: "waiting for other jobs on this machine" in log.read_text(), 120, "waiting")
        time.sleep(0.5)
        assert not measured.exists()
        assert process.poll() is None
    assert process.wait(timeout=600) == 0, log.read_text()[-4000:]
    assert measured.exists()


def test_measured_job_is_refused_while_another_checkout_measures(measuring: Checkout) -> None:
    with machine_exclusive():
        refused = measuring.snakemake("--cores", "all", "--force", MEASURED)
    assert refused.code != 0
    assert "this machine is in use" in refused.text and f"process {os.getpid()}" in refused.text
    assert "Traceback" not in refused.text
    answer = measuring.snakemake("--cores", "all", MEASURED)
    assert answer.code == 0, answer.text[-4000:]


def test_re_run_waits_for_its_own_orphaned_benchmark(
    measuring: Checkout, tmp_path: Path, groups: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same checkout, the re-run first waits for other jobs; then the machine is free, and nothing is refused."""
    machine = tmp_path / "machine.lock"
    monkeypatch.setenv("FAZE_MACHINE_LOCK", str(machine))
    killed = measuring.start("--cores", "all", "--force", MEASURED, log=tmp_path / "first.log")
    groups.append(killed.pid)
    wait_for(lambda: machine.exists() and machine.read_text().endswith("\n"), 120, "measuring")
    killed.kill()
    killed.wait()
    orphan = int(machine.read_text())
    os.kill(orphan, signal.SIGSTOP)
    log = tmp_path / "second.log"
    process = measuring.start("--cores", "all", MEASURED, log=log)
    groups.append(process.pid)
    wait_for(lambda: "waiting for other jobs on this machine" in log.read_text(), 120, "waiting")
    assert int(machine.read_text()) == orphan
    os.kill(orphan, signal.SIGCONT)
    assert process.wait(timeout=600) == 0, log.read_text()[-4000:]
    assert (measuring.folder / MEASURED).exists()
    assert not children_of(killed.pid)
