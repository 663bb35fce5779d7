import numpy as np
import pytest
import torch
from damaged import add_nobody
from stage_runs import defaults

from faze.config.check import build
from faze.config.parameters import Model
from faze.config.yaml_files import merge
from faze.data.store.codes import CodeStore
from faze.data.store.strips import PersonStrips, write_strips
from faze.fewshot.mlp import gaze_head_weights, gaze_vector
from faze.model.dted import DTED
from faze.model.weights import save_weights
from faze.stages import encode

SMALL = {"growth": 2, "image_height_px": 32, "image_width_px": 128, "z_app": 4, "z_head": 3, "decoder_channels": 4}


def people() -> list[PersonStrips]:
    rng = np.random.default_rng(0)
    return [
        PersonStrips(
            name,
            split,
            [f"{i}.jpg" for i in range(count)],
            rng.integers(0, 256, (count, 64, 256, 3), dtype=np.uint8),
            rng.normal(0, 0.2, (count, 4)).astype(np.float32),
        )
        for name, split, count in (("00002", "train", 5), ("00003", "val", 1), ("00010", "test", 3))
    ]


@pytest.fixture
def stage(tmp_path, run_stage):
    """Create a folder with a store and a checkpoint; return a function that runs the command on it."""
    torch.manual_seed(0)
    dted = DTED(build(Model, merge(defaults()["model"], SMALL)))
    save_weights(tmp_path / "checkpoint.pt", dted)
    write_strips(tmp_path / "data.h5", "gazecapture", people())

    def run(data="data.h5", out="codes.h5", **changes: object) -> int:
        stores = {name: [tmp_path / part for part in value.split()] for name, value in (("data", data), ("out", out))}
        overrides = merge({"model": SMALL, "encode": {"batch": 2}}, changes)
        return run_stage("encode", overrides, checkpoint=tmp_path / "checkpoint.pt", threads=1, **stores)

    run.dted = dted
    run.folder = tmp_path
    return run


def test_every_strip_is_encoded(stage):
    assert stage() == 0
    codes = CodeStore(stage.folder / "codes.h5")
    assert codes.dataset == "gazecapture"
    assert codes.persons() == ["00002", "00003", "00010"]
    for person in people():
        found = codes[person.person_id]
        assert codes.split(person.person_id) == person.split
        wanted = encode.encode_strips(stage.dted, person.pixels)  # in one batch
        for name, array in wanted.items():
            np.testing.assert_allclose(found[name], array, atol=1e-5, err_msg=name)
        assert np.array_equal(found["gaze"], person.labels[:, :2])
        assert np.array_equal(found["head"], person.labels[:, 2:])
        assert {array.dtype for array in found.values()} == {np.dtype(np.float32)}
        count = len(person.labels)
        shapes = {"z_app": (4,), "z_gaze": (2, 3), "z_head": (3, 3), "gaze": (2,), "head": (2,), "gaze_hat": (3,)}
        assert {name: array.shape for name, array in found.items()} == {n: (count, *s) for n, s in shapes.items()}
        np.testing.assert_allclose(np.linalg.norm(found["gaze_hat"], axis=1), 1, rtol=1e-5)


def test_who_has_no_strip_has_no_codes(stage):
    """Regression: a person without strips caused a traceback."""
    add_nobody(stage.folder / "data.h5", "00001")
    assert stage() == 0
    assert CodeStore(stage.folder / "codes.h5").persons() == ["00002", "00003", "00010"]


def test_codes_of_several_stores_are_those_of_each(stage):
    """Regression: the codes of the first store were also written for the second."""
    assert stage() == 0
    folder, of_one = stage.folder, (stage.folder / "codes.h5").read_bytes()
    write_strips(folder / "other.h5", "mpiigaze", people()[:1])
    assert stage("other.h5 data.h5", "first.h5 second.h5") == 0
    assert (folder / "second.h5").read_bytes() == of_one
    first = CodeStore(folder / "first.h5")
    assert (first.dataset, first.persons()) == ("mpiigaze", ["00002"])
    assert np.array_equal(first["00002"]["z_gaze"], CodeStore(folder / "codes.h5")["00002"]["z_gaze"])


def test_stores_that_are_not_as_many_are_refused(stage, capsys):
    assert stage(out="one.h5 two.h5") == 1
    assert "--out has 2 values, but --data has 1: pass the same number" in capsys.readouterr().err


def test_codes_are_computed_in_fp32(stage, monkeypatch):
    """cuDNN uses TF32 by default. Regression: on a GPU, all codes were computed in TF32."""
    seen = []
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    monkeypatch.setattr(
        encode,
        "encode_strips",
        lambda *given, of=encode.encode_strips: seen.append(torch.backends.cudnn.allow_tf32) or of(*given),
    )
    assert stage() == 0
    assert set(seen) == {False} and torch.backends.cudnn.allow_tf32


def test_strips_are_encoded_by_the_network_for_inference(stage, monkeypatch):
    """Regression: strips were encoded by the network for training instead of the one for inference."""
    seen = []
    monkeypatch.setattr(
        encode, "encode_strips", lambda dted, *given, of=encode.encode_strips: seen.append(dted) or of(dted, *given)
    )
    monkeypatch.setattr(encode, "for_inference", lambda dted, of=encode.for_inference: seen.append(of(dted)) or seen[0])
    assert stage() == 0
    assert len(seen) == 1 + 6 and all(dted is seen[0] for dted in seen)  # built once, then used batch by batch


def test_the_stored_gaze_head_makes_the_stored_gaze_hat(stage):
    """The gaze head's activation is the one that the few-shot learner `none` uses."""
    stage.dted.gaze1.bias.data.normal_()
    save_weights(stage.folder / "checkpoint.pt", stage.dted)
    assert stage() == 0
    codes = CodeStore(stage.folder / "codes.h5")
    head, arrays = gaze_head_weights(codes.gaze_head), codes["00002"]
    vector = gaze_vector(head, torch.from_numpy(arrays["z_gaze"]).reshape(1, 5, -1), "relu")[0]
    np.testing.assert_allclose(torch.nn.functional.normalize(vector, dim=-1), arrays["gaze_hat"], atol=1e-5)


@pytest.mark.parametrize(("key", "own", "other"), [("growth", 2, 4), ("normalize_axis", 1, 2)])
def test_a_checkpoint_of_another_model_is_refused(key, own, other, stage, capsys):
    assert stage(model={key: other}) == 1
    error = capsys.readouterr().err
    assert "checkpoint.pt: " in error and f"model.{key} is {own} in the checkpoint, not {other}" in error
    assert not (stage.folder / "codes.h5").exists()


def test_codes_that_are_not_numbers_are_refused(stage, capsys):
    with torch.no_grad():
        stage.dted.fc_enc.weight.fill_(3e38)  # finite, and the codes overflow
    save_weights(stage.folder / "checkpoint.pt", stage.dted)
    assert stage() == 1
    assert "person 00002" in capsys.readouterr().err
    assert [path.name for path in stage.folder.glob("codes*")] == []


def test_a_missing_store_is_one_sentence(stage, capsys):
    (stage.folder / "data.h5").unlink()
    assert stage() == 1
    assert capsys.readouterr().err.strip().endswith("data.h5: no such file")
