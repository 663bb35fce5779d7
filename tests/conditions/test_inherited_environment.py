"""Variables inherited from another launcher, a scheduler, a debugger or a shell profile."""

import getpass
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from stage_training import ROOT, Training, write_store
from torch.distributed import run as torchrun
from trajectory import tier

from faze.base.allocator_retention import VARIABLE, with_allocator_retention
from faze.base.environment import check_environment, clean_environment, recorded_variables
from faze.base.errors import UserError
from faze.engine import execution, machine, parallel
from faze.engine.precision import _missing_kernels
from faze.tracking.store import DEFAULTS, check_kind, explained, prepare_environment
from faze.training.run import RunIdentity


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Start with an environment that contains nothing but PATH; restore the original one afterwards."""
    before = dict(os.environ)
    for name in set(os.environ) - {"PATH"}:
        monkeypatch.delenv(name)
    yield monkeypatch
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.parametrize("variable", [
    "ONEDNN_DEFAULT_FPMATH_MODE=BF16",
    "DNNL_DEFAULT_FPMATH_MODE=any",
    "NVIDIA_TF32_OVERRIDE=0",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1",
    "TORCHINDUCTOR_MAX_AUTOTUNE=1",
    "TORCHINDUCTOR_FREEZING=1",
    "TORCHDYNAMO_SUPPRESS_ERRORS=1",
    "TORCH_COMPILE_DEBUG=1",
    "RANK=1",
    "LOCAL_RANK=3",
    "WORLD_SIZE=2",
    "PET_NNODES=2",
])  # fmt: skip
def test_a_variable_that_would_make_the_log_wrong_is_refused(variable, alone, capsys):
    """Regressions: an fp32 tier computed in bf16; with RANK=1 no lock was taken; PET_NNODES=2 waited for a node."""
    from faze.__main__ import main

    name, _, value = variable.partition("=")
    alone.setenv(name, value)
    alone.setattr("sys.argv", ["faze", "train", "--help"])
    assert main() == 1
    assert capsys.readouterr().err.startswith(f"faze train: {variable} ")


@pytest.mark.parametrize("variable", [
    "ONEDNN_DEFAULT_FPMATH_MODE=strict",
    "NVIDIA_TF32_OVERRIDE=",
    "TORCHINDUCTOR_CACHE_DIR=/x",
    "TORCHDYNAMO_DISABLE=1",
    "RANK=0",
    "WORLD_SIZE=1",
    "PET_NNODES=1",
])  # fmt: skip
def test_a_variable_without_effect_is_accepted(variable, alone):
    alone.setenv(*variable.split("="))
    check_environment()


def test_variables_of_other_programs_are_kept_away(alone):
    unwanted = ("OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "PET_RUN_PATH", "TORCHELASTIC_USE_AGENT_STORE", "PYTHON_EXEC")
    for name in (*unwanted, "PET_SHUTDOWN_TIMEOUT", "OMP_WAIT_POLICY", "MASTER_PORT"):
        alone.setenv(name, "1")
    for name in ("RANK", "CC", "CXX"):
        alone.setenv(name, "")
    clean_environment()
    assert os.environ.keys() - {"PYTEST_CURRENT_TEST"} == {"PATH", "PET_SHUTDOWN_TIMEOUT", "OMP_WAIT_POLICY"}


def test_several_nodes_keep_their_rendezvous(alone):
    alone.setenv("PET_RDZV_ENDPOINT", "node1:29500")
    alone.setenv("PET_NNODES", "2")
    clean_environment()
    assert os.environ["PET_NNODES"] == "2"
    alone.setenv("RANK", "1")
    with pytest.raises(UserError, match="RANK=1 in the environment, from another launcher"):
        check_environment()


def test_workers_keep_their_rank(alone):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT", "FAZE_LAUNCHER"):
        alone.setenv(name, "7")
    clean_environment()
    assert os.environ["RANK"] == os.environ["MASTER_PORT"] == "7"


# Counts the threads of a parallel region: torch reports the number that it asked OpenMP for.
THREADS = """
import ctypes, os, sys, threading
from faze.base.allocator_retention import VARIABLE, with_allocator_retention
from faze.base.environment import clean_environment
clean_environment()
import torch
torch.set_num_threads(2)
openmp = ctypes.CDLL(next(line.split()[-1] for line in open("/proc/self/maps") if "libgomp" in line))
seen = set()
run = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: seen.add(threading.get_native_id()))
openmp.GOMP_parallel(run, None, 0, 0)
print(len(seen), len(os.sched_getaffinity(0)))
"""


def test_openmp_variables_do_not_change_the_number_of_threads_or_cores():
    """Regression: torch reported two threads, but one ran; the machine was recorded with one core."""
    foreign = {"OMP_THREAD_LIMIT": "1", "OMP_DYNAMIC": "true", "OMP_PROC_BIND": "true", "GOMP_CPU_AFFINITY": "0"}
    command = [sys.executable, "-c", THREADS]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | foreign, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", str(len(os.sched_getaffinity(0)))]


def test_variables_that_change_speed_or_rounding_are_recorded(alone):
    assert recorded_variables() == ""
    for name in ("MKL_CBWR", "NCCL_ALGO", "OMP_NUM_THREADS", "TRITON_CACHE_DIR", "MLFLOW_TRACKING_URI"):
        alone.setenv(name, "x")
    assert recorded_variables() == "MKL_CBWR=x, NCCL_ALGO=x"


needs_glibc = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or shutil.which("cc") is None, reason="needs glibc, and a C compiler"
)


def allocator(**variables: str) -> str:
    program = "from faze.engine.execution import allocator_switch; print(allocator_switch('keep').acted)"
    return said(sys.executable, program, **variables)


def said(python: str | Path, program: str, **variables: str) -> str:
    environment = os.environ | variables | {VARIABLE: with_allocator_retention(variables.get(VARIABLE, ""))}
    command = [python, "-c", program]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout.strip()


@needs_glibc
def test_the_allocator_switch_reports_other_settings():
    assert allocator() == "keep"
    assert allocator(**{VARIABLE: "glibc.malloc.mmap_max=65536"}) == "default"


@needs_glibc
def test_every_python_of_this_machine_retains_memory():
    """Regression: the address of malloc is in Debian's Python, as if it had an allocator of its own."""
    program = "from faze.base.allocator_retention import keeps_memory; print(keeps_memory())"
    pythons = filter(Path.exists, {Path(sys.executable), Path("/usr/bin/python3")})
    recent = "import sys; print(sys.version_info >= (3, 11))"
    supported = [python for python in pythons if said(python, recent) == "True"]
    assert supported and {said(python, program) for python in supported} == {"True"}


@needs_glibc
def test_the_allocator_switch_reports_another_allocator(tmp_path):
    """Regression: with jemalloc in LD_PRELOAD, the log said that memory is retained."""
    library = tmp_path / "allocator.so"
    code = """#include <stddef.h>
        void *__libc_malloc(size_t); void *malloc(size_t n) { return __libc_malloc(n); }
        size_t malloc_usable_size(void *memory) { return 0; }"""
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=code, text=True, check=True)
    assert allocator(LD_PRELOAD=str(library)) == "default"


@pytest.mark.parametrize("limit", ["AVX2", "default"])
def test_low_precision_is_inactive_if_the_environment_hides_its_kernels(limit, monkeypatch):
    """Regression: bf16 convolutions took a hundred times longer, and the log said that bf16 has kernels."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    reason = _missing_kernels("bf16", torch.device("cpu"))
    assert ("ONEDNN_MAX_CPU_ISA=AVX2" in reason) if limit == "AVX2" else not reason


CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(("device", "name", "value", "reason"), [
    (CPU, "CXX", "", ""),
    (CPU, "CXX", "no-such-compiler", "CXX=no-such-compiler"),
    (CPU, "TORCHINDUCTOR_CACHE_DIR", f"{__file__}/cache", "TORCHINDUCTOR_CACHE_DIR=/"),
    (CUDA, "CC", "", ""),
    (CUDA, "CC", "no-such-compiler", "CC=no-such-compiler"),
    (CUDA, "TRITON_CACHE_DIR", f"{__file__}/cache", "TRITON_CACHE_DIR=/"),
    (CUDA, "TRITON_INTERPRET", "1", "TRITON_INTERPRET=1"),
])  # fmt: skip
def test_what_the_environment_takes_from_compilation_is_the_reason(device, name, value, reason, monkeypatch):
    """Regression: an unusable folder or compiler ended in torch's traceback."""
    monkeypatch.setattr(execution, "_has_triton", lambda device: True)
    monkeypatch.setattr(execution.shutil, "which", lambda program: None if program.startswith("no-") else program)
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    monkeypatch.setenv(name, value)
    found = execution._missing_compiler(device)
    assert reason in found if reason else not found


def test_a_cache_without_programs_is_replaced(monkeypatch, tmp_path):
    """Regression: on a file system mounted noexec, compiling ended in torch's traceback."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")
    real = os.statvfs
    noexec = SimpleNamespace(f_flag=os.ST_NOEXEC)
    monkeypatch.setattr(os, "statvfs", lambda path: noexec if str(path).startswith(str(tmp_path)) else real(path))
    execution.set_compile(torch.nn.Linear(2, 2), "default", device=CPU, replicas=1, recompute=False)
    chosen = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    assert chosen.name.startswith("faze-")
    chosen.rmdir()
    assert "noexec" in execution._unloadable(tmp_path / "new")


FUSED_THEN_COMPILED = """
import os, torch
from faze.engine.execution import set_compile
module = torch.nn.Linear(2, 2)
torch.optim.SGD(module.parameters(), lr=0.1, fused=True)
set_compile(module, "default", device=torch.device("cpu"), replicas=1, recompute=False)
print(os.environ["TORCHINDUCTOR_CACHE_DIR"])
"""


def test_compiled_code_is_kept_in_the_cache_of_the_user(tmp_path):
    """Regression: importing dynamo, as optimisers do, sets the variable to torch's folder in /tmp."""
    kept = {name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"}
    command = [sys.executable, "-c", FUSED_THEN_COMPILED]
    done = subprocess.run(
        command, env=kept | {"XDG_CACHE_HOME": str(tmp_path)}, capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == str(tmp_path / "faze" / "inductor")


def train(folder: Path, tier: str, **variables: str) -> tuple[int, str]:
    process = Training(folder, write_store(folder / "data.h5"), tier, pairs=32).start(environment=variables)
    _, words = process.communicate(timeout=120)
    return process.returncode, words


def test_a_network_interface_that_does_not_exist_is_one_sentence(tmp_path):
    code, words = train(tmp_path, "ddp", GLOO_SOCKET_IFNAME="eth9")
    assert code == 1 and words.startswith("faze train: GLOO_SOCKET_IFNAME=eth9: ") and words.count("\n") == 1


def test_ddp_leaves_no_temporary_folder_and_ignores_what_other_launchers_set(tmp_path):
    """Regression: every ddp training left a folder /tmp/torchelastic_*."""
    (tmp_path / "tmp").mkdir()
    rest = {"MASTER_ADDR": "nohost", "MASTER_PORT": "1", "SLURM_PROCID": "3", "SLURM_NTASKS": "8", "RANK": "0"}
    torchrun = {"PET_RUN_PATH": "1", "PYTHON_EXEC": "/bin/false", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    code, words = train(tmp_path, "ddp", TMPDIR=str(tmp_path / "tmp"), **rest, **torchrun)
    assert code == 0, words
    assert {path.name for path in (tmp_path / "tmp").iterdir()} <= {f"torchinductor_{getpass.getuser()}"}


def test_ddp_on_one_machine_does_not_need_its_host_name(monkeypatch):
    """Regression: in a container whose name cannot be resolved, torchrun waited for five minutes and failed."""
    given = []
    monkeypatch.setattr(torchrun, "run", given.append)
    monkeypatch.setattr(parallel, "ignore_signals", lambda: None)  # they would be ignored by all later tests
    assert parallel.launch(tier("ddp"), ["train"])
    assert (given[0].standalone, given[0].local_addr) == (True, "127.0.0.1")
    monkeypatch.setenv(parallel.MEETING, "head:29500")  # with several nodes, the others use the name
    assert parallel.launch(tier("ddp"), ["train"])
    assert (given[1].standalone, given[1].local_addr) == (False, None)


@pytest.mark.parametrize(("uri", "accepted"), [
    ("mlruns", False),
    ("file:///home/ann/mlruns", False),
    ("htp://ann:secret@server", False),
    ("", True),
    ("sqlite:///mlflow.db", True),
    ("https://server:5000", True),
    ("postgresql+psycopg2://db/mlflow", True),
])  # fmt: skip
def test_the_address_of_mlflow_is_one_of_a_database_or_server(uri, accepted, monkeypatch):
    """Regression: a folder was refused by the last job, which promised to succeed as soon as the store responds."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    check_kind("http://server:5000")
    if accepted:
        check_kind(None)
        return
    for given, name in ((None, "MLFLOW_TRACKING_URI"), (uri, "tracking.uri")):
        with pytest.raises(UserError, match=f"^{name}=") as caught:
            check_kind(given)
        assert "secret" not in str(caught.value) and "sqlite:///" in str(caught.value)


def test_other_programs_do_not_affect_where_mlflow_records(alone):
    """Regression: with MLFLOW_ACTIVE_MODEL_ID or a server's MLFLOW_ENABLE_WORKSPACES, nothing was recorded."""
    for name in ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID", "MLFLOW_ACTIVE_MODEL_ID", "MLFLOW_ENABLE_WORKSPACES"):
        alone.setenv(name, "0")
    alone.setenv("MLFLOW_TRACKING_TOKEN", "ours")
    alone.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "3")
    prepare_environment()
    kept = {name: value for name, value in os.environ.items() if name.startswith("MLFLOW_")}
    assert kept == DEFAULTS | {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_TRACKING_TOKEN": "ours"} | {
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "3"
    }


def test_a_value_that_mlflow_cannot_read_is_one_sentence(monkeypatch):
    from mlflow.environment_variables import MLFLOW_SQLALCHEMYSTORE_POOL_SIZE as size

    monkeypatch.setenv(size.name, "many")
    with pytest.raises(UserError, match=f"'many' for {size.name}: .*unset this variable"), explained("sqlite:///x"):
        size.get()


# Stands for the Python that creates .venv, and for the one in it: it records its environment.
PYTHON = """#!/bin/sh
env >>environment
mkdir -p .venv/bin
[ -e .venv/bin/python ] || cp "$0" .venv/bin/python
"""


def test_the_setup_installs_into_its_own_folder(tmp_path):
    """Regression: pip refused PIP_USER=1, and PIP_PREFIX or PYTHONPATH left .venv without packages."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "setup.py"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "faze" / "base").mkdir(parents=True)
    shutil.copy(ROOT / "faze" / "base" / "compiled.py", tmp_path / "faze" / "base")
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    foreign = {"PIP_USER": "1", "PIP_PREFIX": "/x", "PIP_TARGET": "/x", "PYTHONHOME": "/x", "PYTHONPATH": "/x"}
    inherited = os.environ | foreign | {"PIP_INDEX_URL": "https://mirror"}
    command = ["make", "-s", ".venv/installed", f"PYTHON={tmp_path / 'python'}"]
    subprocess.run(command, cwd=tmp_path, env=inherited, check=True, capture_output=True, text=True)
    found = dict(line.partition("=")[::2] for line in (tmp_path / "environment").read_text().splitlines())
    assert found["PIP_USER"] == "0" and found["PIP_INDEX_URL"] == "https://mirror"
    assert "/x" not in {found.get(name) for name in foreign}


def test_an_empty_compiler_means_the_default_one():
    """Regression: with CC= the kernels of faze were not compiled: Permission denied: ''."""
    program = "import setuptools; setuptools.setup = lambda **_: None; import os, setup; print(sorted(os.environ))"
    empty = dict.fromkeys(("CC", "CXX", "LDSHARED"), "")
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | empty, capture_output=True, text=True, check=True)
    assert not {f"'{name}'" for name in empty} & set(done.stdout.strip("[]\n").split(", "))


def test_a_resumed_training_reports_changed_variables(alone):
    identity = RunIdentity(config=None, fingerprint="", switches=(), notes=(), pixel_source="")
    start = {"event": "start", "machine": machine.describe()}
    assert identity.changes_since([start]) == ""
    alone.setenv("MKL_CBWR", "COMPATIBLE")
    assert identity.changes_since([start]) == "variables MKL_CBWR=COMPATIBLE (before: none)"
