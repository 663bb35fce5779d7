"""Odd paths and dates of the checkout, the results and the user's data, as Snakemake sees them."""

import os
import shutil
import time
from pathlib import Path

import pytest
from checkout import NOTHING, Checkout
from data_sets import overrides
from lacking import lacking

pytestmark = pytest.mark.workflow


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    return Checkout(tmp_path_factory.mktemp("fresh") / "faze", "config/smoke.yaml")


def refusal(checkout: Checkout) -> str:
    """Return Snakemake's message when it refuses to start."""
    answer = checkout.snakemake("-n", "ablation")
    assert answer.code == 1 and "Traceback" not in answer.text, answer.text
    return answer.text


def test_braces_in_the_path_of_the_checkout(tmp_path):
    """Regression: a traceback about an unknown variable."""
    checkout = Checkout(tmp_path / "a{b}" / "faze", "config/smoke.yaml")
    assert f"{checkout.folder}: Snakemake treats braces in this path as wildcards: rename" in refusal(checkout)


def test_braces_in_the_path_of_the_data(fresh, tmp_path):
    """Regression: "Wildcards in input files cannot be determined"."""
    (tmp_path / "{b}").mkdir()
    with fresh.appended("config/smoke.yaml", overrides(mpiigaze={"path": tmp_path / "{b}"})):
        text = refusal(fresh)
    assert f"preprocess.datasets: path of mpiigaze: {tmp_path}/{{b}} contains braces" in text


def test_data_from_the_future(fresh, tmp_path):
    """Regression: each run made the store for hours and then removed it, since it looked older than the data."""
    os.utime(tmp_path, (time.time(), time.time() + 40 * 86400))
    with fresh.appended("config/smoke.yaml", overrides(mpiigaze={"path": tmp_path})):
        assert f"preprocess.datasets: path of mpiigaze: {tmp_path} is dated " in refusal(fresh)
    os.utime(tmp_path)
    with fresh.appended("config/smoke.yaml", overrides(mpiigaze={"path": tmp_path})):
        fresh.dry_run("ablation")


def test_results_whose_name_differs_only_in_case(fresh):
    """On macOS and Windows, both ablations would be in one folder."""
    other = fresh.folder / "results" / "SMOKE"
    other.mkdir(parents=True)
    assert "name: smoke differs from results/SMOKE only in case" in refusal(fresh)
    (fresh.folder / "results" / "smoke").mkdir()  # a file system that has both
    fresh.dry_run("ablation")
    other.rmdir()


def test_results_outside_of_a_checkout_that_stays_as_it_is(tmp_path):
    """Regression: --directory was refused. The results are where no mode, link or lock exists, in an odd path."""
    checkout = Checkout(tmp_path / "faze", "config/tiny.yaml")
    shutil.copy(Path(__file__).with_name("tiny.yaml"), checkout.folder / "config")
    results, before = tmp_path / "there {x} ?#%é", set(checkout.folder.rglob("*"))
    results.mkdir()
    words, variables = ("--directory", str(results), "results/tiny/raw/truth.h5"), lacking(results)
    answer = checkout.snakemake("--cores", "1", *words, **variables)
    assert answer.code == 0, answer.text
    assert (results / words[-1]).exists() and ".snakemake: this file system has no locks" in answer.text
    assert {path for path in checkout.folder.rglob("*") if "__pycache__" not in path.parts} == before
    assert NOTHING in checkout.snakemake("-n", *words, **variables).text
