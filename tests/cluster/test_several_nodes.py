"""ddp on two nodes with two processes each equals ddp on one node with four, also if a node dies."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from on_cluster import Cluster, ask, processes_of, until
from stage_training import ROOT, Training, measured, write_store
from trajectory import STEPS, losses, tier

from faze.base.run_log import read_events

pytestmark = pytest.mark.cluster
HERE = Path(__file__).resolve().parent
PORT = 29611


def torchrun(nodes: int, processes: int) -> list[str]:
    """Return the command from docs/how-to/slurm.md, except that the host is always this one."""
    each = [f"--nodes={nodes}", "--ntasks-per-node=1", "--cpus-per-task=2"]
    meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{PORT}", "--rdzv-id=test"]
    launcher = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={nodes}", f"--nproc-per-node={processes}"]
    return ["srun", *each, *launcher, *meeting]


@pytest.fixture(scope="module")
def alone() -> list[float]:
    """Train with one process, which sees the whole batch."""
    return losses(tier("baseline"), steps=STEPS, dtype=torch.float64)


def test_two_nodes_of_two_processes_are_one_of_four(cluster, alone, tmp_path, capsys):
    found = {}
    for nodes, processes in ((1, 4), (2, 2)):
        out = tmp_path / f"{nodes}.npy"
        environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests/shared'}"}
        command = [*torchrun(nodes, processes), str(HERE / "several_nodes.py"), str(out)]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        size, *found[nodes] = np.load(out)
        assert size == 4
    np.testing.assert_allclose(found[2], found[1], rtol=1e-10)
    np.testing.assert_allclose(found[2], alone, rtol=1e-10)
    with capsys.disabled():
        apart = max(abs(a / b - 1) for a, b in zip(found[2], found[1], strict=True))
        print(f"\n2 nodes x 2 processes against 1 x 4: {STEPS} losses differ by at most {apart:.1e} of themselves")


BATCH, PAIRS = 16, 16 * 100
PLAN = {"pairs": PAIRS, "log_every_pairs": 5 * BATCH, "validate_every_pairs": PAIRS}
PLAN |= {"checkpoint_every_pairs": 20 * BATCH}
# Each node starts `faze train`, which finds the others where the environment says.
SCRIPT = """\
#!/bin/bash
#SBATCH --no-requeue --nodes=2 --ntasks-per-node=1 --cpus-per-task=2 --chdir={root} --output={log} --open-mode=append
export PET_NNODES=2 PET_RDZV_BACKEND=c10d PET_RDZV_ID=$SLURM_JOB_ID PET_RDZV_ENDPOINT=127.0.0.1:{port}
srun {python} -m faze train {arguments}
"""


def of_processes(count: int) -> dict:
    """Return settings that start some processes on each machine, and split the batch into chunks for four processes."""
    return {"tiers": {"baseline": {"processes": count}}, "loss": {"chunk_pairs": 4}}


class TwoNodes:
    """Train with two processes on each of two nodes."""

    def __init__(self, cluster: Cluster, folder: Path, data: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.cluster, self.folder, self.log = cluster, folder, folder / "slurm.log"
        self.training = Training(folder, data, "ddp", sections=of_processes(2), **PLAN)

    def submit(self) -> None:
        script = self.folder / "train.sh"
        arguments = " ".join(self.training.arguments)
        values = {"root": ROOT, "log": self.log, "python": sys.executable, "arguments": arguments, "port": PORT + 1}
        script.write_text(SCRIPT.format(**values))
        self.number = self.cluster.submit(script)

    def has_checkpoint(self) -> None:
        until(lambda: self.training.work.exists(), "a checkpoint")

    def words(self) -> str:
        return self.log.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("data") / "gazecapture.h5")


@pytest.fixture(scope="module")
def one_node(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Training:
    """Train with four processes on this machine."""
    training = Training(tmp_path_factory.mktemp("one"), data, "ddp", sections=of_processes(4), **PLAN)
    training.finish()
    return training


def assert_alike(training: Training, other: Training) -> None:
    """Check that the log equals that of one node until training resumes; after that, sums round differently.

    DistributedDataParallel adds the gradients of its first step in a different order from those of later steps.
    """
    [went_on] = [event["step"] for event in read_events(training.log) if event["event"] == "resume"]
    own, its = dict(measured(training.log)), dict(measured(other.log))
    assert own.keys() == its.keys() and max(own) == PAIRS
    for pairs, values in its.items():
        if pairs <= went_on + 10 * BATCH:
            assert own[pairs] == pytest.approx(values, rel=1e-6 if pairs <= went_on else 1e-3), pairs


def test_a_signal_stops_both_nodes_at_one_step_and_the_same_command_goes_on(cluster, data, one_node, tmp_path):
    job = TwoNodes(cluster, tmp_path, data)
    job.submit()
    job.has_checkpoint()
    ask("scancel", "--signal=USR1", job.number)
    assert cluster.ends(job.number) == "FAILED"
    assert job.words().count("faze train: stopped by SIGUSR1 after") == 1
    assert "Traceback" not in job.words()
    assert cluster.facts(job.number)["ExitCode"] == "75:0"
    job.submit()
    assert cluster.ends(job.number) == "COMPLETED", job.words()
    assert_alike(job.training, one_node)


@pytest.mark.parametrize("which", [0, 1], ids=["the first", "the second"])
def test_a_node_that_dies_ends_the_training_and_the_same_command_goes_on(which, cluster, data, one_node, tmp_path):
    job = TwoNodes(cluster, tmp_path, data)
    job.submit()
    job.has_checkpoint()
    nodes = ask("scontrol", "show", "hostnames", cluster.facts(job.number)["NodeList"]).split()
    with cluster.dead(nodes[which]):
        assert cluster.ends(job.number) in ("NODE_FAIL", "FAILED")
        if which:  # with the first the job's script and its srun died, through which all words come
            assert "another process of this training has ended" in job.words()
        assert not processes_of_training(nodes[1 - which])
    job.submit()
    assert cluster.ends(job.number) == "COMPLETED", job.words()
    assert "Traceback" not in job.words() and "This is a fault" not in job.words()
    assert_alike(job.training, one_node)


def processes_of_training(node: str) -> list[int]:
    """List the training processes that still run on a node."""
    found = []
    for process in processes_of(node):
        try:
            if b"faze\0train" in Path(f"/proc/{process}/cmdline").read_bytes():
                found.append(process)
        except OSError:
            continue
    return found
