"""The smoke ablation with profiles/slurm, on a SLURM cluster of one node that the test starts on this machine.

The cluster has its own namespaces for mounts and processes: nothing else sees its /etc/slurm, and every process of it
ends with the test. Its node claims two CPUs and 8000 MB.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import NOTHING, Checkout, environment
from ports import free_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "unshare", "runuser")
HAS_SLURM = sys.platform == "linux" and os.geteuid() == 0 and all(map(shutil.which, PROGRAMS))
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not HAS_SLURM, reason="needs root, and apt-get install slurm-wlm munge"),
]

SLURM_CONF = """\
ClusterName=faze
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
MpiDefault=none
ReturnToService=2
MinJobAge=300
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 CoresPerSocket=2 RealMemory=8000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
CGROUP_CONF = "CgroupPlugin=cgroup/v1\nConstrainCores=no\nConstrainRAMSpace=no\nConstrainDevices=no\n"
# The first process of the namespaces: when it ends, all others end too. Jobs find the configuration in /etc/slurm only.
START = """\
set -e
mount --bind {folder}/etc /etc/slurm
cd {folder}/munge
runuser -u munge -- munged --key-file=key --socket={folder}/munge/socket --pid-file={folder}/munge/pid \\
    --log-file={folder}/munge/log --seed-file={folder}/munge/seed
slurmctld
slurmd
timeout 60 sh -c 'until sinfo -h -o %T | grep -q idle; do sleep 0.2; done'
cd {checkout}
"$@"
"$@" --dry-run
"""


@pytest.fixture
def cluster() -> Iterator[Path]:
    """Write the configuration of a cluster, and return its folder, which munged can enter as another user."""
    folder = Path(tempfile.mkdtemp(prefix="faze-cluster-"))
    folder.chmod(0o711)
    for name in ("etc", "munge", "state", "spool"):
        (folder / name).mkdir()
    values = {"host": socket.gethostname(), "folder": folder, "ports": [free_port(), free_port()]}
    (folder / "etc/slurm.conf").write_text(SLURM_CONF.format(**values))
    (folder / "etc/cgroup.conf").write_text(CGROUP_CONF)
    key = folder / "munge/key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    key.parent.chmod(0o711)
    for path in (key, key.parent):
        shutil.chown(path, "munge", "munge")
    yield folder
    shutil.rmtree(folder)


def reduce_requests(profile: Path) -> None:
    """Request what the node has, as docs/how-to/slurm.md advises, and ask for the state of jobs more often."""
    text = re.sub(r": (16|4)$", ": 2", profile.read_text(encoding="utf-8"), flags=re.MULTILINE)
    text = re.sub(r"mem_mb: 8000\b", "mem_mb: 2000", text).replace("mem_mb: 64000", "mem_mb: 8000")
    quick = "slurm-init-seconds-before-status-checks: 2\nseconds-between-status-checks: 3\n"
    profile.write_text(text.replace("gpu: 1", "gpu: 0") + quick, encoding="utf-8")


def test_the_profile_runs_the_smoke_ablation(cluster: Path, tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "faze", "config/sizes/smoke.yaml")
    reduce_requests(checkout.folder / "profiles/slurm/config.yaml")
    script = START.format(folder=cluster, checkout=checkout.folder)
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    command = checkout.command("--profile", "profiles/slurm", "ablation")
    done = subprocess.run(
        [*namespaces, "sh", "-c", script, "sh", *command], capture_output=True, text=True, env=environment()
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    results = checkout.folder / "results/smoke"
    assert (results / "report/index.html").is_file() and (results / "tracking/tracked.json").is_file()
    printed = done.stdout + done.stderr
    assert "has been submitted with SLURM jobid" in printed and NOTHING in printed
