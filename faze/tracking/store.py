"""The MLflow store: its address, first opening, experiment, failures, and chart view.

MLflow can lose runs in two ways: processes that open an empty database at the same time corrupt it, and processes that
create an experiment at the same time may store their runs in the wrong one. Therefore both operations are performed
under a lock, a database file is created atomically, and new runs refer to the experiment by its id.

MLflow's own table shows no metric until each is selected by hand. A shared view, stored as a tag of the experiment,
sets columns, order and filter for everybody who opens its address.
"""

import contextlib
import hashlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, unquote, urlencode, urlsplit

from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.base.locks import output_lock
from faze.config.parameters import Tracking

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment

SQLITE = "sqlite:///"
QUOTED, OPTION = f"{SQLITE}file:", "?uri=true"  # around a percent-encoded path
DATABASES = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}  # default ports
CONNECT_SECONDS = 5.0
CONCURRENT_CALLS = 8  # a remote server takes a tenth of a second for each, however small
PORT = 5000  # of the page
URI_VARIABLE = "MLFLOW_TRACKING_URI"

# Read when mlflow is imported. By default it reports its use over the network and retries a dead server for 4 minutes.
SILENCE = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
# Variables of another program's run or of a server. MLflow would add our models to that run's, or refuse our database.
FOREIGN_VARIABLES = (
    *("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_ACTIVE_MODEL_ID"),
    *("_MLFLOW_ACTIVE_MODEL_ID", "MLFLOW_ENABLE_ASYNC_LOGGING", "MLFLOW_ENABLE_WORKSPACES", "MLFLOW_REGISTRY_URI"),
)
DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}

# Sections of charts. Those of a training that is under way always exist, the others if they would not be empty.
LIVE = ("val", "train")
SECTIONS = ("error", "score", "speed", "memory", "curve", "redirection", "redirection_control", *LIVE)
CHARTS_PER_ROW, CHART_HEIGHT_PX, COLUMN_WIDTH_PX = 2, 280, 190  # narrower columns cut off names
COLUMNS = ("error/mpiigaze_deg", "error/gazecapture_deg", "speed/images_per_s", "speed/step_ms", "memory/peak_gib")
COLUMN_GROUPS = ("error/", "score/", "speed/", "memory/", "proof/")

_REBUILD = (
    "`snakemake --cores all ablation --forcerun track` (for a sweep: `... sweep --forcerun track_sweep`) rebuilds it"
    " from the results; run it for each ablation with its own --configfile"
)
_UNLOCKABLE = ("database is locked", "disk I/O error")  # SQLite's messages, also on a file system without locks
_DAMAGED = ("malformed", "not a database")  # in sqlite's messages: retrying would not help
_LIBRARIES = ("mlflow", "sqlalchemy", "alembic", "requests", "urllib3", "sqlite3", "botocore", "boto3", "s3transfer")
_REFUSALS = {  # HTTP status -> reason, and what makes the same command succeed
    401: (
        "it does not know this user or password",
        "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, are set for a known user",
    ),
    403: ("this user may not write to it", "its administrator allows this user to edit the experiment"),
}

Item, Answer = TypeVar("Item"), TypeVar("Answer")


@dataclass(frozen=True)
class Store:
    """An opened store and its experiment."""

    uri: str
    experiment_id: str
    client: "MlflowClient"
    lock: Path  # of all faze processes on this machine that write to the store

    @property
    def is_server(self) -> bool:
        """Whether the store is an MLflow server."""
        return urlsplit(self.uri).scheme in ("http", "https")


def having(tags: Mapping[str, str]) -> str:
    """Return a filter that matches runs or models with these tags."""
    return " and ".join(f"tags.{tag} = '{value}'" for tag, value in tags.items())


def current_runs(ablation: str) -> str:
    """Return a filter that matches an ablation's runs, except superseded ones."""
    return having({"ablation": ablation, "superseded": "false"})


def at_once(call: Callable[[Item], Answer], items: Iterable[Item]) -> list[Answer]:
    """Call the store for several items concurrently. After a failed call, no further call is started."""
    pool = ThreadPoolExecutor(CONCURRENT_CALLS)
    try:
        return list(pool.map(call, items))
    finally:
        pool.shutdown(cancel_futures=True)


def open_store(tracking: Tracking, results: Path) -> Store:
    """Open the store, creating its database and experiment if they do not exist.

    Args:
        tracking: the config section.
        results: folder of all ablations, which contains the default store.

    Raises:
        UserError: the store does not respond, was moved, or its experiment was deleted.
    """
    check_kind(tracking.uri)
    uri = resolve_uri(tracking.uri, results)
    lock = _lock_path(uri)
    _check_address(uri)
    prepare_environment()
    with output_lock(lock), explained(uri):
        from mlflow import MlflowClient

        logging.getLogger("alembic").setLevel(logging.WARNING)  # it reports each of forty steps of creating tables
        if uri.startswith(SQLITE) and not lock.exists():
            with whole_file(lock) as database:
                MlflowClient(tracking_uri=_sqlite_uri(database)).search_experiments(max_results=1)
        client = MlflowClient(tracking_uri=uri)
        artifacts = artifact_root(uri, results)
        experiment = _experiment(client, tracking.experiment, artifacts)
    # Artifact addresses are absolute, so a moved store would still write to its old folder.
    if uri == _default_uri(results) and experiment.artifact_location != artifacts:
        raise UserError(
            f"MLflow stores the artifacts of experiment {experiment.name!r} in {experiment.artifact_location}, not in"
            f" {artifacts}: were the results moved or copied? Remove mlflow.db beside them; {_REBUILD}"
        )
    return Store(uri, experiment.experiment_id, client, lock)


def resolve_uri(uri: str | None, results: Path) -> str:
    """Return the configured address, else $MLFLOW_TRACKING_URI, else a database in results/. Paths are absolute."""
    uri = uri or os.environ.get(URI_VARIABLE) or _default_uri(results)
    return _sqlite_uri(_database_path(uri)) if uri.startswith(SQLITE) else uri


def check_kind(uri: str | None) -> None:
    """Check that the configured address, else $MLFLOW_TRACKING_URI, is the address of a database or a server.

    Raises:
        UserError: it is the address of a folder, which MLflow 3 no longer writes to, or of another kind of store.
    """
    name = "tracking.uri" if uri else URI_VARIABLE
    uri = uri or os.environ.get(URI_VARIABLE) or SQLITE
    scheme = uri.partition(":")[0].partition("+")[0].lower()
    if scheme not in ("sqlite", "http", "https", "databricks", *DATABASES):
        shown = uri if "@" not in uri else f"{scheme}:..."  # it may contain a password
        raise UserError(
            f"{name}={shown} is not the address of a database or a server: unset it to use a database in results/, or "
            f"set it to an address such as {SQLITE}mlflow.db or http://server:5000"
        )


def artifact_root(uri: str, results: Path) -> str | None:
    """Return the location of a new experiment's artifacts, beside the database; None if a server chooses it."""
    if uri.startswith(SQLITE):
        return (_database_path(uri).parent / "mlartifacts").as_uri()
    scheme = urlsplit(uri).scheme.partition("+")[0]
    return (results.resolve() / "mlartifacts").as_uri() if scheme in DATABASES else None


def bare(uri: str) -> str:
    """Return an address without its user and password."""
    return uri.replace(_credentials(uri), "", 1)


def prepare_environment() -> None:
    """Disable telemetry, long retries and foreign runs, here and in child processes. Call before importing mlflow."""
    for name in FOREIGN_VARIABLES:
        os.environ.pop(name, None)
    os.environ |= {**DEFAULTS, **os.environ, **SILENCE}


@contextlib.contextmanager
def explained(uri: str) -> Iterator[None]:
    """Convert errors from MLflow, the database or the network to a UserError with a remedy."""
    try:
        yield
    except Exception as error:
        if "Failed to convert" in str(error) and "MLFLOW_" in str(error):
            raise UserError(f"{error}: correct or unset this variable") from error
        if not isinstance(error, OSError | ImportError) and type(error).__module__.split(".")[0] not in _LIBRARIES:
            raise
        root: BaseException = error  # "Connection refused" says more than the errors caused by it
        while cause := root.__cause__ or root.__context__:
            root = cause
        # mlflow's own errors have a status; those of requests have a response
        response = getattr(error, "response", None)
        status = getattr(error, "get_http_status_code", lambda: getattr(response, "status_code", None))()
        reason, until = _REFUSALS.get(status) or (" ".join(str(root).split())[:300], "the store responds")
        if uri.startswith(SQLITE) and any(text in reason for text in _DAMAGED):
            raise UserError(f"MLflow store {uri}: {reason}. Remove {_database_path(uri)}; {_REBUILD}") from error
        source = f" (from {URI_VARIABLE})" if uri == os.environ.get(URI_VARIABLE) else ""
        if uri.startswith(SQLITE) and any(text in reason for text in _UNLOCKABLE):
            until = (
                "no other program uses the database. If none does, its file system does not support locks: set "
                "tracking.uri to a server, or to sqlite:////FOLDER/mlflow.db on another disk"
            )
        raise UserError(
            f"MLflow store {bare(uri)}{source}: {reason.replace(_credentials(uri), '')}. Nothing is lost: the run logs"
            f" contain every value, and the same command mirrors them as soon as {until}"
        ) from error


def _default_uri(results: Path) -> str:
    return _sqlite_uri(results.resolve() / "mlflow.db")


def _sqlite_uri(path: Path) -> str:
    """Return a database's address, encoded if SQLAlchemy would take a part of the path for options."""
    return f"{QUOTED}{quote(os.fsencode(path))}{OPTION}" if "?" in str(path) else f"{SQLITE}{path}"


def _database_path(uri: str) -> Path:
    if uri.startswith(QUOTED) and uri.endswith(OPTION):
        return Path(unquote(uri.removeprefix(QUOTED).removesuffix(OPTION)))
    return Path(uri.removeprefix(SQLITE)).resolve()


def _lock_path(uri: str) -> Path:
    """Return the file that is locked while a store is opened or written: the SQLite database, else a temporary file."""
    if uri.startswith(SQLITE):
        return _database_path(uri)
    return Path(tempfile.gettempdir()) / f"faze-{os.getuid()}-{hashlib.sha256(uri.encode()).hexdigest()[:12]}"


def _credentials(uri: str) -> str:
    user, at, _ = urlsplit(uri).netloc.rpartition("@")
    return user + at


def _check_address(uri: str) -> None:
    """Check that a database's host accepts connections. MLflow itself would retry for minutes.

    Raises:
        UserError: the host does not respond, or the address is invalid.
    """
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:  # its message may contain a part of a password
        raise UserError(
            "the address of the MLflow store, in tracking.uri or MLFLOW_TRACKING_URI, is invalid: ports must be at "
            "most 65535, IPv6 hosts need brackets, and special characters in a password must be percent-encoded (/ "
            "as %2F, @ as %40, ? as %3F, # as %23)"
        ) from None
    scheme = parts.scheme.partition("+")[0]
    if scheme in DATABASES and parts.hostname:
        with explained(uri):
            socket.create_connection((parts.hostname, port or DATABASES[scheme]), timeout=CONNECT_SECONDS).close()


def _experiment(client: "MlflowClient", name: str, artifacts: str | None) -> "Experiment":
    """Find or create the experiment; raise UserError if it was deleted."""
    from mlflow.exceptions import MlflowException

    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        try:
            experiment = client.get_experiment(client.create_experiment(name, artifact_location=artifacts))
        except MlflowException:  # another machine created it in between, or it cannot be created
            experiment = client.get_experiment_by_name(name)
            if experiment is None:
                raise
    if experiment.lifecycle_stage != "active":
        raise UserError(
            f"MLflow's experiment {name!r} is deleted: restore it there, or set another tracking.experiment"
        )
    return experiment


def share_view(store: Store, ablation: str) -> None:
    """Store an ablation's chart view in the experiment: the runs in tier order, the results as columns.

    This is the state that MLflow's "share view" saves. MLflow itself adds the charts, grouped by metric prefix.
    """
    with explained(store.uri):
        runs = store.client.search_runs([store.experiment_id], current_runs(ablation))
        logged = dict.fromkeys(key for run in runs for key in sorted(run.data.metrics))
        known = [key for key in logged if key.startswith(COLUMN_GROUPS)]
        first = [name for name in COLUMNS if name in known]
        metrics = sorted(dict.fromkeys([*first, *known]), key=lambda k: COLUMN_GROUPS.index(f"{k.split('/')[0]}/"))
        columns = [f"metrics.`{metric}`" for metric in metrics]
        size = {"columns": CHARTS_PER_ROW, "cardHeight": CHART_HEIGHT_PX}
        filled = {*LIVE, *(key.split("/")[0] for key in logged)}
        sections = [
            {"uuid": name, "name": name, "display": True, "isReordered": False} | size
            for name in SECTIONS
            if name in filled
        ]
        state = {
            "searchFilter": current_runs(ablation),
            "orderByKey": "tags.`mlflow.runName`",
            "orderByAsc": True,
            "selectedColumns": columns,
            "columnOrder": columns,
            "columnWidths": dict.fromkeys(columns, COLUMN_WIDTH_PX),
            "compareRunSections": sections,
            "compareRunCharts": [],
            "isAccordionReordered": True,
        }
        tag = f"mlflow.sharedViewState.{ablation}"
        store.client.set_experiment_tag(store.experiment_id, tag, json.dumps(state))


def address(store: Store, ablation: str, port: int = PORT) -> str:
    """Return the URL of the chart view, on the store's own server or on the one that `make ui` starts."""
    host = bare(store.uri).rstrip("/") if store.is_server else f"http://127.0.0.1:{port}"
    query = {"viewStateShareKey": ablation, "compareRunsMode": "CHART", "workflowType": "machine_learning"}
    return f"{host}/#/experiments/{store.experiment_id}/runs?{urlencode(query)}"


@contextlib.contextmanager
def serving(store: Store, results: Path, port: int = PORT) -> Iterator[subprocess.Popen | None]:
    """Run MLflow's server during the block; yield None if the store is itself a server.

    Raises:
        UserError: the port is taken, or the server exits before it responds.
    """
    if store.is_server:
        yield None
        return
    if _answers(port):
        raise UserError(f"port {port} is taken: close the page that uses it, or set --port")
    # Without job execution and with one worker it is two processes instead of fifteen.
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", store.uri, "--workers", "1"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--uvicorn-opts", "--log-level warning"]
    if store.uri.startswith(SQLITE):
        command += ["--default-artifact-root", str(artifact_root(store.uri, results))]
    server = subprocess.Popen(command, env=environment, start_new_session=True)
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


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
