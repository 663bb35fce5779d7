"""`faze export`: a trained network's gaze estimation as an ONNX graph, for programs that do not use faze.

    faze export --onnx gaze --checkpoint shipped --out gaze.onnx

The graph contains the histogram equalisation, the encoder and the gaze head, in float32:

| name | shape | content |
|---|---|---|
| strips (input) | (B, H, W, 3) uint8 | RGB strips of the network's input size; any B |
| gaze | (B, 3) | unit vector from the target to the eye, in the normalised camera's frame, like the labels |
| app, gaze_code, head_code | (B, A), (B, G, 3), (B, D, 3) | codes |

Pitch is arcsin(y), and yaw is arctan2(x, z). Before the file is saved, the graph's output in onnxruntime is compared
with torch's on random strips.
"""

import logging
import warnings
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.data.network_input import to_network_torch
from faze.model.dted import DTED
from faze.model.weights import load_model
from faze.weights import network_path

LARGEST_DIFFERENCE = 1e-4  # absolute, in any output


class Gaze(nn.Module):
    """The equalisation, encoder and gaze head of a trained network."""

    outputs = ("gaze", "app", "gaze_code", "head_code")

    def __init__(self, dted: DTED) -> None:
        super().__init__()
        self.dted = dted

    def forward(self, strips: Tensor) -> tuple[Tensor, ...]:
        """Return the gaze (B, 3) and codes for strips (B, H, W, 3)."""
        codes = self.dted.encode(to_network_torch(strips))
        return self.dted.gaze_vector(codes.gaze), *codes


def main(*, onnx: Literal["gaze"], checkpoint: Path, out: Path) -> None:
    """Write the graph if its output matches the network's; the checkpoint `shipped` is the network in the package."""
    from onnxruntime import InferenceSession

    gaze = Gaze(load_model(network_path(checkpoint)))
    size, random = (gaze.dted.model.image_height_px, gaze.dted.model.image_width_px), np.random.default_rng(0)
    strips = torch.from_numpy(random.integers(0, 256, (5, *size, 3), np.uint8))
    with whole_file(out) as temporary:
        write_graph(gaze, strips, temporary)
        found = InferenceSession(temporary, providers=["CPUExecutionProvider"]).run(None, {"strips": strips.numpy()})
        with torch.inference_mode():
            differences = [np.abs(ours - own.numpy()).max() for ours, own in zip(found, gaze(strips), strict=True)]
        if not np.max(differences) <= LARGEST_DIFFERENCE:  # true for nan, too
            raise UserError(f"{out} was not written: the graph differs from the network by {np.max(differences):.2g}")
    print(f"{out}: onnxruntime's output differs from torch's by at most {max(differences):.1g}")


def write_graph(gaze: Gaze, strips: Tensor, path: Path) -> None:
    """Write the graph as one ONNX file, hiding torch's warnings about packages that this export does not use."""
    import onnx
    from onnx.helper import find_min_ir_version_for

    logging.disable(logging.WARNING)
    with warnings.catch_warnings(action="ignore"):
        batch = {"strips": {0: torch.export.Dim("batch")}}
        options = {"input_names": ["strips"], "output_names": gaze.outputs, "dynamic_shapes": batch, "verbose": False}
        graph = torch.onnx.export(gaze, (strips,), dynamo=True, opset_version=18, **options).model_proto
    logging.disable(logging.NOTSET)
    graph.ir_version = find_min_ir_version_for(graph.opset_import)  # torch's version is too new for onnxruntime 1.17
    onnx.save(graph, path)
