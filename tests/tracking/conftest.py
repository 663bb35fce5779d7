"""A store in a temporary folder and, next to it, the results of a separate ablation for each test."""

import pytest
from tracking_tree import TIERS, write_results

from faze.config.parameters import Tracking
from faze.tracking.store import current_runs, having, open_store


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return open_store(Tracking("faze", None), tmp_path_factory.mktemp("all") / "results")


@pytest.fixture
def paths(store, request):
    name = request.node.name.replace("[", "_").replace("]", "")
    return write_results(store.lock.parent / name, TIERS[:2], steps=8)


@pytest.fixture
def search_runs(store, paths):
    """Return a function that finds the ablation's runs, or only those that were not replaced if `current`."""

    def search(current=False):
        name = paths.root.name
        query = current_runs(name) if current else having({"ablation": name})
        return {run.info.run_id: run for run in store.client.search_runs([store.experiment_id], query)}

    return search


@pytest.fixture
def search_models(store, paths):
    def search(**tags):
        query = having({"ablation": paths.root.name} | tags)
        return store.client.search_logged_models([store.experiment_id], query)

    return search
