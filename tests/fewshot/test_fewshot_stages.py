"""meta_train and adapt as commands, on synthetic codes."""

import dataclasses
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from stage_runs import call_stage

from faze.base.geometry import vector_from_pitchyaw
from faze.data.codes import GAZE_HEAD, write_codes
from faze.fewshot import mlp
from faze.fewshot.interface import Learned

SMALL = {
    "shots": [1, 4],
    "query_entries": 8,
    "meta_query": 6,
    "tasks": 3,
    "hidden": 16,
    "outer_steps": 60,
    "outer_lr": 0.01,
    "inner_lr": 1e-3,
    "validate_every_steps": 25,
    "repeats": 3,
    "adapt_steps": 40,
}
META_LEARNERS = ["maml", "fomaml", "reference"]
EVERYONE = [*META_LEARNERS, "none", "offset", "affine", "bayes"]
COLUMNS = ["person", "dataset", "split", "learner", "k", "repeat", "error_deg", "start_error_deg"]


def codes(rng: np.random.Generator, entries: int, offset_rad: float = 0.06) -> dict[str, np.ndarray]:
    """Create gaze codes whose rows are rotated by the gaze and by a person's offset, which gaze_hat ignores."""
    gaze = rng.uniform(-0.3, 0.3, (entries, 2))
    seen = gaze + offset_rad * rng.normal(size=2)
    z_gaze = np.stack([vector_from_pitchyaw(seen), vector_from_pitchyaw(seen + [0.5, -0.5])], axis=1)
    noise = rng.normal(0, 0.01, z_gaze.shape)
    return {"z_gaze": z_gaze + noise, "gaze": gaze, "head": 0 * gaze, "gaze_hat": vector_from_pitchyaw(seen)}


def write_people(path: Path, dataset: str, entries: dict[str, list[int]]) -> None:
    rng = np.random.default_rng(len(dataset))
    everyone = [(split, count) for split, counts in entries.items() for count in counts]
    head = dict(zip(GAZE_HEAD, straight_head(), strict=True))
    people = ((f"{i:05d}", split, codes(rng, n)) for i, (split, n) in enumerate(everyone))
    write_codes(path, dataset, people, head, checkpoint="0123456789abcdef")


def straight_head() -> list[np.ndarray]:
    """Return a gaze head that outputs the first vector of the code: the ReLU of it minus that of its opposite."""
    both = np.concatenate([np.eye(3), -np.eye(3)])
    return [np.concatenate([both, np.zeros((6, 3))], axis=1), np.zeros(6), both.T, np.zeros(3)]


def call(folder: Path, stage: str, learners: str, threads: int = 1, seed: int = 0, **changes: object) -> int:
    """Run a stage in a folder that contains stores of codes, with changes to the section `fewshot`."""
    names = learners.split()
    files = [folder / f"{name}.pt" for name in names]
    if stage == "meta_train":
        options = {"codes": folder / "gazecapture.h5", "out": files}
    else:
        tables = [folder / f"{name}.parquet" for name in names]
        stores = [folder / "mpiigaze.h5", folder / "gazecapture.h5"]
        options = {"learner_file": files, "codes": stores, "out": tables}
    settings = {"fewshot": SMALL | changes | {"learners": names}}
    return call_stage(stage, folder, settings, threads=threads, seed=seed, **options)


@pytest.fixture(scope="module", autouse=True)
def small_chunks() -> Iterator[None]:
    """Several threads have something to do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mlp, "NETWORKS_PER_CALL", 2)
        yield


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two stores, all learners and their errors."""
    folder = tmp_path_factory.mktemp("done")
    train = {"train": [20] * 5 + [6], "val": [20] * 2, "test": [20, 11, 30]}
    write_people(folder / "gazecapture.h5", "gazecapture", train)
    write_people(folder / "mpiigaze.h5", "mpiigaze", {"test": [20] * 2})
    for stage in ("meta_train", "adapt"):
        assert call(folder, stage, " ".join(EVERYONE)) == 0
    return folder


@pytest.fixture
def again(done: Path, tmp_path: Path) -> Path:
    """Return a copy of the folder, in which a test may re-run stages."""
    return shutil.copytree(done, tmp_path / "again")


@pytest.fixture
def learned(done: Path) -> dict[str, dict]:
    return {name: torch.load(done / f"{name}.pt", weights_only=True) for name in EVERYONE}


@pytest.fixture
def errors(done: Path) -> dict[str, pd.DataFrame]:
    return {name: pd.read_parquet(done / f"{name}.parquet") for name in EVERYONE}


def test_errors_have_a_row_for_each_person_k_and_repeat(errors):
    first, keys = errors["maml"], ["person", "dataset", "split", "k", "repeat"]
    assert len(first) == 4 * (1 + 2 * 3)
    assert not first.duplicated(keys).any()
    assert set(zip(first.dataset, first.person, strict=True)) == {
        ("mpiigaze", "00000"), ("mpiigaze", "00001"), ("gazecapture", "00008"), ("gazecapture", "00010")
    }  # fmt: skip
    assert set(first.split) == {"test"}
    for name, table in errors.items():
        assert list(table.columns) == COLUMNS
        assert set(table.learner) == {name}
        assert table[keys].equals(first[keys])
        assert table[table.k == 0].error_deg.equals(first[first.k == 0].error_deg)
        adapted = table[table.k > 0]
        if name in ("offset", "affine", "bayes"):
            assert table.start_error_deg.isna().all()
            assert adapted[adapted.k == 4].error_deg.mean() < 0.5 * table[table.k == 0].error_deg.mean()
        else:
            assert (adapted.groupby(["dataset", "person", "k"]).start_error_deg.nunique() == 1).all()
            assert (adapted.error_deg != adapted.start_error_deg).all()


def test_people_who_are_left_out_are_named(again, capsys):
    metadata = pq.read_schema(again / "maml.parquet").metadata
    (of_test,), (of_training,) = (json.loads(metadata[key]) for key in (b"left_out", b"left_out_of_training"))
    assert "person 00009 of gazecapture" in of_test and "11 entries" in of_test
    assert "person 00005 of gazecapture" in of_training and "6 entries" in of_training
    assert call(again, "adapt", "offset") == 0
    assert f"warning: {of_test}" in capsys.readouterr().err
    assert json.loads(pq.read_schema(again / "offset.parquet").metadata[b"left_out_of_training"]) == []
    assert call(again, "adapt", "offset", min_entries=21) == 1  # nobody of mpiigaze has more than 20
    assert call(again, "adapt", "offset", min_entries=20) == 0
    (left_out,) = json.loads(pq.read_schema(again / "offset.parquet").metadata[b"left_out"])
    assert "20 required by" in left_out and "fewshot.min_entries" in left_out


def test_the_learner_file_contains_weights_settings_and_history(learned):
    maml = learned["maml"]
    assert set(maml) == {field.name for field in dataclasses.fields(Learned)}
    assert (maml["learner"], maml["shots"], maml["settings"]["outer_steps"]) == ("maml", [1, 4], 60)
    assert maml["state"]["hidden_weight"].shape == (2, 6, 16)
    assert [record["step"] for record in maml["history"]] == [25, 50, 60]
    assert all(len(record["val_deg"]) == len(record["train_deg"]) == 2 for record in maml["history"])
    for k, kept in enumerate(maml["outer_steps"]):
        assert kept == min(maml["history"], key=lambda record: record["val_deg"][k])["step"]


def test_the_same_seed_gives_the_same_bits_alone_and_on_several_threads(again, learned, errors):
    for name in ("maml", "none", "bayes"):
        assert call(again, "meta_train", name, threads=2) == call(again, "adapt", name, threads=2) == 0
        found, before = torch.load(again / f"{name}.pt", weights_only=True), dict(learned[name])
        states = found.pop("state"), before.pop("state")
        assert found.pop("seconds") > 0 < before.pop("seconds")
        of_one = {"learners": [name]}
        assert found == before | {"settings": before["settings"] | of_one}
        assert all(torch.equal(states[0][key], value) for key, value in states[1].items())
        pd.testing.assert_frame_equal(pd.read_parquet(again / f"{name}.parquet"), errors[name], check_exact=True)
    assert call(again, "meta_train", "maml", seed=1) == 0
    other = torch.load(again / "maml.pt", weights_only=True)["state"]
    assert not torch.equal(other["hidden_weight"], learned["maml"]["state"]["hidden_weight"])


@pytest.mark.parametrize("learner", META_LEARNERS)
def test_a_meta_learner_can_start_from_the_trained_gaze_head(again, learner):
    """With tiny steps the weights do not move, and the error equals that of `none`. Fails with SELU."""
    still = {"init": "gaze_head", "inner_lr": 1e-12, "outer_lr": 1e-12, "adapt_lr": 1e-12}
    assert call(again, "meta_train", f"none {learner}", **still) == 0
    assert call(again, "adapt", f"none {learner}", **still) == 0
    tables = [pd.read_parquet(again / f"{name}.parquet").drop(columns="learner") for name in ("none", learner)]
    pd.testing.assert_frame_equal(*tables, rtol=1e-4)
    found = torch.load(again / f"{learner}.pt", weights_only=True)
    assert found["activation"] == "relu"
    assert found["state"]["hidden_weight"].shape == (2, 6, 6)  # the head's hidden units, not the config's 16


def test_without_the_compiled_kernel_torch_gives_the_same(again, errors, monkeypatch):
    monkeypatch.setattr(mlp, "KERNEL", None)
    learners = [*META_LEARNERS, "none"]
    assert call(again, "meta_train", " ".join(learners)) == call(again, "adapt", " ".join(learners)) == 0
    for name in learners:
        pd.testing.assert_frame_equal(pd.read_parquet(again / f"{name}.parquet"), errors[name], rtol=1e-2)


def lose_everyone(file: h5py.File) -> None:
    for person in list(file):
        del file[person]


def move_everyone(file: h5py.File) -> None:
    for person in file.values():
        person.attrs["split"] = "val"


def spoil_codes(file: h5py.File) -> None:
    for person in file.values():
        person["z_gaze"][2, 1, 0] = np.nan


REFUSED = [  # stage, learner, damage to the store, changes to the section, words
    ("meta_train", "maml", lose_everyone, {}, "gazecapture.h5: only 0 training people have"),
    ("meta_train", "maml", spoil_codes, {}, "person 00006 of gazecapture: z_gaze is not finite"),
    ("meta_train", "maml", None, {"tasks": 6}, "5 training people have .* lower fewshot.tasks"),
    ("meta_train", "maml", None, {"outer_lr": 1e30}, "diverged before outer step 25: lower fewshot.outer_lr"),
    ("adapt", "maml", move_everyone, {}, "gazecapture.h5: no person in the test split"),
    ("adapt", "maml", None, {"query_entries": 18}, "mpiigaze.h5: .* test split .* 22 entries"),
    ("adapt", "maml", None, {"adapt_lr": 1e30}, "person 00000 of mpiigaze with k = 1 diverged"),
]


@pytest.mark.parametrize(("stage", "learner", "damage", "changes", "words"), REFUSED)
def test_bad_input_is_refused_in_one_sentence_and_nothing_is_written(
    again: Path, capsys, stage: str, learner: str, damage: Callable | None, changes: dict, words: str
):
    out = again / f"{learner}.{'pt' if stage == 'meta_train' else 'parquet'}"
    out.unlink()
    if damage:
        with h5py.File(again / "gazecapture.h5", "a") as file:
            damage(file)
    assert call(again, stage, learner, **changes) == 1
    assert re.search(rf"^faze {stage}: .*{words}", capsys.readouterr().err, re.MULTILINE)
    assert not out.exists()


@pytest.mark.parametrize("learner", ["none", "offset"])
def test_a_learner_without_tasks_needs_no_train_people(again, learner):
    with h5py.File(again / "gazecapture.h5", "a") as file:
        for name in [name for name, person in file.items() if person.attrs["split"] == "train"]:
            del file[name]
    assert call(again, "meta_train", learner) == call(again, "adapt", learner) == 0
    assert torch.load(again / f"{learner}.pt", weights_only=True)["left_out"] == []


def test_a_learners_file_contains_the_error_of_val_people_and_adapt_passes_it_on(again, learned):
    """Check the estimate for test people by relabelling val people as test people: the errors must be the same."""
    with h5py.File(again / "gazecapture.h5", "r+") as file:
        for person in file.values():
            split = person.attrs["split"]
            person.attrs["split"] = {"val": "test", "test": "val"}.get(split, split)
    assert call(again, "adapt", " ".join(EVERYONE)) == 0
    for name in EVERYONE:
        told, path = learned[name]["val_deg"], again / f"{name}.parquet"
        assert json.loads(pq.read_schema(path).metadata[b"val_deg"]) == told
        table = pd.read_parquet(path)
        of_val = table[table["dataset"] == "gazecapture"].groupby("k")["error_deg"].mean()
        assert {str(k): deg for k, deg in of_val.items()} == pytest.approx(told, rel=1e-6)
