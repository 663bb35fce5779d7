"""A training under SLURM that is asked to go: it is requeued, goes on, and ends as one that nothing disturbed."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest
from on_cluster import Cluster, ask, processes_of, until
from stage_training import ROOT, Training, assert_same_end, write_store

from faze.base.run_log import read_events

pytestmark = pytest.mark.cluster

# As docs/how-to/slurm.md has it.
SCRIPT = """\
#!/bin/bash
#SBATCH --requeue --open-mode=append --chdir={root} --output={log}
srun {python} -m faze train {arguments}
code=$?
[ $code -eq 75 ] && scontrol requeue "$SLURM_JOB_ID"
exit $code
"""
BATCH, PAIRS = 16, 16 * 200
PLAN = {"pairs": PAIRS, "log_every_pairs": 5 * BATCH, "validate_every_pairs": PAIRS, "checkpoint_every_pairs": PAIRS}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("data") / "gazecapture.h5")


@pytest.fixture(scope="module", params=["baseline", "ddp"])
def undisturbed(request: pytest.FixtureRequest, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Training:
    """The same training on this machine alone."""
    training = Training(tmp_path_factory.mktemp(request.param), data, request.param, **PLAN)
    training.tier = request.param
    training.finish()
    return training


class Job:
    """A training that has been sent to SLURM and has begun."""

    def __init__(self, cluster: Cluster, undisturbed: Training, data: Path, folder: Path, *options: str) -> None:
        self.cluster, self.log = cluster, folder / "slurm.log"
        self.training = Training(folder, data, undisturbed.tier, **PLAN)
        script = folder / "train.sh"
        arguments = " ".join(self.training.arguments)
        script.write_text(SCRIPT.format(root=ROOT, log=self.log, python=sys.executable, arguments=arguments))
        self.number = cluster.submit(script, *options)
        until(lambda: self.logged() >= 1, "the first log line")

    def logged(self) -> int:
        log = self.training.work.parent / "run.jsonl"
        return sum(event["event"] == "metrics" for event in read_events(log)) if log.exists() else 0

    def resumed(self) -> list[int]:
        return [event["step"] for event in read_events(self.training.log) if event["event"] == "resume"]

    def words(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def goes_on(self, undisturbed: Training, why: str) -> None:
        """Wait for the end and compare it with that of the undisturbed one."""
        assert self.cluster.ends(self.number) == "COMPLETED", self.words()
        assert int(self.cluster.facts(self.number)["Restarts"]) >= 1
        assert why in self.words()
        assert "Traceback" not in self.words()
        assert self.resumed() and all(0 < pairs < PAIRS for pairs in self.resumed())
        assert_same_end(self.training, undisturbed)


@pytest.mark.parametrize("name", ["USR1", "USR2", "TERM"])
def test_a_signal_from_scancel_requeues_it(name, cluster, undisturbed, data, tmp_path):
    job = Job(cluster, undisturbed, data, tmp_path)
    ask("scancel", f"--signal={name}", job.number)
    job.goes_on(undisturbed, f"faze train: stopped by SIG{name} after")


def test_who_runs_out_of_time_is_warned_before(cluster, undisturbed, data, tmp_path):
    """SLURM looks at its jobs' time now and then, so the training is held until the warning has come."""
    job = Job(cluster, undisturbed, data, tmp_path, "--time=60", "--signal=USR1@100", "--nodelist=n3")
    [process] = [each for each in processes_of("n3") if is_stage(each) and not is_stage(parent_of(each))]
    os.kill(process, signal.SIGSTOP)
    ask("scontrol", "update", f"JobId={job.number}", "TimeLimit=3")
    until(lambda: pending(process, signal.SIGUSR1), "the warning")
    ask("scontrol", "update", f"JobId={job.number}", "TimeLimit=60")
    os.kill(process, signal.SIGCONT)
    job.goes_on(undisturbed, "faze train: stopped by SIGUSR1 after")


def is_stage(process: int) -> bool:
    return b"faze\0train" in Path(f"/proc/{process}/cmdline").read_bytes()


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def pending(process: int, number: int) -> bool:
    """Whether a signal waits for a process."""
    found = re.search(r"^ShdPnd:\s*(\w+)$", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
    return bool(int(found[1], 16) >> (number - 1) & 1)


def test_a_job_of_a_higher_partition_takes_its_node_for_a_while(cluster, undisturbed, data, tmp_path):
    job = Job(cluster, undisturbed, data, tmp_path, "--nodelist=n1", "--exclusive")
    urgent = tmp_path / "urgent.sh"
    urgent.write_text("#!/bin/sh\nsleep 1\n")
    number = cluster.submit(
        urgent, "--partition=urgent", "--nodelist=n1", "--exclusive", f"--chdir={tmp_path}", "--output=/dev/null"
    )
    assert cluster.ends(number) == "COMPLETED"
    job.goes_on(undisturbed, "faze train: stopped by SIGTERM after")


def test_a_node_that_dies_costs_what_came_after_the_last_checkpoint(cluster, undisturbed, data, tmp_path):
    """SLURM requeues it by itself, on a node that lives."""
    job = Job(cluster, undisturbed, data, tmp_path, "--nodelist=n2")
    ask("scancel", "--signal=USR1", job.number)  # so that there is a checkpoint
    until(lambda: int(cluster.facts(job.number)["Restarts"]) == 1, "its first restart")
    until(lambda: cluster.state(job.number) == "RUNNING" and job.logged() > 1, "its going on")
    with cluster.dead("n2"):
        ask("scontrol", "update", f"JobId={job.number}", "ReqNodeList=")
        until(lambda: int(cluster.facts(job.number)["Restarts"]) == 2, "its second restart")
        job.goes_on(undisturbed, "train: resumed after")
