"""Fixtures that several test folders share."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from golden_files import ALL, FOLDERS, arrays_of
from stage_runs import call_stage

from faze.native import compiled

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read at Triton's first import: its kernels then run in its interpreter

# Read by OpenMP when torch is loaded, so by what the tests start. Its second thread shares a core with another test,
# and would spin while it waits: a training of 96 pairs took 18.6 s of processor time instead of 4.9.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # so it is in a shell's background job, and in all that it starts
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Of tests/workflow: they ask for one smoke ablation.
FINISHED = ("test_ablation", "test_reruns", "test_tutorials", "test_real_data")
# Files that start workflows or trainings take longest, so they run first, in this order; then all others.
LONGEST = ("test_killed_ablation", *FINISHED, "test_workload", "test_inherited", "test_kills", "test_tiers")


def rank(item: pytest.Item) -> int:
    return LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=rank)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    """With --dist loadfile, let one worker run all files that share the finished ablation, which then runs once."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = Path(nodeid.split("::")[0]).stem
            return "finished" if file in FINISHED else file

    return Together(config, log)


@pytest.fixture(scope="session", autouse=True)
def machine_lock(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep tests from delaying benchmarks on this machine, and from being refused because of them."""
    os.environ["FAZE_MACHINE_LOCK"] = str(tmp_path_factory.mktemp("machine") / "lock")


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Make results independent of other load and of the number of cores."""
    torch.set_num_threads(1)


@pytest.fixture
def run_stage(tmp_path: Path) -> Callable[..., int]:
    """Return run_stage("encode", {"encode": {"batch": 2}}, data=..., out=...) -> exit code; see `call_stage`."""

    def run(stage: str, *arguments: object, folder: Path = tmp_path, **options: object) -> int:
        return call_stage(stage, folder, *arguments, **options)

    return run


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run as after an installation without a C compiler: no C kernel is found."""
    monkeypatch.setattr(compiled, "library_name", lambda kernel, level: "none")
    compiled.library.cache_clear()
    yield
    compiled.library.cache_clear()


@pytest.fixture(scope="session")
def golden_dir() -> Path:
    if not ALL.is_dir():
        pytest.skip(f"no golden numbers in {ALL} (set FAZE_GOLDEN_DIR)")
    return ALL


@pytest.fixture(scope="session")
def golden(golden_dir: Path) -> Callable[[str], dict[str, np.ndarray]]:
    """Return golden("normalize") -> the arrays in normalize.npz by key, for arrays that are not in tests/golden."""
    return lambda name: arrays_of(golden_dir / f"{name}.npz")


@pytest.fixture(scope="session", params=FOLDERS.values(), ids=FOLDERS)
def numbers(request: pytest.FixtureRequest) -> Callable[[str], dict[str, np.ndarray]]:
    """Return such a function for tests/golden, which always exists; also for the larger files, if these exist."""
    return lambda name: arrays_of(request.param / f"{name}.npz")
