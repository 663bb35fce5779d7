"""A SLURM cluster of three nodes on this machine, for as long as a command runs.

    sudo apt-get install --no-install-recommends slurm-wlm munge
    sudo python tests/cluster/cluster.py bash           a shell in which sinfo, sbatch and snakemake --profile find it

It has separate namespaces for mounts and processes: nothing else sees its /etc/slurm, and when the command ends or is
killed, every process of the cluster ends too. All nodes share this machine's memory, processors and files. Each has a
name, which is also its hostname, and claims two CPUs, 8000 MB and a GPU, which is /dev/null.

There are two partitions: `main`, and `urgent`, whose jobs preempt and requeue those of `main`.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NODES = ("n1", "n2", "n3")
CPUS, MEMORY_MB = 2, 8000
PROGRAMS = ("munged", "slurmctld", "slurmd", "sinfo", "unshare", "runuser")
PACKAGES = "apt-get install --no-install-recommends slurm-wlm munge"
CONFIG = Path("/etc/slurm")  # jobs find it nowhere else
GRACE_S = 60  # between SIGTERM and SIGKILL

SLURM_CONF = """\
ClusterName=faze
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
SlurmctldPort={port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
SlurmdParameters=config_overrides
SlurmdTimeout=20
TaskProlog={folder}/etc/task_prolog.sh
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=batch_sched_delay=1,sched_interval=2,bf_interval=2
MpiDefault=none
ReturnToService=2
KillWait={grace}
MinJobAge=300
GresTypes=gpu
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime={grace}
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=2 PreemptMode=OFF
"""
NODE = (
    "NodeName={name} NodeHostname={name} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} Boards=1 SocketsPerBoard=1 "
    "CoresPerSocket={cpus} ThreadsPerCore=1 RealMemory={memory} Gres=gpu:1 State=UNKNOWN"
)
CGROUP_CONF = "CgroupPlugin=cgroup/v1\nConstrainCores=no\nConstrainRAMSpace=no\nConstrainDevices=no\n"
GRES_CONF = "NodeName=n[1-3] Name=gpu File=/dev/null\n"
# The nodes share /tmp, where a lock would hold for all three; and a node's name is known to nobody else.
TASK_PROLOG = """\
#!/bin/sh
echo export FAZE_MACHINE_LOCK={folder}/machine-$SLURMD_NODENAME.lock
echo export PET_LOCAL_ADDR=127.0.0.1
echo export GLOO_SOCKET_IFNAME=lo
"""


def main(command: list[str]) -> int:
    """Run a command in a cluster that starts and ends with it, and return its exit code."""
    if not command:
        sys.exit(__doc__)
    if os.geteuid():
        sys.exit("the cluster needs root: slurmd and munged start as root")
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if missing:
        sys.exit(f"no {', '.join(missing)}: {PACKAGES}")
    made = not CONFIG.exists()
    CONFIG.mkdir(exist_ok=True)  # something to mount on
    folder = Path(tempfile.mkdtemp(prefix="faze-cluster-"))
    folder.chmod(0o755)  # munged is another user
    print(f"cluster: {folder} is {CONFIG} inside, and its files are not changed", file=sys.stderr)
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    try:
        return subprocess.call([*namespaces, sys.executable, __file__, "--inside", str(folder), *command])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if made:
            CONFIG.rmdir()


def inside(folder: Path, command: list[str]) -> int:
    """Start the daemons, run the command, and reap every process that ends, since this is process 1."""
    configure(folder)
    subprocess.run(["mount", "--bind", folder / "etc", CONFIG], check=True)
    munge = folder / "munge"
    files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    options = [f"--{option}={munge / name}" for option, name in files.items()]
    daemons = [
        subprocess.Popen(["runuser", "-u", "munge", "--", "munged", "--foreground", *options], **quiet()),
        subprocess.Popen(["slurmctld", "-D"], **quiet()),
        *[start_node(name) for name in NODES],
    ]
    wait_until_idle(folder)
    return reap(subprocess.Popen(command, env=os.environ | {"FAZE_CLUSTER": str(folder)}), daemons)


def configure(folder: Path) -> None:
    """Write the configuration."""
    for name in ("etc", "munge", "state", "run", "log", *(f"spool/{name}" for name in NODES)):
        (folder / name).mkdir(parents=True)
    key = folder / "munge/key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    for path in (key.parent, key):
        shutil.chown(path, "munge", "munge")
    key.parent.chmod(0o711)
    controller, *ports = free_ports(1 + len(NODES))
    lines = [
        NODE.format(name=name, port=port, cpus=CPUS, memory=MEMORY_MB) for name, port in zip(NODES, ports, strict=True)
    ]
    values = {"host": socket.gethostname(), "folder": folder, "port": controller}
    values |= {"grace": GRACE_S, "nodes": "\n".join(lines)}
    etc = folder / "etc"
    (etc / "slurm.conf").write_text(SLURM_CONF.format(**values))
    (etc / "cgroup.conf").write_text(CGROUP_CONF)
    (etc / "gres.conf").write_text(GRES_CONF)
    (etc / "task_prolog.sh").write_text(TASK_PROLOG.format(folder=folder))
    (etc / "task_prolog.sh").chmod(0o755)


def free_ports(count: int) -> list[int]:
    """Find free ports, so that several clusters can run on one machine."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in servers]


def start_node(name: str) -> subprocess.Popen:
    """Start the slurmd of a node, whose jobs see the node's name as their hostname."""
    program = f"hostname {name} && exec slurmd -D -N {name}"
    return subprocess.Popen(["unshare", "--uts", "sh", "-c", program], **quiet())


def quiet() -> dict:
    """Return options that suppress a process's output, since the daemons have logs."""
    return {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}


def wait_until_idle(folder: Path, seconds: float = 60) -> None:
    """Wait until all nodes accept jobs."""
    states, until = "", time.monotonic() + seconds
    while time.monotonic() < until:
        answer = subprocess.run(["sinfo", "-h", "-N", "-p", "main", "-o", "%T"], capture_output=True, text=True)
        states = answer.stdout.split()
        if states == ["idle"] * len(NODES):
            return
        time.sleep(0.2)
    logs = "\n".join(path.read_text()[-2000:] for path in sorted((folder / "log").iterdir()))
    sys.exit(f"the cluster did not come up: {states} {answer.stderr}\n{logs}")


def reap(command: subprocess.Popen, daemons: list[subprocess.Popen]) -> int:
    """Reap every process that ends, until the command has ended."""
    names = {daemon.pid: daemon.args for daemon in daemons}
    while True:
        ended, status = os.wait()
        if ended == command.pid:
            return os.waitstatus_to_exitcode(status) % 256
        if ended in names:
            print(f"cluster: {names[ended]} has ended", file=sys.stderr)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    signal.signal(signal.SIGINT, lambda number, frame: None)  # the command has it from the terminal too, and decides
    if sys.argv[1:2] == ["--inside"]:
        sys.exit(inside(Path(sys.argv[2]), sys.argv[3:]))
    sys.exit(main(sys.argv[1:]))
