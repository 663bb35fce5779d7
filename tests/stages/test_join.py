"""The folds of leave-one-person-out become one run."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stage_runs import call_stage

from faze.data.codes import CodeStore, write_codes
from faze.fewshot.interface import write_tables

FILES = ("run.jsonl", "codes/webcam.h5", "fewshot/bayes_errors.parquet")


def codes(value: float) -> dict[str, np.ndarray]:
    return {"z_gaze": np.full((2, 2, 3), value), "gaze": np.zeros((2, 2)), "gaze_hat": np.full((2, 3), value)}


@pytest.fixture
def folds(tmp_path: Path) -> list[Path]:
    """Two folds: each person is a test person of one, and a train person of the other, with other codes."""
    folders = [tmp_path / "run/fold0", tmp_path / "run/fold1"]
    for number, (folder, tested, trained) in enumerate(zip(folders, "ab", "ba", strict=True)):
        for name in FILES:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / FILES[0]).write_text(f"log of fold {number}\n")
        people = [(tested, "test", codes(number + 1)), (trained, "train", codes(number + 9))]
        write_codes(folder / FILES[1], "webcam", sorted(people, key=lambda person: person[0]), pixel_source="cameras")
        about = {
            "left_out": [f"{tested} has too few"] * number,
            "left_out_of_training": [],
            "val_deg": {"0": 4.0 + 2 * number, "3": 1.0 + number},
            "seconds": {"learn": 2.0, "adapt": 1.0 + number},
        }
        write_tables([pa.table({"person": [tested], "error_deg": [3.0 + number]})], folder / FILES[2], about)
    return folders


def test_each_persons_results_are_from_the_fold_that_left_the_person_out(folds: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert call_stage("join", tmp_path, run=out, num_folds=2, files=FILES) == 0
    assert (out / FILES[0]).read_text() == "log of fold 0\n"
    joined = CodeStore(out / FILES[1])
    assert (joined.dataset, joined.pixel_source, joined.persons("test")) == ("webcam", "cameras", ["a", "b"])
    assert joined.persons() == ["a", "b"]
    assert [joined[person]["gaze_hat"][0, 0] for person in "ab"] == [1, 2]
    table = pq.read_table(out / FILES[2])
    assert table.to_pylist() == [{"person": "a", "error_deg": 3.0}, {"person": "b", "error_deg": 4.0}]
    assert {key.decode(): json.loads(value) for key, value in table.schema.metadata.items()} == {
        "left_out": ["b has too few"],
        "left_out_of_training": [],
        "val_deg": {"0": 5.0, "3": 1.5},
        "seconds": {"learn": 4.0, "adapt": 3.0},
    }
