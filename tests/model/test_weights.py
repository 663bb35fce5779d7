import dataclasses
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from faze.base.errors import UserError
from faze.commands import import_checkpoint
from faze.config.parameters import Model, NormalizedCamera
from faze.model.dted import DTED
from faze.model.weights import check_same_model, import_published, load_model, network_hash, save_weights, strict_state

ROOT = Path(__file__).resolve().parents[2]
MODEL = Model(2, 4, 32, 128, 4, 2, 3, 4, normalize_axis=1, backprop_gaze=True)


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
    dted.camera = NormalizedCamera(650.0, 500.0, 128, 32)
    save_weights(tmp_path / "checkpoint.pt", dted)
    assert load_model(tmp_path / "checkpoint.pt").camera == dted.camera
    content = torch.load(tmp_path / "checkpoint.pt")
    torch.save(content | {"camera": content["camera"] | {"distance_mm": 0}}, tmp_path / "checkpoint.pt")
    with pytest.raises(UserError, match=r"checkpoint\.pt: .*distance_mm"):
        load_model(tmp_path / "checkpoint.pt")


def test_to_load_weights_imports_no_compiler(dted, tmp_path):
    """Regression: initialising a network on the meta device imported torch's compiler."""
    save_weights(tmp_path / "checkpoint.pt", dted)
    code = "import sys, faze.model.weights as w; w.load_model(sys.argv[1]); print('torch._dynamo' in sys.modules)"
    command = [sys.executable, "-c", code, str(tmp_path / "checkpoint.pt")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"


def test_sizes_that_no_network_has_are_told_with_the_file(dted, tmp_path):
    """Regression: the message named keys of the configuration, but not the checkpoint that contains them."""
    save_weights(tmp_path / "checkpoint.pt", dted)
    content = torch.load(tmp_path / "checkpoint.pt")
    content["model_config"]["image_height_px"] = 1
    torch.save(content, tmp_path / "checkpoint.pt")
    with pytest.raises(UserError, match=r"checkpoint\.pt: model\.image_height_px 1 and .* must be multiples of"):
        load_model(tmp_path / "checkpoint.pt")


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


def test_keys_of_which_some_have_the_prefix_are_refused(dted):
    state = dted.state_dict()
    state["module.gaze2.bias"] = state.pop("gaze2.bias")
    with pytest.raises(ValueError, match=r"gaze2\.bias is missing; module\.gaze2\.bias is unknown"):
        strict_state("weights.pt", state, MODEL)


def test_half_precision_weights_become_float32(dted):
    state = {key: value.half() for key, value in dted.state_dict().items()}
    assert {value.dtype for value in strict_state("weights.pt", state, MODEL).values()} == {torch.float32}


def write_torn(path: Path, dted: DTED) -> None:
    save_weights(path, dted)
    path.write_bytes(path.read_bytes()[:-2000])


def write_code(path: Path, dted: DTED) -> None:
    class Evil:
        def __reduce__(self):
            return print, ("ran",)

    path.write_bytes(pickle.dumps(Evil(), protocol=2))


@pytest.mark.parametrize(
    ("write", "sentence"),
    [
        (lambda path, dted: None, "there is no such file: check its path"),
        (write_torn, "torch file"),
        (write_code, "torch file"),
        (lambda path, dted: path.write_bytes(b""), "torch file"),
        (lambda path, dted: path.write_text("hello"), "torch file"),
        (lambda path, dted: torch.save([1], path), "no mapping"),
        (lambda path, dted: torch.save(dted.state_dict(), path), "faze import-checkpoint"),
        (lambda path, dted: torch.save({"format": 1, "model": {}}, path), "model_config"),
        (
            lambda path, dted: torch.save({"format": 1, "model": {}, "model_config": {"growht": 2}}, path),
            "growht: unknown key; did you mean growth",
        ),
    ],
)
def test_what_is_no_checkpoint_is_refused_in_one_sentence(dted, tmp_path, write, sentence, capfd):
    path = tmp_path / "checkpoint.pt"
    write(path, dted)
    with pytest.raises(ValueError, match=sentence) as caught:
        load_model(path)
    assert str(caught.value).startswith(str(path))
    assert "ran" not in capfd.readouterr().out


def test_another_model_is_refused_key_by_key():
    other = dataclasses.replace(MODEL, growth=32, normalize_axis=2)
    check_same_model("checkpoint.pt", MODEL, MODEL)
    with pytest.raises(ValueError, match=r"growth is 32 in the checkpoint, not 2; model\.normalize_axis is 2"):
        check_same_model("checkpoint.pt", other, MODEL)


def run_import(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["faze import-checkpoint", *map(str, arguments)])
    monkeypatch.chdir(ROOT)
    return import_checkpoint.main()


@pytest.mark.parametrize("prefix", ["", "module."])
def test_import_command(dted, tmp_path, monkeypatch, capsys, prefix):
    published, config, out = tmp_path / "published.pth.tar", tmp_path / "small.yaml", tmp_path / "new" / "checkpoint.pt"
    torch.save({prefix + key: value for key, value in dted.state_dict().items()}, published)
    lines = [f"  {key}: {str(value).lower()}" for key, value in dataclasses.asdict(MODEL).items()]
    config.write_text("\n".join(["preprocess: {distance_mm: 500}", "model:", *lines]))
    assert run_import(monkeypatch, published, "--configfile", config, "--out", out) == 0
    assert_same_weights(load_model(out), dted)
    assert load_model(out).camera == NormalizedCamera(1300.0, 500.0, 256, 64)
    assert "51 tensors" in capsys.readouterr().out


def test_import_command_refuses_weights_of_another_size(dted, tmp_path, monkeypatch, capsys):
    published, out = tmp_path / "published.pth.tar", tmp_path / "checkpoint.pt"
    torch.save(dted.state_dict(), published)
    assert run_import(monkeypatch, published, "--out", out) == 1
    error = capsys.readouterr().err
    assert "encoder.initial.conv1.weight has shape (4, 3, 3, 3), not (8, 3, 3, 3)" in error
    assert error.count("\n") == 1
    assert not out.exists()


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
