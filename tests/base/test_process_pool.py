"""Processes of a pool start quickly, inherit no open files, end with their parent, and cause few page faults."""

import fcntl
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from faze.base.process_pool import worker_processes

ROOT = Path(__file__).parents[2]


def nothing() -> None:
    """Initialise a process of a pool."""


def page_faults() -> int:
    """Count the page faults of this process while it allocates and frees four images of 4 MB twenty times."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        images = [np.empty(4 << 20, np.uint8) for _ in range(4)]
        for image in images:
            image[:] = 1
        del images, image
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif("glibc" not in os.confstr("CS_GNU_LIBC_VERSION"), reason="other C libraries have ways of their own")
def test_freed_images_are_not_faulted_in_anew() -> None:
    """Fails if glibc is not told to retain freed memory."""
    with worker_processes(1, nothing) as pool:
        pool.submit(page_faults).result()
        kept = pool.submit(page_faults).result()
    code = "import test_process_pool as t; t.page_faults(); print(t.page_faults())"
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    plain = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, check=True)
    assert kept * 10 < int(plain.stdout)


def test_a_process_does_not_hold_our_locks(tmp_path: Path) -> None:
    """Otherwise, an orphan of a killed run would delay the next run. Regression: forked processes inherited locks."""
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with worker_processes(1, nothing) as pool:
            pool.submit(nothing).result()
            lock.close()  # ours is gone
            with (tmp_path / "lock").open("w") as again:
                fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)


def stop_forever() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_is_one_sentence() -> None:
    with pytest.raises(ChildProcessError, match="process was killed"), worker_processes(1, nothing) as pool:
        pool.submit(stop_forever).result()


SCRIPT = """
from test_process_pool import loaded, nothing
from faze.base.process_pool import load_ahead, worker_processes

load_ahead("faze.data.preparation.work")
with worker_processes(1, nothing) as pool:
    print(pool.submit(loaded).result())
"""


def loaded() -> bool:
    """Return whether the module to preload has been loaded, and no large module has."""
    return "faze.data.preparation.work" in sys.modules and not {"torch", "scipy", "matplotlib"} & set(sys.modules)


def test_modules_are_loaded_once_for_all_processes() -> None:
    """Fails if processes are spawned."""
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    done = subprocess.run([sys.executable, "-c", SCRIPT], env={"PYTHONPATH": path}, capture_output=True, check=False)
    assert done.stdout == b"True\n", done.stderr
