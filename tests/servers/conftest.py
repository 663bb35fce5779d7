"""A team's MLflow: server, PostgreSQL, S3; started once, and restarted by tests that stop one of them."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("servers")


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    from services import Postgres

    database = Postgres(tmp_path_factory.mktemp("postgres") / "log")
    database.recovered()
    yield database
    database.kill()
    shutil.rmtree(database.folder)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    from services import S3

    storage = S3(tmp_path_factory.mktemp("s3") / "log")
    yield storage
    storage.kill()


@pytest.fixture(scope="session")
def team(postgres, s3, tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    """Start a server with a database and a bucket; yield .server, .database and .s3."""
    from services import BUCKET, Mlflow

    log = tmp_path_factory.mktemp("mlflow") / "log"
    server = Mlflow(log, postgres.uri, f"s3://{BUCKET}", MLFLOW_S3_ENDPOINT_URL=s3.url)
    yield SimpleNamespace(server=server, database=postgres, s3=s3)
    server.kill()
