"""A smoke run for all tests of a finished ablation."""

import pytest
from checkout import Answer, Checkout


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """Return a checkout in which nothing has run."""
    return Checkout(tmp_path_factory.mktemp("fresh") / "faze", "config/sizes/smoke.yaml")


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkout, Answer]:
    """Return a checkout in which the plain command has made the smoke ablation, and the command's output."""
    checkout = Checkout(tmp_path_factory.mktemp("finished") / "faze", "config/sizes/smoke.yaml")
    answer = checkout.snakemake("--cores", "all", "ablation")
    assert answer.code == 0, answer.text[-8000:]
    return checkout, answer


@pytest.fixture
def done(finished: tuple[Checkout, Answer]) -> Checkout:
    return finished[0]
