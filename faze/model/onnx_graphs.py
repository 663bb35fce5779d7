"""Parts of DT-ED as ONNX graphs, for other programs and for browsers.

| graph | input | output |
|---|---|---|
| gaze | strips (B, H, W, 3), uint8, RGB, of the network's size | gaze (B, 3); app (B, A), gaze_code and head_code |
| gaze, if a calibration needs the head pose | strips; head (B, 2), pitch and yaw in radians | the same |
| decoder | app (B, A), gaze (B, G, 3), head (B, D, 3) | image (B, 3, H, W), about [-1, 1] |

B is any number; everything but strips is float32. The graph `gaze` contains the histogram equalisation. The gaze is a
unit vector in the normalised camera's frame and, like the labels, points from the target to the eye; pitch is arcsin(y)
and yaw arctan2(x, z). Rotate codes before decoding: `frontal @ R(pitch, yaw).T` is turned to (pitch, yaw).

With a person's calibration (faze.fewshot.onnx_person), `gaze` is calibrated and the codes are unchanged. Some learners
need `head`: pitch and yaw, in radians and in the same frame, of the head's axis that points away from the camera.
"""

import contextlib
import importlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from faze.base.errors import UserError
from faze.model.dted import DTED, Codes

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

OPSET = 18  # the opset of torch's exporter; a later one would need a conversion
# Operators of the decoder, which browsers compute on GPUs.
OPERATORS = frozenset({"Conv", "ConvTranspose", "InstanceNormalization", "LeakyRelu", "Concat", "Gemm", "Reshape"})
# Largest allowed absolute difference from torch: in an image, about a hundredth of a grey level.
LARGEST_DIFFERENCE = 1e-4
LIBRARIES = ("onnx", "onnxscript", "onnxruntime")
QUANTISED = ("Conv", "Gemm")  # operators that int8 computes in integers


class Gaze(nn.Module):
    """Equalisation, encoder and gaze head of a trained network, and a person's calibration.

    Args:
        dted: the network.
        to_network: equalises strips and converts them to the network's input.
        calibrate: maps codes (B, F), gaze (B, 3) and head (B, 2) to the calibrated gaze; None: no calibration.
        needs_head: `calibrate` uses the head pose.
    """

    outputs = ("gaze", "app", "gaze_code", "head_code")

    def __init__(
        self,
        dted: DTED,
        to_network: Callable[[Tensor, int, int], Tensor],
        calibrate: Callable[[Tensor, Tensor, Tensor | None], Tensor] | None = None,
        needs_head: bool = False,
    ) -> None:
        super().__init__()
        self.dted, self.to_network, self.calibrate, self.needs_head = dted, to_network, calibrate, needs_head

    def forward(self, strips: Tensor, head: Tensor | None = None) -> tuple[Tensor, ...]:
        """Encode strips and estimate the gaze."""
        model = self.dted.model
        codes = self.dted.encode(self.to_network(strips, model.image_height_px, model.image_width_px))
        gaze = self.dted.gaze_vector(codes.gaze)
        if self.calibrate is not None:
            gaze = self.calibrate(codes.gaze.flatten(1), gaze, head)
        return gaze, *codes

    def examples(self, count: int) -> dict[str, Tensor]:
        """Return random patterns as strips and, if needed, random head poses."""
        strips = random_strips(count, self.dted.model.image_height_px, self.dted.model.image_width_px)
        head = 0.3 * torch.randn(count, 2, generator=torch.Generator().manual_seed(0))
        return {"strips": strips, "head": head} if self.needs_head else {"strips": strips}


class Decoder(nn.Module):
    """The decoder of a trained network."""

    outputs = ("image",)

    def __init__(self, dted: DTED) -> None:
        super().__init__()
        self.dted = dted

    def forward(self, app: Tensor, gaze: Tensor, head: Tensor) -> tuple[Tensor]:
        """Decode codes into images."""
        return (self.dted.decode(Codes(app, gaze, head)),)

    def examples(self, count: int) -> dict[str, Tensor]:
        """Return reproducible random codes."""
        draw, model = torch.Generator().manual_seed(0), self.dted.model
        shapes = {"app": (model.z_app,), "gaze": (model.z_gaze, 3), "head": (model.z_head, 3)}
        return {name: torch.randn(count, *shape, generator=draw) for name, shape in shapes.items()}


def export_part(part: Gaze | Decoder, path: Path) -> None:
    """Export a part as one ONNX file.

    Raises:
        UserError: a library is missing, or the decoder's graph contains an unexpected operator.
    """
    check_libraries()
    examples, batch = part.eval().examples(2), torch.export.Dim("batch")
    with _quiet():
        program = torch.onnx.export(
            part,
            tuple(examples.values()),
            dynamo=True,
            external_data=False,
            opset_version=OPSET,
            input_names=list(examples),
            output_names=part.outputs,
            dynamic_shapes={name: {0: batch} for name in examples},
            verbose=False,
        )
        program.save(str(path), external_data=False)
    if isinstance(part, Decoder) and (others := {node.op_type for node in program.model.graph} - OPERATORS):
        raise UserError(f"the exported decoder contains unexpected operators: {', '.join(sorted(others))}")


def largest_difference(part: Gaze | Decoder, path: Path) -> float:
    """Return the largest difference between an exported part, run by onnxruntime, and the network; nan if any is."""
    graph, found = open_graph(path), []
    for count in (1, 5):
        examples = part.examples(count)
        with torch.inference_mode():
            expected = part(**examples)
        outputs = graph.run(list(part.outputs), {name: value.numpy() for name, value in examples.items()})
        found += [float(np.abs(o - e.numpy()).max()) for o, e in zip(outputs, expected, strict=True)]
    return float(np.max(found))


def open_graph(path: Path) -> "InferenceSession":
    """Open a graph in onnxruntime on the CPU."""
    from onnxruntime import InferenceSession

    return InferenceSession(str(path), providers=["CPUExecutionProvider"])


def random_strips(count: int, height: int, width: int) -> Tensor:
    """Return reproducible, smooth random patterns (count, height, width, 3), uint8."""
    coarse = torch.rand(count, 3, 8, 32, generator=torch.Generator().manual_seed(0))
    smooth = nn.functional.interpolate(coarse, size=(height, width), mode="bilinear")
    return (255 * smooth).byte().permute(0, 2, 3, 1).contiguous()


def lower_precision(
    source: Path, path: Path, precision: str, keep_fp32: Sequence[str], strips: NDArray[np.uint8]
) -> None:
    """Convert the graph `gaze` by onnxruntime's tools; inputs and outputs keep their format, and equalisation is exact.

    Args:
        source: graph in float32.
        path: graph to write.
        precision: fp16 | int8; the latter stores weights per channel and rounds activations to the range of `strips`.
        keep_fp32: operators (ONNX names) that stay in float32.
        strips: (n, H, W, 3), to measure the range of activations for int8.

    Raises:
        UserError: an operator to keep in float32 is not in the graph, or none is left for int8.
    """
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
    from onnxruntime.transformers.float16 import convert_float_to_float16

    model = onnx.load(source)
    nodes = list(model.graph.node)
    if unknown := set(keep_fp32) - {node.op_type for node in nodes}:
        raise UserError(f"the graph has no operator {', '.join(sorted(unknown))} to keep in fp32")
    if precision == "fp16":
        first = next(number for number, node in enumerate(nodes) if node.op_type == "Conv")
        kept = [node.name for number, node in enumerate(nodes) if number < first or node.op_type in keep_fp32]
        with _quiet():
            onnx.save(convert_float_to_float16(model, keep_io_types=True, node_block_list=kept), path)
        return

    class Reader(CalibrationDataReader):
        batches = iter(np.array_split(strips, -(-len(strips) // 16)))

        def get_next(self) -> dict[str, NDArray[np.uint8]] | None:
            return {"strips": batch} if (batch := next(self.batches, None)) is not None else None

    quantised = [operator for operator in QUANTISED if operator not in keep_fp32]
    if not quantised:
        raise UserError(f"int8 computes only {' and '.join(QUANTISED)}, and all of them are to stay in fp32")
    with _quiet():
        quantize_static(
            source, path, Reader(), op_types_to_quantize=quantised, quant_format=QuantFormat.QDQ, per_channel=True
        )


def check_libraries() -> None:
    """Check that the libraries for exporting are installed.

    Raises:
        UserError: one is missing.
    """
    for name in LIBRARIES:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            raise UserError(f"{name} is missing: pip install 'faze[onnx]'") from None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress warnings of torch and onnxruntime that are irrelevant to this export."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx._internal.exporter._registration", "")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
