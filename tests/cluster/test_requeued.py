"""A training run that SLURM asks to stop is requeued, resumes, and ends like an undisturbed one."""

import sys
from pathlib import Path

import pytest
from on_cluster import Cluster, ask, held, is_held, until
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
BATCH, PAIRS = 16, 16 * 100
PLAN = {"pairs": PAIRS, "log_every_pairs": 5 * BATCH, "validate_every_pairs": PAIRS, "checkpoint_every_pairs": PAIRS}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("data") / "gazecapture.h5")


@pytest.fixture(scope="module", params=["baseline", "ddp"])
def undisturbed(request: pytest.FixtureRequest, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Training:
    """Train in the same way on this machine."""
    training = Training(tmp_path_factory.mktemp(request.param), data, request.param, **PLAN)
    training.tier = request.param
    training.finish()
    return training


class Job:
    """Submit a training job to SLURM and wait until it has started."""

    def __init__(self, cluster: Cluster, undisturbed: Training, data: Path, folder: Path, *options: str) -> None:
        self.cluster, self.log = cluster, folder / "slurm.log"
        self.training = Training(folder, data, undisturbed.tier, **PLAN)
        script = folder / "train.sh"
        arguments = " ".join(self.training.arguments)
        script.write_text(SCRIPT.format(root=ROOT, log=self.log, python=sys.executable, arguments=arguments))
        self.number = cluster.submit(script, *options)
        until(lambda: self.logged() >= 1, "the first log line")

    @property
    def node(self) -> str:
        return self.cluster.facts(self.number)["NodeList"]

    def logged(self) -> int:
        log = self.training.work.parent / "run.jsonl"
        return sum(event["event"] == "metrics" for event in read_events(log)) if log.exists() else 0

    def restarts(self) -> int:
        return int(self.cluster.facts(self.number)["Restarts"])

    def log_has(self, words: str) -> bool:
        return words in self.words()

    def resumed(self) -> list[int]:
        return [event["step"] for event in read_events(self.training.log) if event["event"] == "resume"]

    def words(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def goes_on(self, undisturbed: Training, why: str) -> None:
        """Wait for the end, and compare the result with the undisturbed one."""
        assert self.cluster.ends(self.number) == "COMPLETED", self.words()
        assert self.restarts() >= 1
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
    """SLURM checks the time limits of jobs periodically."""
    job = Job(cluster, undisturbed, data, tmp_path, "--time=60", "--signal=USR1@100")
    with held(job.node) as stages:
        cluster.give_minutes(job.number, 3)
        until(lambda: not is_held(stages), "the warning, with which SLURM lets it go on")
    job.goes_on(undisturbed, "faze train: stopped by SIGUSR1 after")


def test_a_job_of_a_higher_partition_takes_its_node_for_a_while(cluster, undisturbed, data, tmp_path):
    job = Job(cluster, undisturbed, data, tmp_path, "--exclusive")
    with held(job.node) as stages:
        cluster.submit_urgent(tmp_path, job.node)
        until(lambda: not is_held(stages), "SIGTERM, with which SLURM lets it go on")
    job.goes_on(undisturbed, "faze train: stopped by SIGTERM after")


def test_a_node_that_dies_costs_what_came_after_the_last_checkpoint(cluster, undisturbed, data, tmp_path):
    """SLURM itself requeues the job, on a running node."""
    job = Job(cluster, undisturbed, data, tmp_path)
    ask("scancel", "--signal=USR1", job.number)  # so that there is a checkpoint
    until(lambda: job.restarts() == 1, "its first restart")
    until(lambda: cluster.state(job.number) == "RUNNING" and job.log_has("train: resumed after"), "its going on")
    with held(job.node), cluster.dead(job.node):
        until(lambda: job.restarts() == 2, "its second restart")
        job.goes_on(undisturbed, "train: resumed after")
