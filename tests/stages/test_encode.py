"""The rule `encode`: codes of every strip, the trained gaze head and its estimates."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from small_model import MODEL, random_people
from stage_runs import call_stage
from stores import write_strips

from faze.data.codes import CodeStore
from faze.data.network_input import shrink
from faze.fewshot.mlp import gaze_head_network, gaze_vector, pack
from faze.model.dted import DTED
from faze.model.weights import save_weights
from faze.stages import encode

PEOPLE = random_people(("00002", "train", 5), ("00003", "val", 1), ("00010", "test", 3))


@pytest.fixture
def dted(tmp_path: Path) -> DTED:
    torch.manual_seed(0)
    network = DTED(MODEL)
    network.gaze1.bias.data.normal_()
    save_weights(tmp_path / "checkpoint.pt", network)
    write_strips(tmp_path / "strips.h5", "gazecapture", PEOPLE)
    write_strips(tmp_path / "other.h5", "mpiigaze", PEOPLE[:1])
    return network


@pytest.fixture
def run(dted: DTED, tmp_path: Path) -> Callable[..., int]:
    def run(**model: int) -> int:
        files = {"data": ["strips.h5", "other.h5"], "out": ["codes.h5", "second.h5"]}
        paths = {name: [tmp_path / file for file in listed] for name, listed in files.items()}
        changes = {"model": MODEL.model_dump() | model, "encode": {"batch": 2}}
        return call_stage("encode", tmp_path, changes, checkpoint=tmp_path / "checkpoint.pt", threads=1, **paths)

    return run


def test_every_strip_of_every_store_is_encoded(run: Callable[..., int], dted: DTED, tmp_path: Path) -> None:
    assert run() == 0
    codes = CodeStore(tmp_path / "codes.h5")
    assert (codes.dataset, codes.persons()) == ("gazecapture", ["00002", "00003", "00010"])
    for person in PEOPLE:
        found, labels = codes[person.person_id], person.labels
        assert codes.splits[person.person_id] == person.split
        strips = shrink(torch.from_numpy(person.pixels), 32, 128)
        for name, array in encode.encode_strips(dted, strips).items():  # in one batch
            np.testing.assert_allclose(found[name], array, atol=1e-5, err_msg=name)
        assert np.array_equal(found["gaze"], labels[:, :2]) and np.array_equal(found["head"], labels[:, 2:])
        shapes = {"z_app": (8,), "z_gaze": (2, 3), "z_head": (4, 3), "gaze": (2,), "head": (2,), "gaze_hat": (3,)}
        assert {name: array.shape for name, array in found.items()} == {n: (len(labels), *s) for n, s in shapes.items()}
        np.testing.assert_allclose(np.linalg.norm(found["gaze_hat"], axis=1), 1, rtol=1e-5)
    second = CodeStore(tmp_path / "second.h5")
    assert (second.dataset, second.persons()) == ("mpiigaze", ["00002"])
    assert np.array_equal(second["00002"]["z_gaze"], codes["00002"]["z_gaze"])


def test_codes_are_computed_in_fp32(run: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN uses TF32 by default. Regression: on a GPU, all codes were computed in TF32."""
    seen, given = [], encode.encode_strips
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    noted = lambda *words: seen.append(torch.backends.cudnn.allow_tf32) or given(*words)  # noqa: E731
    monkeypatch.setattr(encode, "encode_strips", noted)
    assert run() == 0
    assert set(seen) == {False} and torch.backends.cudnn.allow_tf32


def test_the_stored_gaze_head_makes_the_stored_gaze_hat(run: Callable[..., int], tmp_path: Path) -> None:
    """The gaze head's activation is the one that the few-shot learner `none` uses."""
    assert run() == 0
    codes = CodeStore(tmp_path / "codes.h5")
    head, arrays = pack(gaze_head_network(codes.gaze_head)), codes["00002"]
    vector = gaze_vector(head, torch.from_numpy(arrays["z_gaze"]).reshape(1, 5, -1), "relu")[0]
    np.testing.assert_allclose(torch.nn.functional.normalize(vector, dim=-1), arrays["gaze_hat"], atol=1e-5)
