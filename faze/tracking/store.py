"""The MLflow store: where it lies, its first opening, its experiment.

Two things lose runs without a word in MLflow itself: processes that open an empty database together break it, and
processes that make an experiment together file their runs under another. So both happen under a lock here, a database
file appears whole or not at all, and runs are made by the experiment's id.
"""

import contextlib
import hashlib
import logging
import os
import socket
import tempfile
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.base.locks import output_lock
from faze.config.parameters import Tracking

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment

SQLITE = "sqlite:///"
DATABASES = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
PORTS = {"http": 80, "https": 443} | DATABASES
CONNECT_SECONDS = 5.0
CALLS_AT_ONCE = 8  # a server far away takes a tenth of a second for each, however small

# Read when mlflow is imported. By default it reports its use over the network, tries for four minutes to reach a server
# that is down, and chats.
SILENCE = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


Item, Answer = TypeVar("Item"), TypeVar("Answer")


@dataclass(frozen=True)
class Store:
    """An opened store and the experiment in it."""

    uri: str
    experiment_id: str
    client: "MlflowClient"
    lock: Path

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep every other faze process on this machine from making runs in this store."""
        with output_lock(self.lock), explained(self.uri):
            yield


def having(tags: Mapping[str, str]) -> str:
    """Write the filter for runs or models with these tags."""
    return " and ".join(f"tags.{tag} = '{value}'" for tag, value in tags.items())


def at_once(call: Callable[[Item], Answer], items: Iterable[Item]) -> list[Answer]:
    """Make calls of a store side by side; after one that failed, none begins."""
    pool = ThreadPoolExecutor(CALLS_AT_ONCE)
    try:
        return list(pool.map(call, items))
    finally:
        pool.shutdown(cancel_futures=True)


def open_store(tracking: Tracking, results: Path) -> Store:
    """Open the store, make what it lacks, and find the experiment.

    Args:
        tracking: the config section.
        results: folder of all ablations; the default store lies in it.

    Raises:
        UserError: the store does not answer, was moved, or its experiment was deleted.
    """
    uri = resolve_uri(tracking.uri, results)
    lock = lock_path(uri)
    check_answers(uri)
    prepare_environment()
    with output_lock(lock), explained(uri):
        from mlflow import MlflowClient

        # alembic reports each of its forty steps when it makes the tables.
        logging.getLogger("alembic").setLevel(logging.WARNING)
        if uri.startswith(SQLITE) and not database_path(uri).exists():
            _create_database(database_path(uri))
        client = MlflowClient(tracking_uri=uri)
        experiment = _experiment(client, tracking.experiment, artifact_root(uri, results))
    if uri == default_uri(results):
        _check_place(experiment, artifact_root(uri, results))
    return Store(uri, experiment.experiment_id, client, lock)


def resolve_uri(uri: str | None, results: Path) -> str:
    """Take the configured store, else $MLFLOW_TRACKING_URI, else a database under results/; always absolute."""
    uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or default_uri(results)
    return f"{SQLITE}{database_path(uri)}" if uri.startswith(SQLITE) else uri


def default_uri(results: Path) -> str:
    """Name the database beside the results."""
    return f"{SQLITE}{results.resolve() / 'mlflow.db'}"


def database_path(uri: str) -> Path:
    """Name the file of a sqlite store."""
    return Path(uri.removeprefix(SQLITE)).resolve()


def artifact_root(uri: str, results: Path) -> str | None:
    """Tell where a new experiment keeps its artifacts: beside the database; None where a server decides."""
    if uri.startswith(SQLITE):
        return (database_path(uri).parent / "mlartifacts").as_uri()
    scheme = urlsplit(uri).scheme.partition("+")[0]
    return (results.resolve() / "mlartifacts").as_uri() if scheme in DATABASES else None


def lock_path(uri: str) -> Path:
    """Lay the lock beside the database, or in the temporary folder for a store elsewhere."""
    if uri.startswith(SQLITE):
        return database_path(uri)
    return Path(tempfile.gettempdir()) / f"faze-{os.getuid()}-{hashlib.sha256(uri.encode()).hexdigest()[:12]}"


def bare(uri: str) -> str:
    """Show the address without user and password."""
    return uri.replace(_credentials(uri), "", 1)


def _credentials(uri: str) -> str:
    user, at, _ = urlsplit(uri).netloc.rpartition("@")
    return user + at


def prepare_environment() -> None:
    """Turn telemetry off and long retries down; before mlflow is imported, here and in the processes we start."""
    os.environ |= {**DEFAULTS, **os.environ, **SILENCE}


def check_answers(uri: str) -> None:
    """Knock at the store's host: mlflow itself would take minutes to give up on a database.

    Raises:
        UserError: nobody answers, or it is no address.
    """
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:  # whose words may hold a part of a password
        raise UserError(
            "the address of the MLflow store, in tracking.uri or MLFLOW_TRACKING_URI, is none: a port is a number to"
            " 65535, an IPv6 host stands in brackets, and in a password / is %2F, @ %40, ? %3F, # %23"
        ) from None
    scheme = parts.scheme.partition("+")[0]
    proxied = scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(parts.hostname or "")
    if scheme not in PORTS or not parts.hostname or proxied:
        return
    with explained(uri):
        socket.create_connection((parts.hostname, port or PORTS[scheme]), timeout=CONNECT_SECONDS).close()


@contextlib.contextmanager
def explained(uri: str) -> Iterator[None]:
    """Turn whatever a store can fail with into one sentence that says what to do.

    Raises:
        UserError: instead of mlflow's, the database's or the network's errors.
    """
    try:
        yield
    except Exception as error:
        if not isinstance(error, OSError | ImportError) and type(error).__module__.split(".")[0] not in _FOREIGN:
            raise
        reason, until = _refusal(error) or (" ".join(str(_root(error)).split())[:300], "the store answers")
        if uri.startswith(SQLITE) and any(words in reason for words in _DAMAGED):
            raise UserError(f"MLflow store {uri}: {reason}. Remove {database_path(uri)}; {_AGAIN}") from error
        raise UserError(
            f"MLflow store {bare(uri)}: {reason.replace(_credentials(uri), '')}. Nothing is lost: the run logs hold"
            f" every value, and the same command mirrors them as soon as {until}"
        ) from error


_AGAIN = (
    "`snakemake --cores all ablation --forcerun track`, of a sweep `... sweep --forcerun track_sweep`, makes it again"
    " from the results, of each ablation with its own --configfile"
)
_DAMAGED = ("malformed", "not a database")  # sqlite's words: trying again would not help
_FOREIGN = ("mlflow", "sqlalchemy", "alembic", "requests", "urllib3", "sqlite3", "botocore", "boto3", "s3transfer")
_REFUSALS = {
    401: (
        "it does not know this user or password",
        "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, are those of a user whom it"
        " knows",
    ),
    403: ("it does not let this user write", "its administrator gives this user the right to edit the experiment"),
}


def _refusal(error: Exception) -> tuple[str, str] | None:
    """Tell a refusal by HTTP's status, which mlflow's own errors know, and those of requests by their answer."""
    answer = getattr(error, "response", None)
    status = getattr(error, "get_http_status_code", lambda: getattr(answer, "status_code", None))()
    return _REFUSALS.get(status)


def _root(error: BaseException) -> BaseException:
    """Find the first cause: 'Connection refused' says more than the layers above it."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__
    return error


def _create_database(path: Path) -> None:
    """Make a database with all tables and rename it into place: a kill meanwhile leaves nothing broken behind."""
    from mlflow import MlflowClient

    with whole_file(path) as temporary:
        MlflowClient(tracking_uri=f"{SQLITE}{temporary}").search_experiments(max_results=1)


def _experiment(client: "MlflowClient", name: str, artifacts: str | None) -> "Experiment":
    from mlflow.exceptions import MlflowException

    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        try:
            experiment = client.get_experiment(client.create_experiment(name, artifact_location=artifacts))
        except MlflowException:  # another machine made it between the two calls, or it really cannot be made
            experiment = client.get_experiment_by_name(name)
            if experiment is None:
                raise
    if experiment.lifecycle_stage != "active":
        raise UserError(f"MLflow's experiment {name!r} is deleted: restore it there, or set tracking.experiment anew")
    return experiment


def _check_place(experiment: "Experiment", artifacts: str | None) -> None:
    """Refuse a moved or copied store: artifact addresses are absolute, so it would still write to its old place."""
    if experiment.artifact_location != artifacts:
        raise UserError(
            f"MLflow keeps the artifacts of experiment {experiment.name!r} in {experiment.artifact_location}, not in"
            f" {artifacts}: were the results moved or copied? Remove mlflow.db beside them; {_AGAIN}"
        )
