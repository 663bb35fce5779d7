"""The decoder of DT-ED as an ONNX graph, for other programs and for browsers.

Inputs are the codes app (B, A), gaze (B, G, 3) and head (B, D, 3); the output is image (B, 3, H, W), with values
roughly in [-1, 1]. All are float32, for any B. The caller rotates codes: multiplying a frontal code by the transpose of
R(pitch, yaw) turns it to (pitch, yaw).
"""

import contextlib
import importlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from faze.base.errors import UserError
from faze.model.dted import DTED, Codes

OPSET = 18  # the opset of torch's exporter; a later one would need a conversion
INPUTS, OUTPUT = ("app", "gaze", "head"), "image"
OPERATORS = frozenset({"Conv", "ConvTranspose", "InstanceNormalization", "LeakyRelu", "Concat", "Gemm", "Reshape"})
LARGEST_DIFFERENCE = (
    1e-4  # allowed difference from torch's image, whose values are about [-1, 1]: a hundredth of a grey level
)
LIBRARIES = ("onnx", "onnxscript", "onnxruntime")


class Decoder(nn.Module):
    """The decoder of a trained network as a separate module."""

    def __init__(self, dted: DTED) -> None:
        super().__init__()
        self.dted = dted

    def forward(self, app: Tensor, gaze: Tensor, head: Tensor) -> Tensor:
        """Decode codes into images."""
        return self.dted.decode(Codes(app, gaze, head))


def export_decoder(dted: DTED, path: Path) -> None:
    """Export the decoder as one ONNX file.

    Raises:
        UserError: a library is missing, or the graph contains an unexpected operator.
    """
    check_libraries()
    decoder, codes = Decoder(dted).eval(), random_codes(dted, 2)
    batch = torch.export.Dim("batch")
    with _quiet():
        program = torch.onnx.export(
            decoder,
            tuple(codes),
            dynamo=True,
            external_data=False,
            opset_version=OPSET,
            input_names=INPUTS,
            output_names=[OUTPUT],
            dynamic_shapes={name: {0: batch} for name in INPUTS},
            verbose=False,
        )
        program.save(str(path), external_data=False)
    if others := {node.op_type for node in program.model.graph} - OPERATORS:
        raise UserError(f"the exported decoder contains unexpected operators: {', '.join(sorted(others))}")


def largest_difference(dted: DTED, path: Path) -> float:
    """Return the largest difference between an exported decoder, run by onnxruntime, and the network."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    found = 0.0
    for count in (1, 5):
        codes = random_codes(dted, count)
        [image] = session.run([OUTPUT], {name: code.numpy() for name, code in zip(INPUTS, codes, strict=True)})
        with torch.inference_mode():
            found = max(found, float((torch.from_numpy(image) - dted.decode(codes)).abs().max()))
    return found


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


def random_codes(dted: DTED, count: int) -> Codes:
    """Draw reproducible random codes."""
    draw, model = torch.Generator().manual_seed(0), dted.model
    shapes = (model.z_app,), (model.z_gaze, 3), (model.z_head, 3)
    return Codes(*(torch.randn(count, *shape, generator=draw) for shape in shapes))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress torch warnings that are irrelevant to this export."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
