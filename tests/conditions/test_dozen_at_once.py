"""From rendering to few-shot errors and a page of the data, under a dozen odd conditions at once."""

import os
import resource
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import NOTHING, Checkout, environment

pytestmark = pytest.mark.workflow
# `ablation` succeeds too, in 56 s of processor time.
TARGETS = ("results/tiny/baseline/seed0/fewshot/offset_errors.parquet", "results/tiny/inspection/mpiigaze")


def odd_variables(folder: Path, temporary: str) -> dict[str, str]:
    """Return variables without a UTF-8 locale, a network, a GPU, a home directory and compilers."""
    proxies = {f"{scheme}_proxy": "http://127.0.0.1:9" for scheme in ("http", "https", "all")}
    (folder / "bin").mkdir()
    for program in ("bash", "sh", "tee", "flock", "true", "git"):
        if found := shutil.which(program):
            (folder / "bin" / program).symlink_to(found)
    changed = {
        "LC_ALL": "C",
        "PATH": os.fspath(folder / "bin"),
        "HOME": os.fspath(folder / "no home"),
        "CUDA_VISIBLE_DEVICES": "garbage,,-7",
        "TMPDIR": temporary,
        "TZ": "Nowhere/Odd",
        "COLUMNS": "1",
    }
    return environment() | proxies | {name.upper(): value for name, value in proxies.items()} | changed


def limit() -> None:
    """Limit a process that is about to start to one core, few open files, and files that nobody else can read."""
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])


@pytest.fixture
def temporary() -> Iterator[str]:
    """Create a folder whose path is short enough for sockets, unlike that of pytest's own."""
    with tempfile.TemporaryDirectory(prefix="tmp ?") as folder:
        yield folder


def test_a_dozen_odd_conditions_at_once(tmp_path, temporary):
    checkout = Checkout(tmp_path / "a #(1) %20 é?'" / "faze", "config/tiny.yaml")
    shutil.copy(Path(__file__).with_name("tiny.yaml"), checkout.folder / "config")
    how = {
        "cwd": checkout.folder,
        "env": odd_variables(tmp_path, temporary),
        "preexec_fn": limit,
        "stdin": subprocess.DEVNULL,
    }
    how |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "encoding": "utf-8", "errors": "replace"}
    done = subprocess.run(checkout.command("--cores", "1", *TARGETS), **how)
    assert done.returncode == 0, done.stdout[-8000:]
    results = checkout.folder / "results"
    assert (checkout.folder / TARGETS[0]).exists() and (checkout.folder / TARGETS[1] / "index.html").exists()
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in results.rglob("*")}
    assert not [path for path, mode in modes.items() if mode != (0o700 if path.is_dir() else 0o600)]
    again = subprocess.run(checkout.command("-n", *TARGETS), **how)
    assert NOTHING in again.stdout, again.stdout[-4000:]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a #(1) %20 é?'", "bin", "no home"]
