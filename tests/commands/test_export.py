"""Inference copies in low precision, and parts of the network as ONNX graphs, with a person's calibration.

Checked by breaking the code: weights left in float32, an overflow that is not refused, both comparisons in float32,
a fixed batch, LayerNorm with weights as large as the image, the graph of other weights reused.
"""

import dataclasses
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from tiny_workload import Tiny

from faze.base.geometry import angular_error
from faze.commands import export
from faze.config.parameters import Model
from faze.config.shipped import network_path
from faze.data.network_input import to_network, to_network_torch
from faze.data.store.strips import PersonStrips, write_strips
from faze.fewshot.learner_file import save_fields
from faze.fewshot.person_codes import Seen
from faze.fewshot.personal_estimator import PersonalEstimator
from faze.model import onnx_graphs
from faze.model.dted import DTED, Codes
from faze.model.onnx_graphs import Decoder
from faze.model.weights import load_model, network_hash, save_weights
from faze.stages.encode import encode_strips

MODEL = Model(2, 4, 32, 128, 4, 2, 3, 4, normalize_axis=1, backprop_gaze=True)


@pytest.fixture
def trained(tmp_path) -> Path:
    torch.manual_seed(0)
    path = tmp_path / "checkpoint.pt"
    save_weights(path, DTED(MODEL))
    return path


def run(monkeypatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["faze export", *map(str, arguments)])
    return export.main()


def test_the_network_of_the_package_is_called_shipped(tmp_path, monkeypatch, capsys):
    assert run(monkeypatch, "--precision", "fp16", "--checkpoint", "shipped", "--out", tmp_path / "copy.pt") == 0
    assert load_model(tmp_path / "copy.pt").model == load_model(network_path("shipped")).model


def angles(printed: str) -> list[tuple[float, float]]:
    """Return the mean and the largest angle in each line."""
    words = [line.split() for line in printed.splitlines() if "degrees" in line]
    return [(float(line[line.index("mean") + 1]), float(line[line.index("largest") + 1])) for line in words]


@pytest.mark.parametrize(("precision", "bits"), [("fp16", 11), ("bf16", 8)])
def test_copy_is_the_rounded_weights(trained, tmp_path, monkeypatch, capsys, precision, bits):
    save_weights(trained, DTED(dataclasses.replace(MODEL, z_app=256)))  # large enough for sizes in MiB
    out = tmp_path / "copies" / "copy.pt"
    assert run(monkeypatch, "--precision", precision, "--checkpoint", trained, "--out", out, "--strips", 3) == 0
    stored = torch.load(out, weights_only=True)["model"]
    assert {value.dtype for value in stored.values()} == {export.DTYPES[precision]}
    copy, original = load_model(out).state_dict(), load_model(trained).state_dict()
    for name, value in original.items():
        torch.testing.assert_close(copy[name], value, rtol=2.0**-bits, atol=1e-7)
    printed = capsys.readouterr().out
    before, after = (path.stat().st_size / 2**20 for path in (trained, out))
    assert f"{out}: {precision}, {after:.1f} MiB instead of {before:.1f} MiB" in printed and 0.1 < after < 0.7 * before
    assert "on 3 random patterns" in printed
    computed = angles(printed)
    rounded, low = computed
    assert rounded != low
    assert all(0 < mean <= largest < 5 for mean, largest in computed)


def test_fp16_moves_the_gaze_less_than_bf16_and_rounding_less_than_computing(trained, tmp_path, monkeypatch, capsys):
    found = {}
    for precision in ("fp16", "bf16"):
        out = tmp_path / f"{precision}.pt"
        run(monkeypatch, "--precision", precision, "--checkpoint", trained, "--out", out, "--strips", 6)
        found[precision] = angles(capsys.readouterr().out)
    assert found["fp16"][0][0] < found["bf16"][0][0]
    assert found["bf16"][0][0] < 2 * found["bf16"][1][0]


def test_strips_come_from_everybody(tmp_path, trained, monkeypatch, capsys):
    data = tmp_path / "data.h5"
    people = [
        PersonStrips(
            f"{n:05d}",
            "test",
            [f"{i}.jpg" for i in range(4)],
            np.full((4, 64, 256, 3), 10 * n, np.uint8),
            np.zeros((4, 4), np.float32),
        )
        for n in range(3)
    ]
    write_strips(data, "gazecapture", people)
    assert export.stored_strips(data, 3)[:, 0, 0, 0].tolist() == [0, 10, 20]
    assert len(export.stored_strips(data, 99)) == 12
    command = ["--precision", "bf16", "--checkpoint", trained, "--out", tmp_path / "copy.pt", "--data", data]
    assert run(monkeypatch, *command) == 0
    assert "on 12 strips" in capsys.readouterr().out


def test_what_cannot_be_exported_is_one_sentence(trained, tmp_path, monkeypatch, capsys):
    def refused(*arguments: object) -> str:
        assert run(monkeypatch, "--precision", "fp16", *arguments) == 1
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        return error

    out = tmp_path / "copy.pt"
    assert "none.pt" in refused("--checkpoint", tmp_path / "none.pt", "--out", out)
    assert "is also the path of `checkpoint`" in refused("--checkpoint", trained, "--out", trained)
    assert "missing.h5" in refused("--checkpoint", trained, "--out", out, "--data", tmp_path / "missing.h5")
    large = load_model(trained)
    with torch.no_grad():
        large.gaze2.weight[0, 0] = 1e5
    save_weights(trained, large)
    assert "gaze2.weight would not be finite as float16" in refused("--checkpoint", trained, "--out", out)
    assert not out.exists()


def test_the_decoder_is_the_same_in_onnxruntime_for_any_batch(trained, tmp_path, monkeypatch, capsys):
    out = tmp_path / "decoder.onnx"
    assert run(monkeypatch, "--onnx", "decoder", "--checkpoint", trained, "--out", out) == 0
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".onnx" or "data" in path.name) == [
        out.name
    ]
    assert float(re.search(r"differ by at most (\S+)", capsys.readouterr().out)[1]) < 1e-4
    graph = onnx.load(out)
    onnx.checker.check_model(graph, full_check=True)
    assert [entry.version for entry in graph.opset_import] == [onnx_graphs.OPSET]
    assert {node.op_type for node in graph.graph.node} == onnx_graphs.OPERATORS
    session = onnxruntime.InferenceSession(str(out))
    assert [entry.shape[1:] for entry in session.get_inputs()] == [[4], [2, 3], [3, 3]]
    dted = load_model(trained)
    for count in (1, 3):
        codes = onnx_graphs.Decoder(dted).examples(count)
        [image] = session.run(["image"], {name: code.numpy() for name, code in codes.items()})
        with torch.inference_mode():
            np.testing.assert_allclose(image, dted.decode(Codes(**codes)).numpy(), rtol=1e-3, atol=1e-5)


def test_a_decoder_that_is_not_the_network_is_not_kept(trained, tmp_path, monkeypatch, capsys):
    other = DTED(MODEL).eval()
    monkeypatch.setattr(export, "export_part", lambda part, path: onnx_graphs.export_part(Decoder(other), path))
    assert run(monkeypatch, "--onnx", "decoder", "--checkpoint", trained, "--out", tmp_path / "decoder.onnx") == 1
    assert "the exported graph differs from the network by" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir() if "onnx" in path.name and "lock" not in path.name] == []


@pytest.mark.parametrize("missing", onnx_graphs.LIBRARIES)
def test_a_missing_library_is_one_sentence(trained, tmp_path, monkeypatch, capsys, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    out = tmp_path / "decoder.onnx"
    assert run(monkeypatch, "--onnx", "decoder", "--checkpoint", trained, "--out", out) == 1
    assert f"{missing} is missing: pip install 'faze[onnx]'" in capsys.readouterr().err
    assert not out.exists()


def test_what_is_written_has_to_be_chosen(trained, tmp_path, monkeypatch, capsys):
    def refused(*words: str) -> str:
        assert run(monkeypatch, *words, "--checkpoint", trained, "--out", tmp_path / "copy") == 1
        return capsys.readouterr().err

    assert "pass --precision, for a copy, or --onnx" in refused()
    for words in (
        ("--precision", "int8"),
        ("--onnx", "gaze", "--precision", "bf16"),
        ("--onnx", "decoder", "--precision", "fp16"),
    ):
        assert "the graph gaze can be fp16 or int8, the graph decoder only float32" in refused(*words)


def strips_of(count: int) -> np.ndarray:
    """Return smooth strips of the network's size, one of them of a single colour."""
    strips = onnx_graphs.Gaze(DTED(MODEL), to_network_torch).examples(count)["strips"].numpy()
    strips[0] = 77
    return strips


def test_the_gaze_graph_equalises_and_estimates_like_the_network_for_any_batch(trained, tmp_path, monkeypatch, capsys):
    out = tmp_path / "gaze.onnx"
    assert run(monkeypatch, "--onnx", "gaze", "--checkpoint", trained, "--out", out, "--strips", 6) == 0
    printed = capsys.readouterr().out
    assert "on 6 random patterns" in printed and angles(printed)[0][1] < 0.01 and printed.count("ms for a strip") == 2
    onnx.checker.check_model(onnx.load(out), full_check=True)
    session = onnxruntime.InferenceSession(str(out))
    assert [(entry.name, entry.type) for entry in session.get_inputs()] == [("strips", "tensor(uint8)")]
    dted = load_model(trained)
    for count in (1, 7):
        strips = strips_of(count)
        found = dict(zip(onnx_graphs.Gaze.outputs, session.run(None, {"strips": strips}), strict=True))
        with torch.inference_mode():
            codes = dted.encode(to_network(torch.from_numpy(strips), 32, 128))
            expected = {
                "gaze": dted.gaze_vector(codes.gaze),
                "app": codes.app,
                "gaze_code": codes.gaze,
                "head_code": codes.head,
            }
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value.numpy(), atol=1e-4, err_msg=name)
    strips = onnx_graphs.random_strips(1000, 32, 128).numpy()
    [gaze], expected = session.run(["gaze"], {"strips": strips}), encode_strips(dted, strips)["gaze_hat"]
    assert np.degrees(angular_error(gaze, expected).max()) <= 0.01
    assert np.degrees(angular_error(expected[1:], expected[:-1]).max()) > 1


def save_person(path: Path, dted: DTED, learner: str = "offset") -> PersonalEstimator:
    """Write a calibration for a network."""
    state = {"offset_rad": torch.tensor([0.1, -0.2]), "rotation_rad": torch.tensor([0.1, -0.2, 0.3])}
    found = PersonalEstimator(learner, "me", "mine", 1, [0], {}, state, checkpoint=network_hash(dted))
    save_fields(found, path)
    return found


@pytest.mark.parametrize(("learner", "inputs"), [("offset", ["strips"]), ("kappa", ["strips", "head"])])
def test_a_gaze_graph_contains_a_persons_calibration(trained, tmp_path, monkeypatch, capsys, learner, inputs):
    out, me, dted = tmp_path / "me.onnx", tmp_path / "me.pt", load_model(trained)
    person = save_person(me, dted, learner)
    assert run(monkeypatch, "--onnx", "gaze", "--person", me, "--checkpoint", trained, "--out", out) == 0
    printed = capsys.readouterr().out
    assert "calibrated gaze compared" in printed and angles(printed)[0][1] < 0.01
    session = onnxruntime.InferenceSession(str(out))
    assert [entry.name for entry in session.get_inputs()] == inputs
    strips, head = strips_of(7), np.linspace(-0.3, 0.3, 14, dtype=np.float32).reshape(7, 2)
    values = {"strips": strips, "head": head}
    gaze, _, code, _ = session.run(None, {name: values[name] for name in inputs})
    codes = encode_strips(dted, strips)
    expected = person.gaze(Seen(code.reshape(7, -1), codes["gaze_hat"].astype(np.float64), head.astype(np.float64)))
    assert np.degrees(angular_error(gaze, expected).max()) < 0.01
    assert np.degrees(angular_error(codes["gaze_hat"], expected).min()) > 1
    np.testing.assert_allclose(code, codes["z_gaze"], atol=1e-4)


def test_a_calibration_that_does_not_fit_is_one_sentence(trained, tmp_path, monkeypatch, capsys):
    me, out = tmp_path / "me.pt", tmp_path / "me.onnx"
    save_person(me, DTED(MODEL))
    for words, sentence in {
        ("--onnx", "gaze"): "was made with another network",
        ("--onnx", "decoder"): "--person is for the graph gaze in float32",
        ("--onnx", "gaze", "--precision", "fp16"): "--person is for the graph gaze in float32",
        ("--precision", "bf16"): "--person is for the graph gaze in float32",
    }.items():
        assert run(monkeypatch, *words, "--person", me, "--checkpoint", trained, "--out", out) == 1
        error = capsys.readouterr().err
        assert sentence in error and error.count("\n") == 1 and not out.exists()


def test_a_gaze_graph_in_low_precision_differs_and_keeps_what_it_was_told(trained, tmp_path, monkeypatch, capsys):
    data, pixels = tmp_path / "data.h5", strips_of(9)[1:]
    labels = np.zeros((8, 4), np.float32)
    write_strips(data, "gazecapture", [PersonStrips("1", "test", [f"{i}.jpg" for i in range(8)], pixels, labels)])

    def export_to(name: str, *words: str) -> int:
        common = ["--checkpoint", trained, "--data", data, "--out", tmp_path / name]
        return run(monkeypatch, "--onnx", "gaze", *words, *common)

    largest = {}
    for name, words in {
        "fp16": ["--precision", "fp16"],
        "int8": ["--precision", "int8"],
        "gemm": ["--precision", "int8", "--keep-fp32", "Conv"],
    }.items():
        assert export_to(f"{name}.onnx", *words) == 0
        printed = capsys.readouterr().out
        largest[name] = angles(printed)[0][1]
        assert f"on {8 if name == 'fp16' else 4} strips" in printed
        session = onnxruntime.InferenceSession(str(tmp_path / f"{name}.onnx"))
        assert session.run(["gaze"], {"strips": strips_of(2)})[0].dtype == np.float32
    assert 1e-4 < largest["fp16"] < largest["int8"] < 30 and largest["gemm"] < largest["int8"]
    halves = [node for node in onnx.load(tmp_path / "fp16.onnx").graph.initializer if node.data_type == 10]
    assert len(halves) > 10
    operators = {node.op_type for node in onnx.load(tmp_path / "int8.onnx").graph.node}
    assert {"QuantizeLinear", "DequantizeLinear"} <= operators
    for words, sentence in {
        ("--keep-fp32", "Conv", "Gemm"): "all of them are to stay in fp32",
        ("--keep-fp32", "conv"): "the graph has no operator conv to keep in fp32",
    }.items():
        assert export_to("none.onnx", "--precision", "int8", *words) == 1 and not (tmp_path / "none.onnx").exists()
        assert sentence in capsys.readouterr().err
    assert run(monkeypatch, "--onnx", "gaze", "--precision", "int8", "--checkpoint", trained, "--out", data) == 1
    assert "int8 needs --data" in capsys.readouterr().err


def test_a_graph_whose_output_is_not_finite_is_not_kept(trained, tmp_path, monkeypatch, capsys):
    def run_to_nan(outputs: list, inputs: dict) -> list:
        return [np.full(1, np.nan, np.float32) for _ in outputs]

    monkeypatch.setattr(onnx_graphs, "open_graph", lambda path: SimpleNamespace(run=run_to_nan))
    assert run(monkeypatch, "--onnx", "gaze", "--checkpoint", trained, "--out", tmp_path / "gaze.onnx") == 1
    assert "the exported graph differs from the network by nan" in capsys.readouterr().err
    assert not (tmp_path / "gaze.onnx").exists()


def test_a_workload_is_rounded_and_scored_in_both_formats(tmp_path, monkeypatch, capsys):
    weights, out = Tiny().build().state_dict(), tmp_path / "copy.pt"
    torch.save({"model": weights}, tmp_path / "checkpoint.pt")
    arguments = ["--workload", "tiny_workload:Tiny", "--checkpoint", tmp_path / "checkpoint.pt", "--out", out]
    assert run(monkeypatch, "--precision", "bf16", *arguments) == 0
    stored = torch.load(out, weights_only=True)["model"]
    assert stored["0.weight"].dtype == torch.bfloat16 and stored["1.num_batches_tracked"].dtype == torch.int64
    torch.testing.assert_close(stored["0.weight"].float(), weights["0.weight"], rtol=2.0**-8, atol=0)
    first, *rows = capsys.readouterr().out.splitlines()
    assert first.endswith("MiB; accuracy, %:")
    assert [re.sub(r"[\d.]+ \(.*", "", row) for row in rows] == [
        "  original, computed in float32: ",
        "  copy, computed in bfloat16: ",
    ]
    assert (
        run(monkeypatch, "--onnx", "gaze", *arguments) == 1
        and "--onnx and --data are for DT-ED" in capsys.readouterr().err
    )
    torch.save({"model": {"other": torch.ones(1)}}, tmp_path / "checkpoint.pt")
    assert run(monkeypatch, "--precision", "bf16", *arguments) == 1
    assert "does not contain the weights of workload tiny_workload:Tiny" in capsys.readouterr().err
