"""The ONNX graph of `faze export`, and the example that uses it without faze."""

import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from small_model import MODEL
from stage_runs import ROOT, call_faze

from faze.base.geometry import angular_error, pitchyaw_from_vector
from faze.commands import export
from faze.data.network_input import shrink
from faze.model.dted import DTED
from faze.model.weights import load_model, save_weights
from faze.stages.encode import encode_strips

EXAMPLE = ROOT / "examples" / "onnx_gaze.py"


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    save_weights(tmp_path / "checkpoint.pt", DTED(MODEL))
    return tmp_path / "checkpoint.pt"


def run(*arguments: object) -> int:
    return call_faze("export", "--onnx", "gaze", *arguments)


def test_the_graph_estimates_like_the_network_for_any_batch(trained, tmp_path, capsys):
    out = tmp_path / "new" / "gaze.onnx"
    assert run("--checkpoint", trained, "--out", out) == 0
    assert float(capsys.readouterr().out.split()[-1]) <= 1e-4
    assert [path.name for path in out.parent.iterdir()] == [out.name]
    graph = onnx.load(out)
    onnx.checker.check_model(graph, full_check=True)
    assert [entry.version for entry in graph.opset_import] == [18]
    assert graph.ir_version <= 9  # the latest that onnxruntime 1.17 reads
    session, dted = onnxruntime.InferenceSession(str(out)), load_model(trained)
    assert [(entry.name, entry.type) for entry in session.get_inputs()] == [("strips", "tensor(uint8)")]
    assert [entry.name for entry in session.get_outputs()] == ["gaze", "app", "gaze_code", "head_code"]
    noise = np.random.default_rng(0).integers(0, 256, (200, 8, 32, 3), np.uint8)
    strips = np.stack([cv2.resize(each, (128, 32)) for each in noise])
    strips[0] = 77  # a single colour
    for batch in (strips[:1], strips):
        gaze, app, gaze_code, head_code = session.run(None, {"strips": batch})
        expected = encode_strips(dted, torch.from_numpy(batch))
        assert np.degrees(angular_error(gaze, expected["gaze_hat"]).max()) <= 0.01
        for found, name in ((app, "z_app"), (gaze_code, "z_gaze"), (head_code, "z_head")):
            np.testing.assert_allclose(found, expected[name], atol=1e-4, err_msg=name)
    assert np.degrees(angular_error(gaze[1:], gaze[:-1]).max()) > 1


@pytest.mark.parametrize("value", [0.5, float("nan")])
def test_a_graph_that_is_not_the_network_is_not_kept(trained, tmp_path, monkeypatch, capsys, value):
    written = export.write_graph

    def write_other(gaze: export.Gaze, strips: torch.Tensor, path: Path) -> None:
        written(gaze, strips, path)
        torch.nn.init.constant_(gaze.dted.gaze2.bias, value)

    monkeypatch.setattr(export, "write_graph", write_other)
    assert run("--checkpoint", trained, "--out", tmp_path / "gaze.onnx") == 1
    assert "the graph differs from the network by" in capsys.readouterr().err
    assert not (tmp_path / "gaze.onnx").exists()


def test_the_example_prints_the_angles_of_the_network_for_strips_of_two_sizes(trained, tmp_path):
    graph, paths, expected = tmp_path / "gaze.onnx", [], []
    assert run("--checkpoint", trained, "--out", graph) == 0
    for times in (1, 2):
        strip = np.random.default_rng(times).integers(0, 256, (32 * times, 128 * times, 3), np.uint8)
        paths.append(str(tmp_path / f"{times}.png"))
        cv2.imwrite(paths[-1], cv2.cvtColor(strip, cv2.COLOR_RGB2BGR))
        small = shrink(torch.from_numpy(strip[None]), 32, 128)
        [gaze] = encode_strips(load_model(trained), small)["gaze_hat"]
        expected.append(np.degrees(pitchyaw_from_vector(gaze)))

    def example(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", EXAMPLE, graph, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    lines = example(*paths).stdout.splitlines()
    found = [[float(word) for word in line.split() if word[0] in "+-"] for line in lines]
    np.testing.assert_allclose(found, expected, atol=0.02)
    cv2.imwrite(str(tmp_path / "photo.png"), np.zeros((480, 640, 3), np.uint8))
    assert "640 x 480 px is not a multiple of 128 x 32" in example(str(tmp_path / "photo.png")).stderr
