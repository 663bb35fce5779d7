"""DT-ED's encoder and decoder for inference on a CPU: the same computation in fewer passes, in inference.c.

    fast = for_inference(dted)
    codes = fast.encode(image)  # equal to those of dted, up to rounding

Inference needs no gradients, so inference.c can compute a layer as a whole. It normalises and activates a map once,
instead of once for each layer that reads it. It avoids concatenation, and needs 16 instead of 36 products for four
pixels of a 3 x 3 convolution. It pools before a 1 x 1 convolution, which commutes with pooling. Each thread takes a few
images at a time, so memory is bounded, and the result for an image does not depend on other images or on the number of
threads.

Shapes: B images, of which n are processed at a time; C channels; H x W pixels.
"""

import contextlib
import copy
import ctypes
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from faze.model.densenet import DenseBlock, DenseNetDecoder, DenseNetEncoder
from faze.model.dted import DTED
from faze.model.norm_act import EPSILON, SLOPE
from faze.native.compiled import library

PIXELS = 2**15  # pixels of the images that are processed at a time

Taps = Sequence[tuple[int, int, int, int]]  # row and column of a neighbour; row and column of its weight in the kernel
# The ways in which inference.c processes an output. Means and maps are results of a network.
Kind = Literal["active", "pooled", "split", "tiles", "doubled", "raw_doubled", "means", "maps"]

_NEIGHBOURS: Taps = [(y - 1, x - 1, y, x) for y in range(3) for x in range(3)]
_POINT: Taps = [(0, 0, 0, 0)]
_HALVING = ([(0, 1)], [(-1, 0), (0, 2)])  # in one direction, for even and odd pixels: (neighbour, weight)
# In one direction of a tile: each product's weights as sums of the kernel's three, and the plane that it reads.
_TILE_WEIGHTS, _TILE_PLANES = ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)), (0, 1, 2, 3)
_DOUBLING_WEIGHTS, _DOUBLING_PLANES = ((0, 1, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (1, 0, 0)), (0, 1, 2, 1, 3)
_PIXELS, _TILES, _DOUBLING = range(3)  # enum reading
_PLANES_PER_CHANNEL = {"split": 4, "tiles": 16, "doubled": 16, "raw_doubled": 16}  # 1 for other kinds


class _CPlanes(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("stride", ctypes.c_int64), ("apart", ctypes.c_int64)]


class _CSegment(ctypes.Structure):
    _fields_ = [*((name, ctypes.c_int64) for name in ("first", "channels", "taps")), ("offset", ctypes.c_int64 * 9)]


class _CLayer(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("reading", "h", "w", "outputs", "products", "segments")),
        ("segment", ctypes.POINTER(_CSegment)),
        ("weights", ctypes.c_void_p),
    ]


class _CResults(ctypes.Structure):
    _fields_ = [
        *((name, _CPlanes) for name in ("active", "pooled", "split", "tiles", "doubled", "raw_doubled")),
        ("means", ctypes.c_void_p),
        ("means_stride", ctypes.c_int64),
        ("maps", ctypes.c_void_p),
        *((name, ctypes.c_float) for name in ("epsilon", "slope")),
    ]


def for_inference(dted: DTED) -> DTED:
    """Return a DT-ED that has the same weights and runs fast on a CPU, in fp32 and without gradients.

    The weights of its convolutions are copied at its first call; call this function again after changing them. On other
    devices, in other dtypes or without the compiled kernel, it computes as `dted` does without autocast.
    """
    fast = copy.copy(dted)
    fast._modules = dict(dted._modules)
    fast.autocast = contextlib.nullcontext
    if dted.fc_enc.weight.device.type != "cpu" or dted.dtype != torch.float32:
        return fast
    code = library("model/inference.c")
    if code is None:
        return fast
    code.scratch_floats.restype = code.plane_floats.restype = ctypes.c_int64
    code.begin.restype = code.convolve.restype = None
    size = dted.model.image_height_px, dted.model.image_width_px
    together = max(PIXELS // (size[0] * size[1]), 1)
    encoder = functools.partial(_encoder_program, code, dted.encoder, *size)
    decoder = functools.partial(_decoder_program, code, dted.decoder, *dted.innermost)
    fast.encoder = CompiledNetwork(encoder, (dted.encoder.channels,), together)
    fast.decoder = CompiledNetwork(decoder, (3, *size), together)
    return fast


class CompiledNetwork(nn.Module):
    """An encoder or decoder that copies the weights at its first call."""

    def __init__(self, make_program: Callable[[], "Program"], result: tuple[int, ...], together: int) -> None:
        """Prepare to run a program.

        Args:
            make_program: builds the program at the first call.
            result: shape of the result for one image.
            together: number of images that are processed at a time.
        """
        super().__init__()
        self._make_program, self._result, self._together = make_program, result, together
        self._workspaces: list[Workspace] = []  # one for each thread

    @functools.cached_property
    def _program(self) -> "Program":
        return self._make_program()

    def forward(self, x: Tensor) -> Tensor:
        """Run the program: (B, C, H, W) -> (B, ...)."""
        assert x.shape[1:] == self._program.input_size
        x, out = x.contiguous(), torch.empty(len(x), *self._result)
        firsts = range(0, len(x), self._together)
        threads = min(torch.get_num_threads(), len(firsts))
        while len(self._workspaces) < threads:
            self._workspaces.append(Workspace(self._program, self._together))
        waiting = iter(firsts)

        def work(workspace: Workspace) -> None:
            for first in waiting:
                workspace(x[first : first + self._together], out[first : first + self._together])

        with ThreadPoolExecutor(max(threads - 1, 1)) as pool:
            others = [pool.submit(work, workspace) for workspace in self._workspaces[1:threads]]
            if threads:
                work(self._workspaces[0])
        for other in others:
            other.result()
        return out


@dataclass(frozen=True, eq=False)
class Map:
    """Planes that some layers write, channel by channel, and others read; height and width are in pixels."""

    kind: Kind
    channels: int
    height: int
    width: int

    def stride(self, n: int) -> int:
        """Return the stride of planes in floats: an odd number of cache lines, so planes use different cache sets."""
        if self.kind in ("tiles", "doubled", "raw_doubled"):
            floats = n * ((self.height + 1) // 2) * ((self.width + 1) // 2)
        else:
            floats = self.width + 2 + n * (self.height + 1) * (self.width + 1)
        return (floats + 15) // 16 * 16 | 16


class Program:
    """A sequence of convolutions, each of which reads one map and writes to several."""

    def __init__(self, code: ctypes.CDLL, input_size: tuple[int, int, int]) -> None:
        self.code, self.input_size = code, input_size
        self.of_input: Sequence[Map] = ()
        self.activates_input = False
        self.steps: list[tuple[Convolution, Map, int, Sequence[Map]]] = []

    def convolve(self, conv: nn.Conv2d | nn.ConvTranspose2d, source: Map, to: Sequence[Map], channel: int = 0) -> None:
        """Add a convolution that reads the map `source` and writes to the maps `to`, starting at `channel`."""
        self.steps.append((Convolution(conv, source, self.code.outputs_at_once()), source, channel, to))

    def add_block(self, block: DenseBlock, maps: Sequence[Map]) -> None:
        """Add the layers of a dense block; each reads the first map and appends its outputs to all maps."""
        for layer in block.children():
            self.convolve(layer.conv, maps[0], maps, channel=layer.conv.in_channels)


def _encoder_program(code: ctypes.CDLL, encoder: DenseNetEncoder, height: int, width: int) -> Program:
    """Build the encoder's program: (n, 3, H, W) -> (n, C)."""
    program, initial = Program(code, (3, height, width)), encoder.initial
    image = Map("split", 3, height // 2, width // 2)
    program.of_input = [image]
    height, width = height // 4, width // 4
    conv, source = initial.conv2, Map("split", initial.conv1.out_channels, height, width)
    program.convolve(initial.conv1, image, [source])
    for number in range(1, encoder.blocks + 1):
        block, last = getattr(encoder, f"block{number}"), number == encoder.blocks
        after = Map("means" if last else "pooled", block.channels, height // 2, width // 2)
        maps = [Map("tiles", block.channels, height, width), after]
        program.convolve(conv, source, maps)
        program.add_block(block, maps)
        if not last:
            conv, source = getattr(encoder, f"trans{number}").composite.conv, after
            height, width = height // 2, width // 2
    return program


def _decoder_program(code: ctypes.CDLL, decoder: DenseNetDecoder, channels: int, height: int, width: int) -> Program:
    """Build the decoder's program: (n, C, H/s, W/s) -> (n, 3, H, W)."""
    program, last, before = Program(code, (channels, height, width)), decoder.last, None
    for number in range(1, decoder.blocks + 1):
        block = getattr(decoder, f"block{number}")
        after = Map("raw_doubled" if number == decoder.blocks else "doubled", block.channels, height, width)
        maps = [Map("tiles", block.channels, height, width), after]
        if before is None:
            program.of_input, program.activates_input = maps, True
        else:
            program.convolve(*before, maps)
        program.add_block(block, maps)
        before = last.conv1 if number == decoder.blocks else getattr(decoder, f"trans{number}").conv, after
        height, width = 2 * height, 2 * width
    half = Map("doubled", last.conv1.out_channels, height, width)
    whole = Map("active", last.conv2.out_channels, 2 * height, 2 * width)
    program.convolve(*before, [half])
    program.convolve(last.conv2, half, [whole])
    program.convolve(last.conv3, whole, [Map("maps", 3, 2 * height, 2 * width)])
    return program


class Convolution:
    """The planes that each product of a convolution reads, and the weights in order of use."""

    def __init__(self, conv: nn.Conv2d | nn.ConvTranspose2d, source: Map, at_once: int) -> None:
        """Arrange the weights.

        Args:
            conv: a 3 x 3 or 1 x 1 convolution.
            source: the map that it reads, starting at the first channel.
            at_once: number of outputs that inference.c computes together.
        """
        kernel = conv.weight.detach()
        if isinstance(conv, nn.ConvTranspose2d):
            kernel = kernel.transpose(0, 1)
            kernel = kernel.flip(2, 3) if conv.stride[0] == 1 else kernel
        outputs, channels = kernel.shape[:2]  # (outputs, channels, ., .)
        kernel = nn.functional.pad(kernel, (0, 0, 0, 0, 0, 0, 0, -outputs % at_once)).unflatten(0, (-1, at_once))
        if source.kind == "tiles":
            reading, (segments, products) = _TILES, _tiled(kernel, source, _TILE_WEIGHTS, _TILE_PLANES)
        elif source.kind in ("doubled", "raw_doubled"):
            reading, (segments, products) = _DOUBLING, _tiled(kernel, source, _DOUBLING_WEIGHTS, _DOUBLING_PLANES)
        else:
            reading, (segments, products) = _PIXELS, _by_taps(kernel, source)
        self.weights = torch.cat([product.flatten() for product in products])
        self._segments = (_CSegment * len(segments))(*segments)
        pointers = ctypes.cast(self._segments, ctypes.POINTER(_CSegment)), self.weights.data_ptr()
        counts = len(products), len(segments) // len(products)
        self.c = _CLayer(reading, source.height, source.width, outputs, *counts, *pointers)


def _by_taps(kernel: Tensor, source: Map) -> tuple[list[_CSegment], list[Tensor]]:
    """Arrange a kernel (outputs / at_once, at_once, C, ., .) as one product, with a segment per source phase."""
    phases = [_POINT if kernel.shape[-1] == 1 else _NEIGHBOURS]
    if source.kind == "split":
        phases = [[(y, x, ky, kx) for y, ky in rows for x, kx in columns] for rows in _HALVING for columns in _HALVING]
    segments, parts = [], []
    for number, taps in enumerate(phases):
        offsets = (ctypes.c_int64 * 9)(*(row * (source.width + 1) + column for row, column, _, _ in taps))
        segments.append(_CSegment(number * source.channels, kernel.shape[2], len(taps), offsets))
        parts.append(kernel[..., [tap[2] for tap in taps], [tap[3] for tap in taps]].permute(0, 2, 3, 1).flatten(1))
    return segments, [torch.cat(parts, dim=1)]


def _tiled(
    kernel: Tensor, source: Map, weights: Sequence[Sequence[float]], planes: Sequence[int]
) -> tuple[list[_CSegment], list[Tensor]]:
    """Arrange a kernel (outputs / at_once, at_once, C, 3, 3) as products along the rows and columns of a tile."""
    along = kernel.new_tensor(weights)
    products = torch.einsum("pi,qj,tocij->pqtco", along, along, kernel).flatten(0, 1).contiguous()
    read = [4 * row + column for row in planes for column in planes]
    none = (ctypes.c_int64 * 9)()
    return [_CSegment(plane * source.channels, kernel.shape[2], 1, none) for plane in read], list(products)


class Workspace:
    """Memory for passing up to n images through a program."""

    def __init__(self, program: Program, n: int) -> None:
        self._program, self._n, code = program, n, program.code
        self._memory: dict[Map, Tensor] = {}
        for _, source, _, _ in program.steps:
            beyond = code.pixels_at_once() + 4 * (source.width + 2)  # inference.c may read these floats, too
            floats = source.channels * _PLANES_PER_CHANNEL.get(source.kind, 1) * source.stride(n) + beyond
            self._memory.setdefault(source, torch.empty(floats))
        _, height, width = program.input_size
        count = ctypes.c_int64(n)
        needed = [code.scratch_floats(ctypes.byref(convolution.c), count) for convolution, *_ in program.steps]
        needed.append(2 * code.plane_floats(count, ctypes.c_int64(height), ctypes.c_int64(width)))
        self._scratch = torch.empty(max(needed))

    def __call__(self, x: Tensor, out: Tensor) -> None:
        """Compute out (n, ...) from x (n, C, H, W); both are contiguous float32."""
        program, n, scratch = self._program, ctypes.c_int64(len(x)), ctypes.c_void_p(self._scratch.data_ptr())
        size = map(ctypes.c_int64, (*program.input_size, program.activates_input))
        to = self._results(program.of_input, 0, out)
        program.code.begin(ctypes.c_void_p(x.data_ptr()), *size, ctypes.byref(to), n, scratch)
        for convolution, source, channel, wanted in program.steps:
            to, planes = self._results(wanted, channel, out), self._planes(source, 0)
            program.code.convolve(ctypes.byref(convolution.c), ctypes.byref(planes), ctypes.byref(to), n, scratch)

    def _planes(self, source: Map, channel: int) -> _CPlanes:
        stride = source.stride(self._n)
        return _CPlanes(self._memory[source].data_ptr() + 4 * channel * stride, stride, source.channels)

    def _results(self, wanted: Sequence[Map], channel: int, out: Tensor) -> _CResults:
        results = _CResults(epsilon=EPSILON, slope=SLOPE)
        for each in wanted:
            if each.kind == "means":
                results.means, results.means_stride = out.data_ptr() + 4 * channel, out.shape[1]
            elif each.kind == "maps":
                results.maps = out.data_ptr()
            elif each in self._memory:
                setattr(results, each.kind, self._planes(each, channel))
        return results
