"""The example that estimates gaze without faze: its angles are those of the network."""

import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from faze.base.geometry import pitchyaw_from_vector, vector_from_pitchyaw
from faze.config.parameters import Model
from faze.data.network_input import to_network, to_network_torch
from faze.model.dted import DTED
from faze.model.onnx_graphs import Gaze, export_part

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "onnx_gaze.py"
MODEL = Model(2, 4, 32, 128, 4, 2, 3, 4, normalize_axis=1, backprop_gaze=True)


def call(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", SCRIPT, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def graph(tmp_path: Path) -> tuple[Path, DTED]:
    torch.manual_seed(0)
    dted = DTED(MODEL).eval()
    export_part(Gaze(dted, to_network_torch), tmp_path / "gaze.onnx")
    return tmp_path / "gaze.onnx", dted


def test_angles_of_strips_of_two_sizes_are_those_of_the_network(graph: tuple[Path, DTED], tmp_path: Path) -> None:
    path, dted = graph
    strips = Gaze(dted, to_network_torch).examples(1)["strips"]
    large = torch.randint(0, 256, (1, 64, 256, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    for name, strip in {"small.png": strips[0], "large.png": large[0]}.items():
        cv2.imwrite(str(tmp_path / name), cv2.cvtColor(strip.numpy(), cv2.COLOR_RGB2BGR))
    with torch.inference_mode():
        images = torch.cat([to_network(strip, 32, 128) for strip in (strips, large)])
        gaze = dted.gaze_vector(dted.encode(images).gaze)
    expected = np.degrees(pitchyaw_from_vector(gaze.numpy()))
    lines = call(path, tmp_path / "small.png", tmp_path / "large.png").stdout.splitlines()
    found = [[float(word) for word in line.split() if word[0] in "+-"] for line in lines]
    np.testing.assert_allclose(found, expected, atol=0.02)
    imports = [line for line in SCRIPT.read_text().splitlines() if line.startswith(("import ", "from "))]
    assert imports and not any("faze" in line for line in imports)


def test_what_is_no_image_is_one_sentence(graph: tuple[Path, DTED], tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    ended = call(graph[0], tmp_path / "empty.png")
    assert ended.returncode == 1 and "is not an image that OpenCV reads" in ended.stderr.splitlines()[-1]
    assert "usage: onnx_gaze.py" in call().stderr
    cv2.imwrite(str(tmp_path / "photo.png"), np.zeros((480, 640, 3), np.uint8))
    assert "640 x 480 px is no multiple of 128 x 32" in call(graph[0], tmp_path / "photo.png").stderr
    ended = call(graph[0], tmp_path / "photo.png", "--head", -1, 2)
    assert ended.returncode == 1 and ended.stderr.endswith("gaze.onnx: has no input for --head: leave it out\n")


def test_a_graph_can_need_the_head_pose(tmp_path: Path) -> None:
    def head_as_gaze(code: torch.Tensor, gaze: torch.Tensor, head: torch.Tensor | None) -> torch.Tensor:
        return vector_from_pitchyaw(head, torch)

    torch.manual_seed(0)
    graph, strip = tmp_path / "me.onnx", tmp_path / "strip.png"
    export_part(Gaze(DTED(MODEL), to_network_torch, head_as_gaze, needs_head=True), graph)
    cv2.imwrite(str(strip), np.zeros((32, 128, 3), np.uint8))
    said = call(graph, strip, strip, "--head", -1.5, 20).stdout
    assert said.splitlines() == [f"{strip}: pitch -1.50 degrees, yaw +20.00 degrees"] * 2
    assert call(graph, strip).stderr.endswith("me.onnx: needs --head\n")
