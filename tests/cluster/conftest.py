"""The cluster that `make cluster` has started."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import wait_until_idle
from on_cluster import Cluster, ask, until

FOLDER = os.environ.get("FAZE_CLUSTER")


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    if not FOLDER:
        pytest.skip("no cluster: make cluster")
    return Cluster(Path(FOLDER))


@pytest.fixture(autouse=True)
def empty(cluster: Cluster) -> Iterator[None]:
    """Start and end each test with a cluster on which nothing runs."""
    wait_until_idle(cluster.folder)
    yield
    subprocess.run(["scancel", "--user", "root"], check=True)
    until(lambda: not ask("squeue", "-h").strip(), "an empty queue")
