"""The user's own data: a raw folder by path, and strips that are already normalised."""

import json
from pathlib import Path

import h5py
import pandas as pd
import pytest
from checkout import Checkout
from data_sets import DATASETS, overrides

pytestmark = pytest.mark.workflow

ERRORS = "baseline/seed0/fewshot/maml_errors.parquet"


def write_released_strips(store: Path, folder: Path) -> dict[str, Path]:
    """Write strips as the released code does, and a separate file of splits; return their entry of a data set.

    There are no frames, only pixels and labels, in compressed chunks of one strip.
    """
    split: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    strips, splits = folder / "strips.h5", folder / "split.json"
    with h5py.File(store) as ours, h5py.File(strips, "w", libver="latest") as released:
        for person, group in ours.items():
            pixels, labels = group["pixels"][:], group["labels"][:]
            chunks = (1, *pixels.shape[1:])
            released.create_dataset(f"{person}/pixels", data=pixels, chunks=chunks, compression="lzf")
            released.create_dataset(f"{person}/labels", data=labels, chunks=(1, 4), compression="lzf")
            split[group.attrs["split"]].append(person)
    splits.write_text(json.dumps(split), encoding="utf-8")
    return {"layout": "strips", "path": strips, "splits": splits}


def test_own_data_give_the_errors_of_the_same_rendered_people(done: Checkout, tmp_path: Path) -> None:
    checkout, rendered = Checkout(tmp_path / "faze", "real.yaml"), done.folder / "results/smoke"
    results = checkout.folder / "results/real"
    phone = write_released_strips(rendered / "data/phone.h5", tmp_path)
    smoke = (checkout.folder / "config/sizes/smoke.yaml").read_text(encoding="utf-8")
    own = smoke.replace("name: smoke", "name: real") + overrides(laptop={"path": rendered / "raw/laptop"}, phone=phone)
    (checkout.folder / "real.yaml").write_text(own, encoding="utf-8")
    answer = checkout.snakemake("--cores", "all", f"results/real/{ERRORS}")
    assert answer.code == 0, answer.text[-8000:]
    assert "synthesise" not in answer.jobs and not (results / "raw").exists()
    for dataset in DATASETS:
        with h5py.File(results / f"data/{dataset}.h5") as found, h5py.File(rendered / f"data/{dataset}.h5") as expected:
            assert list(found) == list(expected)
            for person in found:
                assert (found[person]["pixels"][:] == expected[person]["pixels"][:]).all()
                assert (found[person]["labels"][:] == expected[person]["labels"][:]).all()
    pd.testing.assert_frame_equal(
        pd.read_parquet(results / ERRORS), pd.read_parquet(rendered / ERRORS), check_exact=True
    )
