"""meta_train and adapt as commands, on synthetic codes."""

import dataclasses
import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch

from faze.base.geometry import vector_from_pitchyaw
from faze.config.stage_config import resolve, to_lines
from faze.config.yaml_files import merge, read_yaml
from faze.data.store.codes import GAZE_HEAD, write_codes
from faze.data.store.layout import put_text
from faze.fewshot import kernel, meta_training
from faze.fewshot.learner_file import Learned
from faze.stages import adapt, meta_train

ROOT = Path(__file__).resolve().parents[2]
SMALL = {
    "shots": [1, 4],
    "query_entries": 8,
    "meta_query": 6,
    "tasks": 3,
    "hidden": 16,
    "outer_steps": 60,
    "outer_lr": 0.01,
    "validate_every_steps": 25,
    "repeats": 3,
    "adapt_steps": 40,
    "record_steps": [10, 20],
}
META_LEARNERS = ["maml", "fomaml", "meta_sgd", "reference"]
COLUMNS = ["person", "dataset", "split", "learner", "k", "repeat", "steps", "error_deg", "start_error_deg"]
COVERED = ["covered_68", "covered_95"]


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


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Return run("adapt", "maml offset", threads=1, **changes to the section), which uses a folder's stores."""
    write_people(
        tmp_path / "gazecapture.h5", "gazecapture", {"train": [20] * 5 + [6], "val": [20] * 2, "test": [20, 11, 30]}
    )
    write_people(tmp_path / "mpiigaze.h5", "mpiigaze", {"test": [20] * 2})
    whole = read_yaml(ROOT / "config" / "config.yaml")
    monkeypatch.chdir(tmp_path)

    def call(stage: str, learners: str, /, threads: int = 1, seed: int | None = 0, **changes: object) -> int:
        names = learners.split()
        flat = resolve(merge(whole, {"fewshot": SMALL | changes}), stage, "baseline", seed)
        Path("config.yaml").write_text("\n".join(to_lines(flat)))
        options = ["--config", "config.yaml", "--learner", *names, "--threads", threads]
        if stage == "meta_train":
            options += ["--codes", "gazecapture.h5", "--out", *(f"{name}.pt" for name in names)]
            module = meta_train
        else:
            options += ["--learner-file", *(f"{name}.pt" for name in names), "--codes", "mpiigaze.h5", "gazecapture.h5"]
            wanted = {"--out": "", "--trace": "_trace"} | (
                {"--predictions": "_predictions"} if changes.get("predictions") else {}
            )
            for option, ending in wanted.items():
                options += [option, *(f"{name}{ending}.parquet" for name in names)]
            module = adapt
        monkeypatch.setattr(sys, "argv", [stage, *map(str, options)])
        return module.main()

    return call


def test_errors_have_a_row_for_each_person_k_and_repeat(run, capsys):
    tables = {}
    for learner in ("maml", "offset"):
        assert run("meta_train", learner) == 0
        assert run("adapt", learner) == 0
        tables[learner] = pd.read_parquet(f"{learner}.parquet")
    maml, offset = tables["maml"], tables["offset"]
    keys = ["person", "dataset", "split", "k", "repeat"]
    assert list(maml.columns) == list(offset.columns) == [*COLUMNS, *COVERED]
    assert maml[keys].equals(offset[keys])
    assert len(maml) == 4 * (1 + 2 * 3)
    assert not maml.duplicated(keys).any()
    assert set(zip(maml.dataset, maml.person, strict=True)) == {
        ("mpiigaze", "00000"), ("mpiigaze", "00001"), ("gazecapture", "00008"), ("gazecapture", "00010")
    }  # fmt: skip
    assert set(maml.split) == {"test"}

    unadapted = {name: t[t.k == 0].drop(columns="learner") for name, t in tables.items()}
    pd.testing.assert_frame_equal(unadapted["maml"], unadapted["offset"], check_exact=True)
    assert (unadapted["maml"].steps == 0).all()
    assert (unadapted["maml"].error_deg > 0).all()
    adapted = maml[maml.k > 0]
    assert (adapted.steps == 40).all()
    assert adapted.start_error_deg.notna().all()
    assert (adapted.groupby(["dataset", "person", "k"]).start_error_deg.nunique() == 1).all()
    assert adapted.error_deg.mean() < adapted.start_error_deg.mean()
    assert offset.start_error_deg.isna().all()
    assert offset[offset.k == 4].error_deg.mean() < 0.5 * offset[offset.k == 0].error_deg.mean()

    left_out = json.loads(pq.read_schema("maml.parquet").metadata[b"left_out"])
    assert left_out == [
        "person 00009 of gazecapture is left out: 11 entries, fewer than the 12 required by the largest of "
        "fewshot.shots + fewshot.query_entries"
    ]
    of_training = json.loads(pq.read_schema("maml.parquet").metadata[b"left_out_of_training"])
    assert of_training == [
        "person 00005 of gazecapture is left out: 6 entries, fewer than the 10 required by the largest of "
        "fewshot.shots + fewshot.meta_query"
    ]
    said = capsys.readouterr().err
    assert f"warning: {left_out[0]}" in said
    assert "warning: person 00005 of gazecapture is left out: 6 entries, fewer than the 10" in said


def test_the_learner_file_holds_weights_settings_and_history(run):
    assert run("meta_train", "maml") == 0
    learned = torch.load("maml.pt", weights_only=True)
    assert set(learned) == {field.name for field in dataclasses.fields(Learned)}
    assert learned["learner"] == "maml"
    assert learned["shots"] == [1, 4]
    assert learned["state"]["hidden_weight"].shape == (2, 6, 16)
    assert learned["settings"]["outer_steps"] == 60
    assert [record["step"] for record in learned["history"]] == [25, 50, 60]
    assert all(len(record["val_deg"]) == len(record["train_deg"]) == 2 for record in learned["history"])
    assert learned["history"][-1]["train_deg"][1] < learned["history"][0]["train_deg"][1]
    for k, kept in enumerate(learned["outer_steps"]):
        assert kept == min(learned["history"], key=lambda record: record["val_deg"][k])["step"]
    assert set(learned["stop_steps"]) <= {0, 10, 20, 40}


def test_the_same_seed_gives_the_same_bits_on_any_number_of_threads(run, monkeypatch):
    monkeypatch.setattr(kernel.CompiledKernel, "models_per_chunk", 2)  # or one thread would do all of them

    def result(threads: int, seed: int) -> tuple[dict[str, torch.Tensor], pd.DataFrame]:
        assert run("meta_train", "maml", threads=threads, seed=seed) == 0
        assert run("adapt", "maml", threads=threads) == 0
        return torch.load("maml.pt", weights_only=True)["state"], pd.read_parquet("maml.parquet")

    (state, errors), (again, errors_again), (other, _) = result(1, 0), result(2, 0), result(1, 1)
    assert all(torch.equal(state[name], again[name]) for name in state)
    pd.testing.assert_frame_equal(errors, errors_again, check_exact=True)
    assert not torch.equal(state["hidden_weight"], other["hidden_weight"])


def test_one_model_at_a_time_adapts_as_all_at_once(run, monkeypatch):
    assert run("meta_train", "maml") == 0
    assert run("adapt", "maml") == 0
    at_once = pd.read_parquet("maml.parquet")
    monkeypatch.setattr(kernel, "kernel_for", one_model_of_torchs)
    assert run("adapt", "maml") == 0
    pd.testing.assert_frame_equal(pd.read_parquet("maml.parquet"), at_once, rtol=1e-3)


def one_model_of_torchs(weights, activation):
    found = kernel.TorchKernel(*weights.hidden_weight.shape[1:], activation)
    found.models_per_chunk = 1
    return found


@pytest.mark.parametrize("learner", META_LEARNERS)
def test_every_meta_learner_learns_its_own_way(run, learner):
    assert run("meta_train", learner) == 0
    assert run("adapt", learner) == 0
    learned = torch.load(f"{learner}.pt", weights_only=True)
    assert learned["history"][-1]["train_deg"][1] < learned["history"][0]["train_deg"][1]
    scales = [value for name, value in learned["state"].items() if name.startswith("rate_scale_")]
    assert len(scales) == (4 if learner == "meta_sgd" else 0)
    assert all(scale.mean() > 1 for scale in scales)  # larger steps leave smaller errors here
    other = "fomaml" if learner == "maml" else "maml"
    assert run("meta_train", other) == 0
    state = torch.load(f"{other}.pt", weights_only=True)["state"]
    assert not any(torch.equal(value, state[name]) for name, value in learned["state"].items() if name in state)
    errors = pd.read_parquet(f"{learner}.parquet")
    adapted = errors[errors.k > 0]
    assert adapted.error_deg.mean() < adapted.start_error_deg.mean()


def test_rules_differ(run):
    states = {}
    for learner in META_LEARNERS:
        assert run("meta_train", learner, inner_lr=1e-3) == 0
        states[learner] = torch.load(f"{learner}.pt", weights_only=True)["state"]["hidden_weight"]
    for i, one in enumerate(META_LEARNERS):
        for other in META_LEARNERS[i + 1 :]:
            assert not torch.allclose(states[one], states[other], rtol=1e-6), (one, other)


def test_none_is_the_trained_gaze_head_with_its_own_activation(run):
    """Before any step, the error equals that of gaze_hat. Fails with SELU, and if the layers' axes are exchanged."""
    assert run("meta_train", "none") == 0
    assert run("adapt", "none") == 0
    errors = pd.read_parquet("none.parquet").set_index(["dataset", "person"])
    unadapted = errors[errors.k == 0].error_deg
    adapted = errors[errors.k > 0]
    # gaze_hat knows nothing of the noise on the codes, of 0.01 in each number.
    assert (adapted.start_error_deg - unadapted.reindex(adapted.index)).abs().max() < 0.8
    assert (adapted.error_deg != adapted.start_error_deg).all()
    assert torch.load("none.pt", weights_only=True)["activation"] == "relu"


def test_none_needs_the_gaze_head_in_the_store(run, capsys, tmp_path):
    with h5py.File(tmp_path / "gazecapture.h5", "a") as file:
        del file.attrs["gaze2.bias"]
    assert run("meta_train", "none") == 1
    assert_one_sentence(capsys, "not contain the trained gaze head.* remove `none` from fewshot.learners")


def head_error_deg(person: h5py.Group, entries: int) -> float:
    """Compute straight_head's mean error on a person's last entries; it estimates the code's first vector."""
    estimate, gaze = person["z_gaze"][-entries:, 0], vector_from_pitchyaw(person["gaze"][-entries:])
    cosine = (estimate * gaze).sum(axis=1) / np.linalg.norm(estimate, axis=1)
    return np.degrees(np.arccos(cosine)).mean()


@pytest.mark.parametrize("learner", META_LEARNERS)
def test_a_meta_learner_can_start_from_the_trained_gaze_head(run, tmp_path, learner):
    """With tiny steps the weights do not move, and the error equals that of `none`. Fails with SELU."""
    still = {"init": "gaze_head", "inner_lr": 1e-12, "outer_lr": 1e-12, "adapt_lr": 1e-12}
    assert run("meta_train", "none", **still) == run("meta_train", learner, **still) == 0
    assert run("adapt", "none", **still) == run("adapt", learner, **still) == 0
    tables = [pd.read_parquet(f"{name}.parquet").drop(columns="learner") for name in ("none", learner)]
    pd.testing.assert_frame_equal(*tables, rtol=1e-4)
    learned = torch.load(f"{learner}.pt", weights_only=True)
    assert learned["activation"] == "relu"
    assert learned["state"]["hidden_weight"].shape == (2, 6, 6)  # the head's hidden units, not the config's 16
    with h5py.File(tmp_path / "gazecapture.h5") as file:
        train = np.mean([head_error_deg(file[f"{i:05d}"], 20) for i in range(5)])
        val = np.mean([head_error_deg(file[f"{i:05d}"], SMALL["query_entries"]) for i in (6, 7)])
    record = learned["history"][-1]
    assert record["train_deg"] == pytest.approx([train] * 2, abs=0.3)  # of random tasks
    assert record["val_deg"] == pytest.approx([val] * 2, abs=1e-3)


def test_a_meta_learner_that_starts_from_the_gaze_head_needs_it(run, capsys, tmp_path):
    with h5py.File(tmp_path / "gazecapture.h5", "a") as file:
        del file.attrs["gaze2.bias"]
    assert run("meta_train", "maml", init="gaze_head") == 1
    assert_one_sentence(capsys, "not contain the trained gaze head.*set fewshot.init: random")


@pytest.mark.parametrize("learner", ["maml", "meta_sgd", "none", "offset", "affine", "kappa", "bayes", "gp"])
@pytest.mark.parametrize("stopping", ["fixed", "validation"])
def test_predictions_hold_the_estimate_for_every_query_entry(run, tmp_path, learner, stopping):
    """Predictions deviate from labels by the errors. Fails with another person's support, or with the first entries."""
    wanted = {"predictions": True, "stopping": stopping, "adapt_lr": 1e-4}  # the last step is not always the best
    assert run("meta_train", learner, **wanted) == 0
    if stopping == "fixed":
        wanted |= {"adapt_steps": 25}  # other than the learner's file has it
    assert run("adapt", learner, **wanted) == 0
    errors, found = pd.read_parquet(f"{learner}.parquet"), pd.read_parquet(f"{learner}_predictions.parquet")
    keys = ["person", "dataset", "learner", "k", "repeat"]
    means = found.groupby(keys, sort=False).error_deg.agg(["mean", "size"]).reset_index()
    adapted = errors[errors.k > 0].reset_index(drop=True)
    assert means[keys].equals(adapted[keys])
    assert (adapted.steps < SMALL["adapt_steps"]).any()
    assert (means["size"] == SMALL["query_entries"]).all()
    np.testing.assert_allclose(means["mean"], adapted.error_deg, atol=1e-3)
    one = found[(found.dataset == "gazecapture") & (found.person == "00010")]
    assert sorted(set(one.entry)) == list(range(22, 30))
    with h5py.File(tmp_path / "gazecapture.h5") as file:
        gaze = vector_from_pitchyaw(file["00010/gaze"][:].astype(float))[one.entry]
    cosine = (vector_from_pitchyaw(one[["pitch_rad", "yaw_rad"]].to_numpy()) * gaze).sum(axis=1)
    np.testing.assert_allclose(np.degrees(np.arccos(np.minimum(cosine, 1))), one.error_deg, atol=1e-3)
    assert b"left_out" in pq.read_schema(f"{learner}_predictions.parquet").metadata


@pytest.mark.parametrize("learner", [*META_LEARNERS, "none"])
def test_without_the_compiled_kernel_torch_gives_the_same(run, capsys, request, learner):
    assert run("meta_train", learner) == run("adapt", learner) == 0
    by_kernel = pd.read_parquet(f"{learner}.parquet")
    if "is not compiled" in capsys.readouterr().err:
        pytest.skip("kernel.c is not compiled")
    request.getfixturevalue("without_kernels")
    assert run("meta_train", learner) == run("adapt", learner) == 0
    assert capsys.readouterr().err.count("fewshot/kernel.c is not compiled") == 1
    pd.testing.assert_frame_equal(pd.read_parquet(f"{learner}.parquet"), by_kernel, rtol=1e-2)


def test_the_trace_holds_the_error_along_the_steps(run):
    assert run("meta_train", "maml") == 0
    assert run("adapt", "maml") == 0
    errors, trace = pd.read_parquet("maml.parquet"), pd.read_parquet("maml_trace.parquet")
    keys = ["person", "dataset", "learner", "k", "repeat"]
    assert sorted(set(trace.steps)) == [0, 10, 20, 40]
    assert len(trace) == 4 * (errors.k > 0).sum()
    joined = errors[errors.k > 0].merge(trace, on=keys, suffixes=("", "_traced"))
    last, first = joined[joined.steps_traced == 40], joined[joined.steps_traced == 0]
    assert len(last) == len(first) == (errors.k > 0).sum()
    assert (last.error_deg == last.error_deg_traced).all()
    assert (first.start_error_deg == first.error_deg_traced).all()
    assert run("meta_train", "offset") == 0
    assert run("adapt", "offset") == 0
    offset = pd.read_parquet("offset_trace.parquet")
    assert offset.empty
    assert list(offset.columns) == list(trace.columns)


def test_the_stopping_rule_writes_the_chosen_steps_and_their_error(run):
    assert run("meta_train", "maml", stopping="validation") == 0
    assert run("adapt", "maml", stopping="validation") == 0
    learned = torch.load("maml.pt", weights_only=True)
    chosen = dict(zip(learned["shots"], learned["stop_steps"], strict=True))
    errors, trace = pd.read_parquet("maml.parquet"), pd.read_parquet("maml_trace.parquet")
    adapted = errors[errors.k > 0]
    assert (adapted.steps == adapted.k.map(chosen)).all()
    keys = ["person", "dataset", "k", "repeat", "steps"]
    both = adapted.merge(trace, on=keys, suffixes=("", "_traced"))
    assert len(both) == len(adapted)
    assert (both.error_deg == both.error_deg_traced).all()


@pytest.mark.parametrize("learner", ["maml", "meta_sgd"])
@pytest.mark.parametrize("killed_after", [25, 50])
def test_a_killed_meta_training_goes_on_to_the_same_end(run, monkeypatch, learner, killed_after):
    """The kill follows a checkpoint. Fails if the draws, the optimiser or the best weights are not restored."""
    fast = {"outer_lr": 0.5}  # so fast that the last weights are not the best ones
    assert run("meta_train", learner, **fast) == 0
    assert max(torch.load(f"{learner}.pt", weights_only=True)["outer_steps"]) < 60
    whole = Path(f"{learner}.pt").read_bytes()
    Path(f"{learner}.pt").unlink()
    save = meta_training.ResumeFile.save

    def save_and_die(self, state, *rest):
        save(self, state, *rest)
        if state.step == killed_after:
            raise KeyboardInterrupt

    monkeypatch.setattr(meta_training.ResumeFile, "save", save_and_die)
    with pytest.raises(KeyboardInterrupt):
        run("meta_train", learner, **fast)
    assert not Path(f"{learner}.pt").exists()
    seen = []
    monkeypatch.setattr(meta_training.ResumeFile, "save", lambda self, state, *_: seen.append(state.step))
    assert run("meta_train", learner, **fast) == 0
    assert seen == [step for step in (25, 50, 60) if step > killed_after]
    assert_same(torch.load(f"{learner}.pt", weights_only=True), whole)
    assert not list(Path().glob("*.work"))


def test_killed_at_a_later_learner_an_earlier_one_is_not_trained_again(run, monkeypatch):
    """The workflow removes a killed job's outputs. Fails if each work folder is removed when its learner is done."""
    save, seen = meta_training.ResumeFile.save, []

    def save_and_die(self, state, *rest):
        save(self, state, *rest)
        if "fomaml" in str(self.path) and state.step == 25:
            raise KeyboardInterrupt

    monkeypatch.setattr(meta_training.ResumeFile, "save", save_and_die)
    with pytest.raises(KeyboardInterrupt):
        run("meta_train", "maml fomaml")
    whole = Path("maml.pt").read_bytes()
    Path("maml.pt").unlink()
    monkeypatch.setattr(meta_training.ResumeFile, "save", lambda self, *_: seen.append(self.path.parent.name))
    assert run("meta_train", "maml fomaml") == 0
    assert seen == ["fomaml.work"] * 2
    assert_same(torch.load("maml.pt", weights_only=True), whole)
    assert not list(Path().glob("*.work"))


def test_learners_of_one_process_are_what_each_is_alone(run):
    """Regression: the file of `offset` also listed the train people who had too few entries for maml's tasks."""
    everyone, made = ["offset", "maml", "bayes"], {}
    tables = ("", "_trace", "_predictions")
    for together in (everyone, [" ".join(everyone)]):
        for learners in together:
            assert run("meta_train", learners) == run("adapt", learners, predictions=True) == 0
        learnt = {name: Path(f"{name}.pt").read_bytes() for name in everyone}
        made[len(together)] = learnt, {f"{n}{t}": pq.read_table(f"{n}{t}.parquet") for n in everyone for t in tables}
    for name in everyone:
        assert_same(torch.load(io.BytesIO(made[3][0][name]), weights_only=True), made[1][0][name])
    for name, table in made[3][1].items():
        alone, together = table.schema.metadata, made[1][1][name].schema.metadata
        pd.testing.assert_frame_equal(table.to_pandas(), made[1][1][name].to_pandas(), check_exact=True)
        assert {k: v for k, v in alone.items() if k != b"seconds"} == {
            k: v for k, v in together.items() if k != b"seconds"
        }


def test_files_that_are_not_as_many_as_the_learners_are_refused(run, capsys, monkeypatch):
    assert run("meta_train", "maml offset") == 0
    monkeypatch.setattr(sys, "argv", [word for word in sys.argv if word != "offset.pt"])
    capsys.readouterr()
    assert meta_train.main() == 1
    assert_one_sentence(capsys, "--out has 1 values, but --learner has 2")
    run("adapt", "maml offset")
    monkeypatch.setattr(sys, "argv", [word for word in sys.argv if word != "offset_trace.parquet"])
    capsys.readouterr()
    assert adapt.main() == 1
    assert_one_sentence(capsys, "--trace has 1 values, but --learner has 2")


def assert_same(learned: dict, whole: bytes) -> None:
    before = torch.load(io.BytesIO(whole), weights_only=True)
    assert learned.pop("seconds") > 0 < before.pop("seconds")
    states = learned.pop("state"), before.pop("state")
    assert learned == before
    assert all(torch.equal(states[0][name], value) for name, value in states[1].items())


def test_another_trainings_checkpoint_is_not_continued(run, monkeypatch):
    monkeypatch.setattr(meta_training.ResumeFile, "remove", lambda self: None)
    assert run("meta_train", "maml") == 0
    assert run("meta_train", "maml", outer_lr=0.02) == 0
    changed = torch.load("maml.pt", weights_only=True)["state"]
    for path in Path("maml.work").iterdir():
        path.unlink()
    assert run("meta_train", "maml", outer_lr=0.02) == 0
    alone = torch.load("maml.pt", weights_only=True)["state"]
    assert all(torch.equal(changed[name], alone[name]) for name in alone)
    for path in Path("maml.work").iterdir():
        path.write_bytes(b"torn")
    assert run("meta_train", "maml") == 0


def test_another_learners_checkpoint_is_not_continued(run, monkeypatch):
    """Regression: fomaml resumed from maml's checkpoint, so its weights were maml's, bit for bit."""
    monkeypatch.setattr(meta_training.ResumeFile, "remove", lambda self: None)
    assert run("meta_train", "fomaml") == 0
    alone = torch.load("fomaml.pt", weights_only=True)["state"]
    assert run("meta_train", "maml") == 0
    (checkpoint,) = Path("maml.work").iterdir()
    checkpoint.replace(Path("fomaml.work") / checkpoint.name)
    assert run("meta_train", "fomaml") == 0
    again = torch.load("fomaml.pt", weights_only=True)["state"]
    assert all(torch.equal(again[name], alone[name]) for name in alone)


def test_a_k_learns_the_same_alone_and_among_others(run):
    assert run("meta_train", "maml", shots=[1, 4]) == 0
    together = torch.load("maml.pt", weights_only=True)["state"]
    assert run("meta_train", "maml", shots=[1]) == 0
    alone = torch.load("maml.pt", weights_only=True)["state"]
    for name in together:
        torch.testing.assert_close(together[name][:1], alone[name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"shots": [1, 4, 5]}, r"maml.pt: was trained for k = \[1, 4\], not for \[5\]: run meta_train again"),
        (
            {"query_entries": 18},
            r"mpiigaze.h5: .* test split .* 22 entries.*person 00000 .*: 20 entries",
        ),
        ({"adapt_lr": 1e30}, r"person 00000 of mpiigaze with k = 1 diverged: lower fewshot.adapt_lr"),
    ],
)
def test_adapt_refuses_in_one_sentence_and_writes_nothing(run, capsys, changes, sentence):
    assert run("meta_train", "maml") == 0
    capsys.readouterr()
    assert run("adapt", "maml", **changes) == 1
    assert_one_sentence(capsys, sentence)
    assert not Path("maml.parquet").exists()


def assert_one_sentence(capsys: pytest.CaptureFixture, sentence: str) -> None:
    lines = [line for line in capsys.readouterr().err.splitlines() if re.match(r"(adapt|meta_train): (?!\d)", line)]
    assert len(lines) == 1
    assert re.search(sentence, lines[0])


def test_adapt_refuses_another_learners_file_and_no_file(run, capsys):
    assert run("meta_train", "offset") == 0
    Path("offset.pt").rename("maml.pt")
    assert run("adapt", "maml") == 1
    assert_one_sentence(capsys, "maml.pt: contains the learner offset, not maml")
    Path("maml.pt").write_bytes(b"torn")
    assert run("adapt", "maml") == 1
    assert_one_sentence(capsys, "maml.pt: ")
    torch.save({"model": {}}, "maml.pt")
    assert run("adapt", "maml") == 1
    assert_one_sentence(capsys, "maml.pt: not a learner file")
    Path("maml.pt").unlink()
    assert run("adapt", "maml") == 1
    assert_one_sentence(capsys, "maml.pt: there is no such file")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tasks": 6}, "gazecapture.h5: 5 people in the train split have .* fewshot.tasks = 6"),
        ({"outer_lr": 1e30}, "meta-training diverged before outer step 25: lower fewshot.outer_lr"),
        ({"seed_of_run": None}, "has no seed"),
    ],
)
def test_meta_train_refuses_in_one_sentence_and_writes_nothing(run, capsys, changes, sentence):
    seed = changes.pop("seed_of_run", 0)
    assert run("meta_train", "maml", seed=seed, **changes) == 1
    assert_one_sentence(capsys, sentence)
    assert not Path("maml.pt").exists()


def test_a_store_without_splits_as_the_released_code_writes_is_all_test(run, tmp_path):
    with h5py.File(tmp_path / "mpiigaze.h5", "a") as file:
        file.attrs.clear()
        for person in file.values():
            person.attrs.clear()
    assert run("meta_train", "offset") == 0
    assert run("adapt", "offset") == 0
    errors = pd.read_parquet("offset.parquet")
    assert set(errors[errors.dataset == "mpiigaze"].person) == {"00000", "00001"}
    assert set(errors.split) == {"test"}


def spoil_nobody(path: Path) -> None:
    """Remove the groups of all people."""
    with h5py.File(path, "a") as file:
        for person in list(file):
            del file[person]


def spoil_split(path: Path) -> None:
    """Move all people to val, so that none remain for training or testing."""
    with h5py.File(path, "a") as file:
        for person in file.values():
            person.attrs["split"] = "val"
            del person.attrs["checksum"]  # or it would be taken for damage


def spoil_code(path: Path) -> None:
    """Set one number in each person's codes to NaN."""
    with h5py.File(path, "a") as file:
        for person in file.values():
            person["z_gaze"][2, 1, 0] = np.nan
            del person.attrs["checksum"]


@pytest.mark.parametrize(
    ("spoil", "of_training", "of_test"),
    [
        (spoil_nobody, "gazecapture.h5: contains no people", "gazecapture.h5: contains no people"),
        (
            spoil_split,
            "gazecapture.h5: 0 people in the train split have",
            "gazecapture.h5 .*test split",
        ),
        (spoil_code, "z_gaze of 1 of 20 entries is not finite", "z_gaze of 1 of 20 entries is not finite"),
    ],
)
def test_stores_without_anybody_or_with_broken_codes_are_one_sentence(
    run, capsys, tmp_path, spoil, of_training, of_test
):
    """Regression: for an empty store, the message blamed people with too few entries and suggested fewer shots."""
    assert run("meta_train", "maml") == 0
    spoil(tmp_path / "gazecapture.h5")
    capsys.readouterr()
    assert run("adapt", "maml") == 1
    assert_one_sentence(capsys, of_test)
    Path("maml.pt").unlink()
    assert run("meta_train", "maml") == 1
    assert_one_sentence(capsys, of_training)
    assert not Path("maml.pt").exists() and not Path("maml.parquet").exists()


@pytest.mark.parametrize("learner", ["none", "offset"])
def test_who_learns_from_no_task_needs_nobody_to_train_on(run, tmp_path, learner):
    """Regression: `offset` was refused if there were only two train people, although it uses none of them."""
    with h5py.File(tmp_path / "gazecapture.h5", "a") as file:
        for name in [name for name, person in file.items() if person.attrs["split"] == b"train"]:
            del file[name]
    assert run("meta_train", learner) == 0
    assert run("adapt", learner) == 0
    assert torch.load(f"{learner}.pt", weights_only=True)["left_out"] == []


def test_what_trains_no_learner_is_not_told_to_meta_train(run):
    """Keys that do not affect learners must not re-run meta-training. Fails if the whole section is passed."""
    trained = []
    for changes in ({}, {"learners": ["fomaml"]}, {"predictions": True}, {"min_entries": 9}, {"hidden": 8}):
        run("meta_train", "offset", **changes)
        trained.append(Path("config.yaml").read_text())
    assert trained[0] == trained[1] == trained[2] == trained[3] != trained[4]


def test_test_people_need_the_entries_that_the_protocol_asks_for(run):
    """Fails if the parameters of adapt lack `min_entries`."""
    assert run("meta_train", "offset") == 0
    assert run("adapt", "offset", min_entries=21) == 1  # nobody of mpiigaze has more than 20
    assert run("adapt", "offset", min_entries=20) == 0
    metadata = pq.read_schema("offset.parquet").metadata
    assert json.loads(metadata[b"left_out"]) == [
        "person 00009 of gazecapture is left out: 11 entries, fewer than the 20 required by fewshot.min_entries"
    ]


@pytest.mark.parametrize("learner", ["maml", "none"])
def test_codes_of_another_checkpoint_are_refused(run, capsys, tmp_path, learner):
    """Regression: negated codes led to errors of 166 degrees, and no message was shown."""
    assert run("meta_train", learner) == 0
    with h5py.File(tmp_path / "mpiigaze.h5", "a") as file:
        put_text(file, checkpoint="fedcba9876543210")
    assert run("adapt", learner) == 1
    assert_one_sentence(capsys, "mpiigaze.h5: does not belong to the network .*, or run meta_train again")


def test_offset_learnt_nothing_from_codes_and_serves_those_of_every_checkpoint(run, tmp_path):
    """Regression: `offset` was refused, although its file contains nothing that depends on codes."""
    assert run("meta_train", "offset") == 0
    with h5py.File(tmp_path / "mpiigaze.h5", "a") as file:
        put_text(file, checkpoint="fedcba9876543210")
    assert run("adapt", "offset") == 0


def test_steps_chosen_at_another_rate_are_refused(run, capsys):
    assert run("meta_train", "maml", stopping="validation") == 0
    assert run("adapt", "maml", stopping="validation", adapt_lr=1e-7) == 1
    assert_one_sentence(capsys, "chose the number of steps with fewshot.adapt_lr .*, not 1e-07: run meta_train again")


def test_two_stores_of_one_data_set_are_refused(run, capsys, tmp_path):
    assert run("meta_train", "offset") == 0
    (tmp_path / "mpiigaze.h5").write_bytes((tmp_path / "gazecapture.h5").read_bytes())
    assert run("adapt", "offset") == 1
    assert_one_sentence(capsys, "same data set, gazecapture")


@pytest.mark.parametrize("learner", ["maml", "offset", "bayes"])
def test_a_learners_file_says_how_val_people_fare_and_adapt_hands_it_on(run, tmp_path, learner):
    """Check the estimate for test people by relabelling val people as test people: the errors must be the same."""
    assert run("meta_train", learner) == run("adapt", learner) == 0
    told = torch.load(f"{learner}.pt", weights_only=True)["val_deg"]
    assert json.loads(pq.read_schema(f"{learner}.parquet").metadata[b"val_deg"]) == told
    with h5py.File(tmp_path / "gazecapture.h5", "r+") as file:
        for person in file.values():
            split = person.attrs["split"].decode()
            person.attrs["split"] = {"val": "test", "test": "val"}.get(split, split)
            del person.attrs["checksum"]
    assert run("adapt", learner) == 0
    errors = pd.read_parquet(f"{learner}.parquet")
    of_val = errors[errors["dataset"] == "gazecapture"].groupby("k")["error_deg"].mean()
    assert {str(k): deg for k, deg in of_val.items()} == pytest.approx(told, rel=1e-6)
