"""Targets that read torch files: checkpoints, learners, the estimator."""

import copy
import functools
import io
import math
import pickle
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cases import Target
from hostile import TEXTS, Draw, edited_bytes
from targets_data import written

from faze.base.errors import UserError
from faze.base.geometry import vector_from_pitchyaw
from faze.commands.calibrate import check_shots, read_learner
from faze.config.parameters import Fewshot, Model
from faze.config.yaml_files import DEFAULTS, read_yaml
from faze.fewshot.learner_file import Learned, load_learned, plain, save_fields
from faze.fewshot.person_codes import PersonCodes
from faze.fewshot.personal_estimator import calibrate
from faze.model.dted import DTED
from faze.model.weights import import_published, load_model, save_weights
from faze.redirection.estimator import GazeHeadEstimator, TrainedEstimator, load_estimator, save_estimator

BOMB_MIB = 16
MODEL = Model(2, 1, 32, 128, 4, 2, 3, 4, normalize_axis=1, backprop_gaze=True)


def _repeated() -> torch.Tensor:
    """Return a single number in a tensor whose header claims a tebibyte of data."""
    return torch.zeros(1).expand(2**38)


# Not made beforehand, as some of them cannot be copied.
_TENSORS: tuple[Callable[[], Any], ...] = (
    _repeated,
    lambda: torch.zeros(3).half(),
    lambda: torch.zeros(3).double(),
    lambda: torch.zeros(3).to_sparse(),
    lambda: torch.empty(3, device="meta"),
    lambda: torch.nn.Parameter(torch.zeros(3)),
    lambda: torch.zeros(2, 3).T,
    lambda: torch.quantize_per_tensor(torch.zeros(3), 1.0, 0, torch.qint8),
    *(lambda shape=shape: torch.zeros(shape) for shape in ((), 0, 3, (2, 3))),
    *(lambda kind=kind: torch.zeros(3, dtype=kind) for kind in (torch.int64, torch.bool, torch.complex64)),
)
_VALUES = (
    *(None, True, 0, 1, -1, 7, 2**31, 2**62, 2**70, 0.5, float("nan"), float("inf"), [], {}, (), [1, [2]], {1: 2}),
    *({"a": 1}, {"x", 1}, b"bytes", bytearray(9), 1j, torch.Size([1]), torch.device("cpu"), torch.float32),
)


def _edited(draw: Draw, content: dict, most: int = 3) -> dict:
    """Change some values, keys and tensor shapes in nested mappings."""
    root = copy.deepcopy(content)
    for _ in range(draw.number(1, most)):
        holder, key = _chosen(draw, root)
        kind = draw.pick(["value", "value", "text", "delete", "rename", "shape", "shape"])
        if kind == "delete":
            del holder[key]
        elif kind == "rename":
            holder[draw.pick((*TEXTS, 3, None))] = holder.pop(key)
        elif kind == "shape" and isinstance(holder[key], torch.Tensor):
            shape = [draw.pick([n, n, 0, 1, n + 1, 5000]) for n in holder[key].shape][: draw.pick([None, 2])]
            holder[key] = torch.zeros(shape if math.prod(shape) <= 100_000 else shape[:1])
        elif kind == "text":
            holder[key] = draw.pick(TEXTS)
        else:
            value = draw.pick((*_VALUES, *_TENSORS))
            holder[key] = value() if callable(value) else copy.deepcopy(value)
    return root


def _chosen(draw: Draw, root: dict) -> tuple[dict, Any]:
    slots = []

    def walk(holder: dict) -> None:
        for key, value in holder.items():
            slots.append((holder, key))
            if isinstance(value, dict):
                walk(value)

    walk(root)
    return slots[draw.number(0, len(slots) - 1)] if slots else (root, None)


class _Runs:
    def __reduce__(self) -> tuple:
        import os

        return os.system, ("touch ran",)


class _Bytes:
    def __reduce__(self) -> tuple:
        return bytearray, (2**40,)


@functools.cache
def _whole() -> tuple[bytes, ...]:
    """Create files that are hostile without further edits."""
    found = [
        pickle.dumps({"format": 1, "model": _Runs()}),
        pickle.dumps({"model": _Bytes()}, protocol=2),
        b"]" * 10**5 + b".",
    ]
    zipped = io.BytesIO()
    torch.save({"format": 1, "model": {"a": torch.zeros(2)}}, zipped)
    for packed in (True, False):
        out = io.BytesIO()
        with (
            zipfile.ZipFile(io.BytesIO(zipped.getvalue())) as old,
            zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new,
        ):
            for record in old.infolist():
                content = old.read(record)
                if record.filename.endswith("/data/0" if packed else ".pkl"):
                    content = bytes(BOMB_MIB * 2**20) if packed else pickle.dumps({"model": _Bytes()}, protocol=2)
                new.writestr(record.filename, content)
        found.append(out.getvalue())
    return tuple(found)


def _write(draw: Draw, path: Path, content: dict, valid: bytes) -> None:
    kind = draw.pick(["content", "content", "content", "bytes", "whole", "legacy"])
    if kind == "bytes":
        path.write_bytes(edited_bytes(draw, valid))
    elif kind == "whole":
        path.write_bytes(draw.pick(_whole()))
    else:
        out = io.BytesIO()
        try:
            torch.save(_edited(draw, content), out, _use_new_zipfile_serialization=kind != "legacy")
        except (RuntimeError, NotImplementedError, TypeError, KeyError):  # what torch cannot write
            out = io.BytesIO(valid)
        saved = out.getvalue()
        path.write_bytes(edited_bytes(draw, saved) if kind == "legacy" else saved)


@functools.cache
def _checkpoint() -> tuple[dict, bytes]:
    torch.manual_seed(0)
    valid = written(lambda path: save_weights(path, DTED(MODEL)))
    return torch.load(io.BytesIO(valid), weights_only=True), valid


def _first(make: Callable[[], bytes], parse: Callable[[Path], object]) -> Callable[[], None]:
    """Return a function that parses a valid file once."""

    def warm() -> None:
        _whole()
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "given.pt").write_bytes(make())
            parse(Path(folder))

    return warm


def _make_checkpoint(draw: Draw, folder: Path) -> None:
    _write(draw, folder / "given.pt", *_checkpoint())


def _parse_checkpoint(folder: Path) -> None:
    path = folder / "given.pt"
    refused = None
    for load in (load_model, lambda path: import_published(path, MODEL)):
        try:
            dted = load(path)
            assert all(value.isfinite().all() for value in dted.state_dict().values())
        except UserError as error:
            refused = error
    if refused:
        raise refused


_SETTINGS = Fewshot(
    **{name: value for name, value in read_yaml(DEFAULTS)["fewshot"].items() if name in Fewshot.__dataclass_fields__}
)


@functools.cache
def _learners() -> tuple[tuple[dict, bytes], ...]:
    def tensors(dtype: torch.dtype, **shapes: tuple[int, ...]) -> dict[str, torch.Tensor]:
        return {
            name: torch.rand(shape, generator=torch.Generator().manual_seed(0)).to(dtype) + 0.1
            for name, shape in shapes.items()
        }

    k, double = 2, torch.float64
    network = {
        "hidden_weight": (k, 6, 16),
        "hidden_bias": (k, 1, 16),
        "output_weight": (k, 16, 3),
        "output_bias": (k, 1, 3),
    }
    scales = {f"rate_scale_{name}": shape for name, shape in network.items()}
    states = {
        "maml": tensors(torch.float32, **network),
        "meta_sgd": tensors(torch.float32, **network, **scales),
        "offset": {},
        "kappa": tensors(double, shrink=(3,)),
        "affine": tensors(double, mean=(2, 2), noise=(2,), center=(2, 2), scale=(2, 2))
        | {"covariance": torch.eye(2, dtype=double).repeat(2, 1, 1)},
        "gp": tensors(double, kernel=(2, 3), noise=(2,), center=(6,), scale=(6,)),
    }
    settings = plain(_SETTINGS) | {"adapt_steps": 3, "shots": [1, 3]}
    found = []
    for name, state in states.items():
        learned = Learned(
            name, [1, 3], settings, state, val_deg={"1": 3.0}, stop_steps=[1, 2] if name == "maml" else []
        )
        valid = written(lambda path, learned=learned: save_fields(learned, path))
        found.append((torch.load(io.BytesIO(valid), weights_only=True), valid))
    return tuple(found)


def _person() -> PersonCodes:
    rng = np.random.default_rng(0)
    gaze = vector_from_pitchyaw(rng.normal(0, 0.2, (6, 2)))
    return PersonCodes(
        "p00", "mpiigaze", "test", rng.normal(size=(6, 6)).astype(np.float32), gaze, gaze, np.zeros((6, 2))
    )


def _make_learner(draw: Draw, folder: Path) -> None:
    _write(draw, folder / "given.pt", *draw.pick(_learners()))


def _parse_learner(folder: Path) -> None:
    load_learned(folder / "given.pt", None, [1])
    found = read_learner(folder / "given.pt", None)
    check_shots(found, folder / "given.pt", 3)
    estimator = calibrate(_person(), [0, 1, 2], found)
    assert estimator.gaze(_person().seen(slice(None))).shape == (6, 3)


@functools.cache
def _estimator() -> tuple[dict, bytes]:
    trained = TrainedEstimator(GazeHeadEstimator(2, (16, 64)), ["0123456789abcdef"])
    valid = written(lambda path: save_estimator(path, trained))
    return torch.load(io.BytesIO(valid), weights_only=True), valid


def _make_estimator(draw: Draw, folder: Path) -> None:
    _write(draw, folder / "given.pt", *_estimator())


def _parse_estimator(folder: Path) -> None:
    trained = load_estimator(folder / "given.pt")
    trained.check_size(folder / "given.pt", 16, 64)
    with torch.inference_mode():
        assert trained.network(torch.zeros(1, 3, 16, 64)).shape == (1, 4)
    set(trained.trained_on)


TARGETS = (
    Target("checkpoint", _make_checkpoint, _parse_checkpoint, warm=_first(lambda: _checkpoint()[1], _parse_checkpoint)),
    Target(
        "learner", _make_learner, _parse_learner, nameless=True, warm=_first(lambda: _learners()[0][1], _parse_learner)
    ),
    Target("estimator", _make_estimator, _parse_estimator, warm=_first(lambda: _estimator()[1], _parse_estimator)),
)
