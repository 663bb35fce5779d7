"""Checkpoints: faze's own, published ones, and files of strangers, from which no code is run."""

import json
import os
import pickle
from pathlib import Path

import pytest
import torch
from small_model import MODEL

from faze.base.errors import UserError
from faze.config.parameters import NormalizedCamera
from faze.model.dted import DTED
from faze.model.torch_file import write_mapping
from faze.model.weights import import_published, load_model, network_hash, save_weights


@pytest.fixture
def dted() -> DTED:
    torch.manual_seed(0)
    return DTED(MODEL)


def assert_same_weights(a: DTED, b: DTED) -> None:
    assert a.model == b.model
    assert all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


@pytest.mark.parametrize(
    "camera", [None, NormalizedCamera(focal_length_px=650.0, distance_mm=500.0, width_px=128, height_px=32)]
)
def test_a_network_comes_back(dted, tmp_path, camera):
    dted.camera = camera
    save_weights(tmp_path / "checkpoint.pt", dted)
    again = load_model(tmp_path / "checkpoint.pt")
    assert_same_weights(again, dted)
    assert again.camera == camera and not again.training


@pytest.mark.parametrize("older", [False, True])  # the published file has torch's older format
@pytest.mark.parametrize("wrap", [lambda s: s, lambda s: {"state_dict": s, "epoch": 3}, lambda s: {"model": s}])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_published_forms_load_by_name(dted, tmp_path, wrap, prefix, older):
    path = tmp_path / "published.pth.tar"
    content = wrap({prefix + key: value for key, value in dted.state_dict().items()})
    torch.save(content, path, _use_new_zipfile_serialization=not older)
    assert_same_weights(import_published(path, MODEL), dted)


def test_every_missing_unknown_and_misshapen_tensor_is_named(dted, tmp_path):
    state = dted.state_dict()
    del state["encoder.trans2.composite.conv.weight"]
    state["decoder.block9.compo1.conv.weight"] = torch.zeros(1)
    state["gaze1.weight"] = torch.zeros(64, 9)
    torch.save(state, tmp_path / "x.pt")
    with pytest.raises(UserError, match=r"x\.pt: ") as caught:
        import_published(tmp_path / "x.pt", MODEL)
    for name in ("encoder.trans2.composite.conv.weight", "decoder.block9.compo1.conv.weight", "gaze1.weight"):
        assert name in str(caught.value)
    assert "[64, 9]" in str(caught.value) and "\n" not in str(caught.value)


class Runs:
    def __reduce__(self) -> tuple:
        return os.system, ("touch ran",)


def write_torn(path: Path) -> None:
    write_mapping(path, {"weight": torch.arange(3000.0)})
    path.write_bytes(path.read_bytes()[:-2000])


FAULTS = {
    "absent": (lambda path: None, "No such file"),
    "empty": (lambda path: path.touch(), ""),
    "text": (lambda path: path.write_text("hello"), "not a torch file"),
    "torn": (write_torn, ""),
    "code": (lambda path: torch.save({"a": Runs()}, path), "more than tensors"),
    "code, older": (lambda path: path.write_bytes(pickle.dumps({"a": Runs()}, 2)), "more than tensors"),
    "a list": (lambda path: torch.save([1], path), "not contain a mapping"),
    "published": (lambda path: torch.save(DTED(MODEL).state_dict(), path), "faze import-checkpoint"),
    "other sizes": (
        lambda path: torch.save({"format": 1, "model": {}, "model_config": {"growht": 2}}, path),
        "growht",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_file_is_refused(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write, words = FAULTS[fault]
    write(tmp_path / "x.pt")
    with pytest.raises(UserError, match=rf"(?s)x\.pt: .*{words}"):
        load_model(tmp_path / "x.pt")
    assert not (tmp_path / "ran").exists()


def test_import_command(dted, tmp_path, run_stage, capsys):
    published, config, out = tmp_path / "published.pth.tar", tmp_path / "small.yaml", tmp_path / "new" / "checkpoint.pt"
    torch.save(dted.state_dict(), published)
    model = json.dumps(MODEL.model_dump())
    config.write_text(f"name: small\npreprocess: {{distance_mm: 500}}\nmodel: {model}\n")
    assert run_stage("import-checkpoint", None, published, configfile=config, out=out) == 0
    assert_same_weights(load_model(out), dted)
    assert load_model(out).camera.distance_mm == 500
    assert run_stage("import-checkpoint", None, published, out=tmp_path / "other.pt") == 1
    error = capsys.readouterr().err
    assert "encoder.initial.conv1.weight" in error and error.count("\n") == 1
    assert not (tmp_path / "other.pt").exists()


def test_the_hash_of_a_network_is_that_of_encoder_and_gaze_head() -> None:
    """Codes and gaze depend on these, also if training leaves the gaze head as it was."""
    hashes = {}
    for name in ("nothing", "fc_dec.weight", "encoder.initial.conv1.weight", "gaze2.bias"):
        torch.manual_seed(0)
        dted = DTED(MODEL)
        if name != "nothing":
            with torch.no_grad():
                dted.get_parameter(name).add_(1e-3)
        hashes[name] = network_hash(dted)
    assert hashes["nothing"] == hashes["fc_dec.weight"] and len(set(hashes.values())) == 3
