"""The user's own data: raw folders by path, and strips that are already normalised."""

import json
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
from checkout import Answer, Checkout
from data_sets import DATASETS, overrides

pytestmark = pytest.mark.workflow

ERRORS = "results/real/baseline/seed0/fewshot/maml_errors.parquet"


def run_with(folder: Path, changes: dict[str, dict], target: str) -> tuple[Checkout, Answer]:
    """Run a target of the smoke ablation's first tier on these data, with one file of overrides."""
    checkout = Checkout(folder / "faze", "real.yaml")
    smoke = (checkout.folder / "config/sizes/smoke.yaml").read_text(encoding="utf-8")
    tiers = "[baseline, amp, ddp, recompute]"
    assert tiers in smoke
    smoke = smoke.replace("name: smoke", "name: real").replace(tiers, "[baseline]")
    (checkout.folder / "real.yaml").write_text(smoke + overrides(**changes), encoding="utf-8")
    answer = checkout.snakemake("--cores", "all", target)
    assert answer.code == 0, answer.text[-8000:]
    assert "rule synthesise" not in answer.text
    assert not (checkout.folder / "results/real/raw").exists()
    return checkout, answer


def errors(checkout: Checkout) -> pd.DataFrame:
    return pd.read_parquet(checkout.folder / ERRORS)


@pytest.fixture(scope="module")
def from_raw(done_raw: Path, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """Run the ablation on raw folders: MPIIFaceGaze with its own annotation, GazeCapture with supplementary file."""
    supplementary = done_raw / "phone_supplementary.h5"
    changes = {
        "laptop": {"path": done_raw / "laptop"},
        "phone": {"path": done_raw / "phone", "supplementary": supplementary},
    }
    return run_with(tmp_path_factory.mktemp("raw"), changes, "ablation")[0]


@pytest.fixture(scope="module")
def done_raw(finished: tuple[Checkout, Answer]) -> Path:
    """Return the raw folders of people in the data sets' own layouts."""
    return finished[0].folder / "results/smoke/raw"


def test_raw_folders_make_the_ablation(from_raw: Checkout, done_raw: Path) -> None:
    results = from_raw.folder / "results/real"
    page = (results / "report/index.html").read_text(encoding="utf-8")
    assert "synthetic" not in page.split("</header>")[0].lower()
    for dataset in DATASETS:
        with (
            h5py.File(results / f"data/{dataset}.h5") as ours,
            h5py.File(done_raw.parent / f"data/{dataset}.h5") as rendered,
        ):
            assert list(ours) == list(rendered)
            for person in ours:
                assert (ours[person]["pixels"][:] == rendered[person]["pixels"][:]).all()
                assert (ours[person]["labels"][:] == rendered[person]["labels"][:]).all()


def test_strips_in_the_released_layout_give_the_same_errors(from_raw: Checkout, tmp_path: Path) -> None:
    """There are no frames, only pixels and labels, in compressed chunks of one strip, and a separate file of splits."""
    split: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    changes = {}
    for dataset in DATASETS:
        changes[dataset] = {"layout": "strips", "path": tmp_path / f"{dataset}.h5"}
        with (
            h5py.File(from_raw.folder / f"results/real/data/{dataset}.h5") as ours,
            h5py.File(changes[dataset]["path"], "w", libver="latest") as released,
        ):
            for person, group in ours.items():
                pixels, labels = group["pixels"][:], group["labels"][:]
                chunks = (1, *pixels.shape[1:])
                released.create_dataset(f"{person}/pixels", data=pixels, chunks=chunks, compression="lzf")
                released.create_dataset(f"{person}/labels", data=labels, chunks=(1, 4), compression="lzf")
                if dataset == "phone":
                    split[group.attrs["split"]].append(person)
    changes["phone"]["splits"] = tmp_path / "phone_split.json"
    changes["phone"]["splits"].write_text(json.dumps(split), encoding="utf-8")
    again = errors(run_with(tmp_path, changes, ERRORS)[0])
    before = errors(from_raw)
    assert list(again.columns) == list(before.columns)
    assert np.array_equal(again["error_deg"], before["error_deg"])
