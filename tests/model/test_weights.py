import json
import subprocess
import sys

import pytest
import torch
from small_model import MODEL

from faze.base.errors import UserError
from faze.config.parameters import NormalizedCamera
from faze.model.dted import DTED
from faze.model.weights import check_same_model, import_published, load_model, network_hash, save_weights, strict_state


@pytest.fixture
def dted() -> DTED:
    torch.manual_seed(0)
    return DTED(MODEL)


def assert_same_weights(a: DTED, b: DTED) -> None:
    assert a.model == b.model
    assert all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def test_weights_come_back_bit_for_bit(dted, tmp_path):
    save_weights(tmp_path / "checkpoint.pt", dted)
    again = load_model(tmp_path / "checkpoint.pt")
    assert_same_weights(again, dted)
    image = torch.rand(1, 3, 32, 128)
    assert torch.equal(again.encode(image).gaze, dted.encode(image).gaze)
    assert not again.training
    assert again.camera is None


def test_the_virtual_camera_comes_back(dted, tmp_path):
    dted.camera = NormalizedCamera(focal_length_px=650.0, distance_mm=500.0, width_px=128, height_px=32)
    save_weights(tmp_path / "checkpoint.pt", dted)
    assert load_model(tmp_path / "checkpoint.pt").camera == dted.camera


def test_to_load_weights_imports_no_compiler(dted, tmp_path):
    """Regression: initialising a network on the meta device imported torch's compiler."""
    save_weights(tmp_path / "checkpoint.pt", dted)
    code = "import sys, faze.model.weights as w; w.load_model(sys.argv[1]); print('torch._dynamo' in sys.modules)"
    command = [sys.executable, "-c", code, str(tmp_path / "checkpoint.pt")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize("wrap", [lambda s: s, lambda s: {"state_dict": s, "epoch": 3}, lambda s: {"model": s}])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_published_forms_load_by_name(dted, tmp_path, wrap, prefix):
    path = tmp_path / "published.pth.tar"
    torch.save(wrap({prefix + key: value for key, value in dted.state_dict().items()}), path)
    assert_same_weights(import_published(path, MODEL), dted)


def test_every_missing_unknown_and_misshapen_key_is_named(dted):
    state = dted.state_dict()
    del state["encoder.trans2.composite.conv.weight"]
    state["decoder.block9.compo1.conv.weight"] = torch.zeros(1)
    state["gaze1.weight"] = torch.zeros(64, 9)
    state["fc_dec.bias"] = torch.full_like(state["fc_dec.bias"], torch.nan)
    state["gaze2.bias"] = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(ValueError) as caught:
        strict_state("weights.pt", state, MODEL)
    sentence = str(caught.value)
    assert "encoder.trans2.composite.conv.weight is missing" in sentence
    assert "decoder.block9.compo1.conv.weight is unknown" in sentence
    assert "gaze1.weight has shape (64, 9), not (64, 6)" in sentence
    assert "fc_dec.bias contains nan" in sentence
    assert "gaze2.bias is not a tensor of floating-point numbers" in sentence
    assert sentence.count(";") == 4 and "\n" not in sentence


def test_half_precision_weights_become_float32(dted):
    state = {key: value.half() for key, value in dted.state_dict().items()}
    assert {value.dtype for value in strict_state("weights.pt", state, MODEL).values()} == {torch.float32}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 0}, "faze import-checkpoint"),
        ({"model": 3}, "contains no model"),
        ({"model_config": {"growht": 2}}, "growht"),
        ({"model_config": MODEL.model_dump() | {"image_height_px": 1}}, "image_height_px"),
        ({"model_config": MODEL.model_dump() | {"growth": 2**62}}, ""),
        ({"camera": {"distance_mm": 0}}, "distance_mm"),
    ],
)
def test_another_file_is_refused(dted, tmp_path, change, words):
    save_weights(tmp_path / "x.pt", dted)
    torch.save(torch.load(tmp_path / "x.pt") | change, tmp_path / "x.pt")
    with pytest.raises(UserError, match=rf"(?s)x\.pt: .*{words}"):
        load_model(tmp_path / "x.pt")


def test_another_model_is_refused_key_by_key():
    other = MODEL.model_copy(update={"growth": 32, "normalize_axis": 2})
    check_same_model("checkpoint.pt", MODEL, MODEL)
    with pytest.raises(ValueError, match=r"growth is 32 in the checkpoint, not 2; model\.normalize_axis is 2"):
        check_same_model("checkpoint.pt", other, MODEL)


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
    assert "encoder.initial.conv1.weight has shape (4, 3, 3, 3), not (8, 3, 3, 3)" in error
    assert error.count("\n") == 1 and not (tmp_path / "other.pt").exists()


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
