"""Modules that are excluded from code hashes do not affect outputs: a stage writes the same without them.

The test once failed because it compared the length of the run log, which depends on the digits of its times.
"""

import ast
import contextlib
import json
import sys
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from table_content import table_content

from faze.base.code_hash import NEUTRAL, is_neutral
from faze.base.run_log import read_events
from faze.config.stage_config import resolve, to_lines
from faze.config.yaml_files import merge, read_yaml
from faze.stages import adapt, encode, meta_train, preprocess, synthesise, train

ROOT = Path(__file__).resolve().parents[2]
FEW = {
    "synthetic": {"mpiigaze_people": 1, "gazecapture_train_people": 2, "gazecapture_test_people": 1},
    "train": {"pairs": 16, "log_every_pairs": 8, "validate_every_pairs": 16, "checkpoint_every_pairs": 16},
    "fewshot": {"outer_steps": 3, "adapt_steps": 3, "record_steps": [], "validate_every_steps": 3},
}


@contextlib.contextmanager
def nothing(*_: object) -> Iterator[None]:
    yield


class Silence:
    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __call__(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def one_thread(_: int, start: Callable[..., None], *arguments: object) -> Iterator[ThreadPoolExecutor]:
    start(*arguments)
    with ThreadPoolExecutor(1) as pool:
        yield pool


STUBS: dict[str, dict[str, object]] = {
    "faze.base.progress": {"Progress": Silence},
    "faze.base.locks": {"output_lock": nothing, "machine_shared": nothing, "machine_exclusive": nothing},
    "faze.base.process_pool": {"worker_processes": one_thread, "load_ahead": lambda *_: None},
}
# All they return reaches a person or an input file, so that there is nothing to leave out.
WORDS = {
    "faze.__main__",
    "faze.base.cgroup",  # and it limits threads, which are an argument, and caches, which change no number
    "faze.base.code_hash",
    "faze.base.command_line",
    "faze.base.errors",
    "faze.config",
}


def chain(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run a chain of stages: rendered people, their strips, two training steps, codes, a learner and its errors."""
    config = merge(read_yaml(ROOT / "config" / "config.yaml", ROOT / "config" / "smoke.yaml"), FEW)
    folder.mkdir()

    def run(stage: types.ModuleType, *arguments: object, run: tuple[str, int] | tuple[()] = (), **of: str) -> None:
        name = stage.__name__.rpartition(".")[2]
        own = folder / f"{name}.yaml"
        own.write_text("\n".join(to_lines(resolve(config, name, *run, **of))), encoding="utf-8")
        threads = [] if name == "train" else ["--threads", 1]
        words = ["--config", own, *threads, *arguments]
        monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
        assert stage.main() == 0

    raw, data = folder / "raw", folder / "gazecapture.h5"
    outputs = ("mpiifacegaze", "gazecapture", "mpiifacegaze-supplementary", "gazecapture-supplementary", "truth")
    run(synthesise, *(word for name in outputs for word in (f"--{name}", raw / name)))
    annotation = ("--supplementary", raw / "gazecapture-supplementary", "--rejects", folder / "rejects.csv")
    where = ("--raw", raw / "gazecapture", "--out", data)
    run(preprocess, *where, *annotation, dataset="gazecapture")
    baseline = ("baseline", 0)
    checkpoint, codes, learner = folder / "checkpoint.pt", folder / "codes.h5", folder / "maml.pt"
    run(train, "--data", data, "--out", checkpoint, "--run-log", folder / "run.jsonl", run=baseline)
    run(encode, "--data", data, "--checkpoint", checkpoint, "--out", codes, run=baseline)
    run(meta_train, "--learner", "maml", "--codes", codes, "--out", learner, run=baseline)
    errors = ("--out", folder / "errors.parquet", "--trace", folder / "trace.parquet")
    run(adapt, "--learner", "maml", "--learner-file", learner, "--codes", codes, *errors, run=baseline)
    return folder


def content(path: Path) -> object:
    """Return the content of a file, without times and speeds."""
    if path.suffix == ".jsonl":
        told = [(event["event"], event.get("step"), event.get("values", {})) for event in read_events(path)]
        return [(*of, {k: v for k, v in values.items() if k != "train/images_per_s"}) for *of, values in told]
    if path.suffix == ".parquet":
        return table_content(path)
    if path.suffix == ".pt":
        state = {key: value for key, value in torch.load(path).items() if key not in ("log_bytes", "seconds")}
        return json.dumps(state, default=lambda tensor: [str(tensor.dtype), tensor.tolist()])
    return path.read_bytes()


def test_stages_write_the_same_without_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAZE_MACHINE_LOCK", str(tmp_path / "machine.lock"))
    whole = chain(tmp_path / "whole", monkeypatch)
    replaced = set()
    for module in [module for name, module in sys.modules.items() if name.startswith("faze.")]:
        for neutral, stubs in STUBS.items():
            for name, stub in stubs.items():
                if getattr(module, name, None) is getattr(sys.modules[neutral], name) and module.__name__ != neutral:
                    monkeypatch.setattr(module, name, stub)
                    replaced.add(name)
    assert {"Progress", "output_lock", "machine_shared", "worker_processes", "load_ahead"} <= replaced
    without = chain(tmp_path / "without", monkeypatch)

    def files(folder: Path) -> dict[str, Path]:
        found = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
        return {str(path.relative_to(folder)): path for path in found}

    assert files(whole).keys() == files(without).keys()
    for name, path in files(whole).items():
        assert content(path) == content(files(without)[name]), name


def test_every_neutral_module_is_tried_or_has_nothing_to_leave_out() -> None:
    assert set(NEUTRAL) == STUBS.keys() | WORDS
    assert all(reason for reason in NEUTRAL.values())


def test_what_is_tried_hands_no_value_back() -> None:
    """Functions that other modules call return no values, and no module imports constants of neutral modules."""
    for path in sorted((ROOT / "faze").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if is_neutral(module):
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ImportFrom) and node.module in STUBS:
                assert {alias.name for alias in node.names} <= STUBS[node.module].keys(), (module, node.module)
    for module in STUBS:
        tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_bytes())
        functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        for name in [*(STUBS[module].keys() & functions.keys()), *({"__call__"} & functions.keys())]:
            returned = ast.unparse(functions[name].returns)
            assert returned in ("None", "Iterator[None]", "Iterator[ProcessPoolExecutor]"), (module, name, returned)
