"""The chart view of an ablation: what it shows, its address, and the server that shows it.

MLflow's own table shows no metric at all until each is ticked by hand. A shared view, kept as a tag of the experiment,
sets columns, order and filter for whoever opens its address.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from faze.base.errors import UserError
from faze.tracking.store import SQLITE, Store, artifact_root, bare, explained, prepare_environment

PORT = 5000
# Of charts, in the order in which one reads them.
SECTIONS = ("error", "speed", "memory", "curve", "redirection", "redirection_control", "val", "train")
CHARTS_ABREAST, CHART_HEIGHT_PX, COLUMN_WIDTH_PX = 2, 280, 190  # names are cut off in anything narrower
COLUMNS = ("error/mpiigaze_deg", "error/gazecapture_deg", "speed/images_per_s", "speed/step_ms", "memory/peak_gib")
COLUMN_GROUPS = tuple(dict.fromkeys(f"{column.partition('/')[0]}/" for column in COLUMNS))


def share_view(store: Store, ablation: str) -> None:
    """Keep the view of one ablation in the experiment: the ladder in order, its results as columns."""
    query = current_runs(ablation)
    with explained(store.uri):
        runs = store.client.search_runs([store.experiment_id], query)
        keys = dict.fromkeys(COLUMNS)
        keys |= dict.fromkeys(key for run in runs for key in sorted(run.data.metrics) if key.startswith(COLUMN_GROUPS))
        metrics = sorted(keys, key=lambda key: COLUMN_GROUPS.index(f"{key.partition('/')[0]}/"))
        view = json.dumps(_state(query, metrics))
        store.client.set_experiment_tag(store.experiment_id, f"mlflow.sharedViewState.{ablation}", view)


def _state(query: str, metrics: Sequence[str]) -> dict[str, object]:
    """Make what MLflow's "share view" would save; it adds the charts itself, each to the section of its prefix."""
    columns = [f"metrics.`{metric}`" for metric in metrics]
    size = {"columns": CHARTS_ABREAST, "cardHeight": CHART_HEIGHT_PX}
    sections = [{"uuid": name, "name": name, "display": True, "isReordered": False} | size for name in SECTIONS]
    return {
        "searchFilter": query,
        "orderByKey": "tags.`mlflow.runName`",
        "orderByAsc": True,
        "selectedColumns": columns,
        "columnOrder": columns,
        "columnWidths": dict.fromkeys(columns, COLUMN_WIDTH_PX),
        "compareRunSections": sections,
        "compareRunCharts": [],
        "isAccordionReordered": True,
    }


def current_runs(ablation: str) -> str:
    """Filter out the runs that a newer one replaced."""
    return f"tags.ablation = '{ablation}' and tags.superseded = 'false'"


def address(store: Store, ablation: str, port: int = PORT) -> str:
    """Give the URL of the chart view, on the server that `make ui` starts or on the store's own."""
    host = bare(store.uri).rstrip("/") if _is_server(store) else f"http://127.0.0.1:{port}"
    query = {"viewStateShareKey": ablation, "compareRunsMode": "CHART", "workflowType": "machine_learning"}
    return f"{host}/#/experiments/{store.experiment_id}/runs?{urlencode(query)}"


def _is_server(store: Store) -> bool:
    return urlsplit(store.uri).scheme in ("http", "https")


def invitation(store: Store, ablation: str) -> str:
    """Say how to open the chart view, for the end of an ablation."""
    return f"Compare the runs in MLflow: {'' if _is_server(store) else 'make ui, then '}{address(store, ablation)}"


@contextlib.contextmanager
def serving(store: Store, results: Path, port: int = PORT) -> Iterator[subprocess.Popen | None]:
    """Keep MLflow's own server up for the block; None where the store is a server already.

    Raises:
        UserError: the port is taken, or the server ends before it answers.
    """
    if _is_server(store):
        yield None
        return
    if _answers(port):
        raise UserError(f"port {port} of this machine is taken: is another page open there? Else give --port")
    prepare_environment()
    # Without job execution and with one worker it is two processes instead of fifteen.
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "PYTHONWARNINGS": "ignore"}
    server = subprocess.Popen(_command(store, results, port), env=environment, start_new_session=True)
    try:
        while not _answers(port):
            if server.poll() is not None:
                raise UserError(f"MLflow's server ended with exit code {server.returncode}")
            time.sleep(0.2)
        yield server
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def _command(store: Store, results: Path, port: int) -> list[str]:
    command = [
        *(sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", store.uri, "--workers", "1"),
        *("--host", "127.0.0.1", "--port", str(port), "--uvicorn-opts", "--log-level warning"),
    ]
    if store.uri.startswith(SQLITE):
        command += ["--default-artifact-root", str(artifact_root(store.uri, results))]
    return command


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
