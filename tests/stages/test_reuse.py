"""A tier whose change cannot act takes over what another run has made, from checkpoint to walks: the same bytes.

`idle` asks for cuDNN's search, which no CPU has; `recompute` acts everywhere. Seen red: before anything was taken over, each
tier was trained. By breaking the code: a key with the switches as wanted, without the data, without the code;
no weight moved.
"""

import json
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from table_content import table_content

from faze.base.logged_run import read_logged_run
from faze.base.run_log import read_events
from faze.config.stage_config import resolve, to_lines
from faze.config.yaml_files import merge, read_yaml
from faze.data.store.strip_writing import PersonStrips, write_strips
from faze.redirection.estimator import GazeHeadEstimator, TrainedEstimator, save_estimator
from faze.stages import adapt, encode, meta_train, redirect, train, walk

ROOT = Path(__file__).resolve().parents[2]
SMALL = {
    "model": {"growth": 2, "decoder_channels": 2, "z_app": 2, "z_head": 2},
    "loss": {"chunk_pairs": 4},
    "train": {"pairs": 24, "global_batch": 8, "log_every_pairs": 8, "checkpoint_every_pairs": 8},
    "fewshot": {"shots": [1, 2], "query_entries": 3, "meta_query": 3, "tasks": 2, "outer_steps": 3, "adapt_steps": 3}
    | {"record_steps": [], "validate_every_steps": 3, "repeats": 2},
    "walk": {"people": 1, "frames": 2},
}
TIERS = {"idle": {"cudnn_benchmark": True}, "recompute": {"recompute": True}}
OUTPUTS = (
    *("checkpoint.pt", "codes/mpiigaze.h5", "codes/gazecapture.h5", "fewshot/maml.pt"),
    *("fewshot/errors.parquet", "fewshot/trace.parquet", "redirection.parquet"),
    *("redirected_pairs.parquet", "walks/contact_sheet.png"),
)


def write_people(root: Path, seed: int = 0) -> None:
    """Two stores; the seed is of the pixels alone."""
    for dataset, splits in (("gazecapture", ("train", "train", "val", "test")), ("mpiigaze", ("test",))):
        labels, pixels = np.random.default_rng(1), np.random.default_rng([seed, 2])
        people = [
            PersonStrips(
                f"{number:05d}",
                split,
                ["f"] * 6,
                pixels.integers(0, 256, (6, 64, 256, 3), dtype=np.uint8),
                labels.normal(0, 0.2, (6, 4)).astype(np.float32),
            )
            for number, split in enumerate(splits)
        ]
        (root / "data").mkdir(parents=True, exist_ok=True)
        write_strips(root / f"data/{dataset}.h5", dataset, people)


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """call(stage, root, tier, ...): run a stage of a tier in results/<name> = root; gives the run's folder."""
    monkeypatch.setenv("FAZE_MACHINE_LOCK", str(tmp_path / "machine.lock"))
    values = merge(read_yaml(ROOT / "config/config.yaml"), SMALL)
    values["tiers"] = {"baseline": values["tiers"]["baseline"] | {"device": "cpu"}, **TIERS}

    def stage(
        module: types.ModuleType,
        root: Path,
        tier: str,
        *arguments: object,
        share: bool = True,
        seed: int = 0,
        processes: int = 1,
    ) -> Path:
        name, run = module.__name__.rpartition(".")[2], root / tier / f"seed{seed}"
        run.mkdir(parents=True, exist_ok=True)
        own = run / f"{name}.yaml"
        several = {"parallel": "ddp", "processes": processes} if processes > 1 else {}
        wanted = merge(values, {"tiers": {"baseline": several}})
        own.write_text("\n".join(to_lines(resolve(wanted, name, tier, seed))), encoding="utf-8")
        threads = [] if name == "train" else ["--threads", processes]
        words = [name, "--config", own, *threads, *arguments]
        words = [*map(str, words), *([f"--output-cache={root / 'output_cache'}"] if share else [])]
        if several:  # it becomes torchrun
            subprocess.run([sys.executable, "-m", "faze", *words], cwd=ROOT, check=True)
        else:
            monkeypatch.setattr(sys, "argv", words)
            assert module.main() == 0
        return run

    return stage


def trained(call: Callable[..., Path], root: Path, tier: str, **options: object) -> Path:
    run = root / tier / f"seed{options.get('seed', 0)}"
    files = [f"--data={root / 'data/gazecapture.h5'}", f"--out={run / 'checkpoint.pt'}"]
    return call(train, root, tier, *files, f"--run-log={run / 'run.jsonl'}", **options)


def whole(call: Callable[..., Path], root: Path, tier: str, **options: object) -> Path:
    """Every stage of a run."""
    run = trained(call, root, tier, **options)
    stores = [root / f"data/{dataset}.h5" for dataset in ("mpiigaze", "gazecapture")]
    codes = [run / f"codes/{store.name}" for store in stores]
    checkpoint = f"--checkpoint={run / 'checkpoint.pt'}"
    call(encode, root, tier, checkpoint, "--data", *stores, "--out", *codes, **options)
    learner = run / "fewshot/maml.pt"
    call(meta_train, root, tier, "--learner=maml", f"--codes={codes[1]}", f"--out={learner}", **options)
    tables = [f"--out={run / 'fewshot/errors.parquet'}", f"--trace={run / 'fewshot/trace.parquet'}"]
    adapted = ["--learner=maml", f"--learner-file={learner}", "--codes", *codes, *tables]
    call(adapt, root, tier, *adapted, **options)
    judged = [checkpoint, f"--estimator={judge(root)}", "--data", *stores]
    pairs = f"--pairs={run / 'redirected_pairs.parquet'}"
    call(redirect, root, tier, *judged, f"--out={run / 'redirection.parquet'}", pairs, **options)
    call(walk, root, tier, *judged, pairs, f"--out={run / 'walks'}", **options)
    return run


def judge(root: Path) -> Path:
    path = root / "estimator.pt"
    if not path.exists():
        save_estimator(path, TrainedEstimator(GazeHeadEstimator(4, (32, 128)).eval(), ()))
    return path


def was_taken(run: Path) -> bool:
    return any(event["event"] == "reused_from" for event in read_events(run / "run.jsonl"))


def content(path: Path) -> object:
    """What a file says: torch writes the name of its temporary file too."""
    if path.suffix == ".parquet":
        return table_content(path)
    if path.suffix != ".pt":
        return path.read_bytes()
    state = {key: value for key, value in torch.load(path).items() if key not in ("log_bytes", "identity", "seconds")}
    return json.dumps(state, default=lambda tensor: [str(tensor.dtype), tensor.tolist()])


def test_every_stage_takes_over_what_it_would_make(call, tmp_path, capsys):
    write_people(tmp_path)
    first = whole(call, tmp_path, "baseline")
    assert "taken over" not in capsys.readouterr().err
    idle = whole(call, tmp_path, "idle")
    words = capsys.readouterr().err
    assert words.count("taken over") == 7 and "0 s left" not in words and was_taken(idle)
    taken = {name: content(idle / name) for name in OUTPUTS}
    assert all((first / name).read_bytes() == (idle / name).read_bytes() for name in OUTPUTS)
    whole(call, tmp_path, "idle", share=False)
    assert "taken over" not in capsys.readouterr().err and not was_taken(idle)
    assert {name: content(idle / name) for name in OUTPUTS} == taken


def test_the_log_of_a_training_that_was_taken_over_is_its_own(call, tmp_path):
    write_people(tmp_path)
    first, taken = (trained(call, tmp_path, tier) for tier in ("baseline", "idle"))
    assert (first / "checkpoint.pt").read_bytes() == (taken / "checkpoint.pt").read_bytes()
    donor, run = (read_logged_run(folder / "run.jsonl") for folder in (first, taken))
    assert (donor.reused_from, run.reused_from) == ("", "baseline")
    assert run.start["tier"] == "idle" and run.start["config"]["engine.cudnn_benchmark"] is True
    assert run.start["time"] > donor.ended and run.ended > run.start["time"]
    assert run.values == donor.values and len(run.values) > 5  # their seconds too
    switches = {switch["switch"]: switch for switch in run.switches}
    assert switches["cudnn_benchmark"]["wanted"] == "true" and switches["cudnn_benchmark"]["reason"]
    assert not (taken / "train.work").exists()


def test_several_processes_take_over_and_move_a_weight(call, tmp_path):
    write_people(tmp_path)
    first, taken, rounding = (trained(call, tmp_path, tier, processes=2) for tier in ("baseline", "idle", "rounding"))
    assert [was_taken(run) for run in (first, taken, rounding)] == [False, True, False]
    assert (first / "checkpoint.pt").read_bytes() == (taken / "checkpoint.pt").read_bytes()
    weights = [torch.load(run / "checkpoint.pt")["model"] for run in (first, rounding)]
    far = [float((weights[1][name] - value).abs().max()) for name, value in weights[0].items()]
    assert 0 < max(far) < 1e-4
    assert not was_taken(trained(call, tmp_path, "idle", seed=1))  # one process is another experiment


def test_what_acts_is_trained(call, tmp_path):
    write_people(tmp_path)
    trained(call, tmp_path, "baseline")
    assert not was_taken(trained(call, tmp_path, "recompute"))
    assert not was_taken(trained(call, tmp_path, "idle", seed=1))
    assert was_taken(trained(call, tmp_path, "idle"))
    assert was_taken(trained(call, tmp_path, "baseline", seed=1))  # whoever was first


def test_other_pixels_are_another_experiment(call, tmp_path):
    write_people(tmp_path)
    trained(call, tmp_path, "baseline")
    write_people(tmp_path, seed=1)
    assert not was_taken(trained(call, tmp_path, "idle"))


def test_the_same_people_written_again_are_the_same_experiment(call, tmp_path):
    """Seen red: a store was known by its time, and a clock that jumped let `idle` be trained itself."""
    write_people(tmp_path)
    trained(call, tmp_path, "baseline")
    write_people(tmp_path)
    assert was_taken(trained(call, tmp_path, "idle"))


def test_pixels_without_checksums_are_known_by_the_time_of_their_file(call, tmp_path):
    write_people(tmp_path)
    with h5py.File(tmp_path / "data/gazecapture.h5", "r+") as file:
        del file["00001"].attrs["checksum"]
    trained(call, tmp_path, "baseline")
    with h5py.File(tmp_path / "data/gazecapture.h5", "r+") as file:
        file["00001/pixels"][0] = 0
    assert not was_taken(trained(call, tmp_path, "idle"))


def test_other_code_is_another_experiment(call, tmp_path, monkeypatch):
    write_people(tmp_path)
    trained(call, tmp_path, "baseline")
    monkeypatch.setattr("faze.base.code_hash.fingerprint", lambda module: "another")
    assert not was_taken(trained(call, tmp_path, "idle"))


@pytest.mark.parametrize("name", ["checkpoint.pt", "run.jsonl"])
def test_a_donor_that_is_torn_is_not_taken(name, call, tmp_path):
    write_people(tmp_path)
    first = trained(call, tmp_path, "baseline")
    content = (first / name).read_bytes()
    (first / name).write_bytes(content[: len(content) // 2])
    assert not was_taken(trained(call, tmp_path, "idle"))


def test_noise_controls_are_trainings_of_the_baseline_that_chance_alone_tells_apart(call, tmp_path):
    """Seen red: one weight of the codes' layer was rounded away, and the training was the baseline's in all others."""
    write_people(tmp_path)
    baseline, rounding, other = (trained(call, tmp_path, tier) for tier in ("baseline", "rounding", "seed"))
    assert not was_taken(rounding) and not was_taken(other)
    logs = [read_logged_run(run / "run.jsonl") for run in (baseline, rounding, other)]
    differ = [
        {key for key, value in log.start["config"].items() if logs[0].start["config"][key] != value} for log in logs[1:]
    ]
    assert differ == [{"tier", "control"}, {"tier", "control", "seed"}]
    weights = [torch.load(run / "checkpoint.pt")["model"] for run in (baseline, rounding, other)]
    far = [max(float((w[name] - value).abs().max()) for name, value in weights[0].items()) for w in weights[1:]]
    assert 0 < far[0] < 1e-4 < far[1]  # three steps: rounding has hardly grown
    assert sum(not torch.equal(weights[1][name], value) for name, value in weights[0].items()) > len(weights[0]) / 2
