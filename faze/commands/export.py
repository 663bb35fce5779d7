"""`faze export`: the gaze estimation of a trained network as an ONNX graph, for programs without faze.

    faze export --onnx gaze --checkpoint shipped --out gaze.onnx

The graph contains the histogram equalisation, the encoder and the gaze head, in float32:

| name | shape | content |
|---|---|---|
| strips (input) | (B, H, W, 3) uint8 | RGB strips of the network's size; B is any number |
| gaze | (B, 3) | unit vector from the target to the eye, in the normalised camera's frame, like the labels |
| app, gaze_code, head_code | (B, A), (B, G, 3), (B, D, 3) | codes |

Pitch is arcsin(y), and yaw is arctan2(x, z). Before the file is written, its output in onnxruntime is compared with
torch's on random strips.
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

OLDEST_OPSET = 18  # of torch's exporter
LARGEST_DIFFERENCE = 1e-4  # absolute, in any output


class Gaze(nn.Module):
    """Equalisation, encoder and gaze head of a trained network."""

    outputs = ("gaze", "app", "gaze_code", "head_code")

    def __init__(self, dted: DTED) -> None:
        super().__init__()
        self.dted = dted
        self.size = dted.model.image_height_px, dted.model.image_width_px

    def forward(self, strips: Tensor) -> tuple[Tensor, ...]:
        """Estimate the gaze, (B, 3), and the codes in strips, (B, H, W, 3)."""
        codes = self.dted.encode(to_network_torch(strips))
        return self.dted.gaze_vector(codes.gaze), *codes

    def random_strips(self, count: int) -> Tensor:
        """Draw smooth patterns (count, H, W, 3), the same in every call."""
        coarse = torch.rand(count, 3, 8, 32, generator=torch.Generator().manual_seed(0))
        smooth = nn.functional.interpolate(coarse, size=self.size, mode="bilinear")
        return (255 * smooth).byte().permute(0, 2, 3, 1).contiguous()


def main(*, onnx: Literal["gaze"], opset: int = OLDEST_OPSET, checkpoint: Path, out: Path) -> None:
    """Write the graph if its output is the network's.

    Args:
        onnx: part of the network
        opset: version of ONNX's operators, 18 to 23; the lowest is read by most versions of onnxruntime
        checkpoint: trained network; shipped: that of the package
        out: graph to write
    """
    gaze = Gaze(load_model(network_path(checkpoint)))
    with whole_file(out) as temporary:
        write_graph(gaze, temporary, opset)
        difference = largest_difference(gaze, temporary)
        if not difference <= LARGEST_DIFFERENCE:  # nan included
            raise UserError(f"{out}: the graph differs from the network by {difference:.2g}; it was not written")
    size_mib = out.stat().st_size / 2**20
    print(f"{out}: {size_mib:.2f} MiB; onnxruntime's output differs from torch's by at most {difference:.1g}")


def write_graph(gaze: Gaze, path: Path, opset: int) -> None:
    """Write the graph as one ONNX file, without torch's warnings about packages that this export does not use."""
    import onnx
    from onnx.helper import find_min_ir_version_for

    logging.disable(logging.WARNING)
    with warnings.catch_warnings(action="ignore"):
        program = torch.onnx.export(
            gaze,
            (gaze.random_strips(2),),
            dynamo=True,
            external_data=False,
            opset_version=opset,
            input_names=["strips"],
            output_names=gaze.outputs,
            dynamic_shapes={"strips": {0: torch.export.Dim("batch")}},
            verbose=False,
        )
    logging.disable(logging.NOTSET)
    graph = program.model_proto
    graph.ir_version = find_min_ir_version_for(graph.opset_import)  # torch's own is too new for onnxruntime 1.17
    onnx.save(graph, path)


def largest_difference(gaze: Gaze, path: Path) -> float:
    """Return the largest difference between the outputs of a graph in onnxruntime and of torch; nan if one is nan."""
    from onnxruntime import InferenceSession

    strips = gaze.random_strips(5)
    found = InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"strips": strips.numpy()})
    with torch.inference_mode():
        expected = gaze(strips)
    differences = [np.abs(ours - torchs.numpy()).max() for ours, torchs in zip(found, expected, strict=True)]
    return float(np.max(differences))
