"""Promises 9 and 10: variables of the shell are refused or recorded; a container's CPU quota is respected and told."""

import json
import re
import shutil
import subprocess
import sys

import pytest
from checkout import ROOT, Answer, Checkout, environment

pytestmark = pytest.mark.workflow

CONFIG = "name: tiny\nworkload: tiny_workload:Tiny\nrun: {tiers: [baseline]}\n"
RUN_LOG = "results/tiny/baseline/seed0/run.jsonl"
ONE_PROCESS = {"RANK": "0", "WORLD_SIZE": "1"}  # which other launchers may have set
RECORDED = {
    "LD_PRELOAD": "libm.so.6",
    "MALLOC_ARENA_MAX": "2",
    "NCCL_ALGO": "Ring",
    "NVIDIA_TF32_OVERRIDE": "0",
    "ONEDNN_DEFAULT_FPMATH_MODE": "STRICT",
}
# The files of a container's cgroup, which only this command sees.
IN_CONTAINER = 'mount --bind "$0" /sys/fs/cgroup && exec "$@"'


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    checkout = Checkout(tmp_path_factory.mktemp("inherited") / "faze", "tiny.yaml")
    (checkout.folder / checkout.config).write_text(CONFIG, encoding="utf-8")
    shutil.copy(ROOT / "tests/shared/tiny_workload.py", checkout.folder)
    return checkout


@pytest.fixture(scope="module")
def with_quota(checkout: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Answer:
    """Train in a container with a quota of one core, with variables that are recorded."""
    quota = tmp_path_factory.mktemp("cgroup")
    (quota / "cpu.max").write_text("100000 100000\n", encoding="ascii")
    inside = ["unshare", "--map-root-user", "--mount", "sh", "-c", IN_CONTAINER, str(quota)]
    if subprocess.run([*inside, "true"], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    command = inside + checkout.command("--cores", "2", "--printshellcmds", RUN_LOG)
    variables = environment() | ONE_PROCESS | RECORDED
    done = subprocess.run(command, cwd=checkout.folder, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return Answer(done.returncode, done.stdout + done.stderr)


@pytest.fixture(scope="module")
def machine(checkout: Checkout, with_quota: Answer) -> dict[str, str]:
    """Return the machine's entry in the run log of that training."""
    first = (checkout.folder / RUN_LOG).read_text(encoding="utf-8").splitlines()[0]
    return json.loads(first)["machine"]


@pytest.mark.parametrize("variable", ["RANK=3", "WORLD_SIZE=2"])
def test_processes_of_another_launcher_are_refused(checkout: Checkout, variable: str) -> None:
    name, value = variable.split("=")
    answer = checkout.snakemake("-n", **{name: value})
    assert answer.code == 1 and f"nothing was started:\n{variable} " in answer.text and "Unset the" in answer.text
    command, variables = [sys.executable, "-m", "faze", "train"], environment() | {name: value}
    stage = subprocess.run(command, cwd=checkout.folder, env=variables, capture_output=True, text=True)
    assert stage.returncode == 1 and stage.stderr.startswith(f"faze train: {variable} ")
    assert stage.stderr.count("\n") == 1


def test_variables_that_change_numbers_or_speed_are_recorded(machine: dict[str, str]) -> None:
    recorded = machine["variables"].split(", ")
    assert {f"{name}={value}" for name, value in RECORDED.items()} <= set(recorded)


def test_a_quota_is_respected_and_told(with_quota: Answer, machine: dict[str, str]) -> None:
    assert "CPU quota): 1; all jobs share them" in with_quota.text
    assert "Provided cores: 1 " in with_quota.text and machine["cores"] == "1"
    assert set(re.findall(r"-m faze \w+ --threads (\d+)", with_quota.text)) == {"1"}
