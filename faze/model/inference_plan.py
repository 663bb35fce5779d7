"""Layers as inference.c computes them, and the memory through which images pass.

Shapes: n images at a time; C channels; H x W pixels.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from faze.model.norm_act import EPSILON, SLOPE

Taps = Sequence[tuple[int, int, int, int]]  # row and column of a neighbour, and of the kernel's weight for it
# What inference.c can make of an output; means and maps are the network's result.
Kind = Literal["active", "pooled", "split", "tiles", "doubled", "raw_doubled", "means", "maps"]

_NEIGHBOURS: Taps = [(y - 1, x - 1, y, x) for y in range(3) for x in range(3)]
_POINT: Taps = [(0, 0, 0, 0)]
_HALVING = ([(0, 1)], [(-1, 0), (0, 2)])  # in one direction, of even and odd pixels: (neighbour, weight)
# In one direction of a tile: the weights of each product, from the kernel's three; and the plane that it reads.
_TILE_WEIGHTS, _TILE_PLANES = ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)), (0, 1, 2, 3)
_DOUBLING_WEIGHTS, _DOUBLING_PLANES = ((0, 1, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (1, 0, 0)), (0, 1, 2, 1, 3)
_PIXELS, _TILES, _DOUBLING = range(3)  # enum reading
_PLANES = {"split": 4, "tiles": 16, "doubled": 16, "raw_doubled": 16}  # of a channel


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


@dataclass(frozen=True, eq=False)
class Map:
    """What layers write, channel by channel, and others read. Height and width are those of its planes' pixels."""

    kind: Kind
    channels: int
    height: int
    width: int

    def stride(self, n: int) -> int:
        """Count the floats from plane to plane: an odd number of cache lines, so that planes share no places there."""
        if self.kind in ("tiles", "doubled", "raw_doubled"):
            floats = n * ((self.height + 1) // 2) * ((self.width + 1) // 2)
        else:
            floats = self.width + 2 + n * (self.height + 1) * (self.width + 1)
        return (floats + 15) // 16 * 16 | 16


class Layer:
    """A convolution: which planes each of its products reads, and the weights in the order of their use."""

    def __init__(self, conv: nn.Conv2d | nn.ConvTranspose2d, source: Map, at_once: int) -> None:
        """Lay out the weights.

        Args:
            conv: of 3 x 3 or 1 x 1.
            source: the map that it reads, from the first channel on.
            at_once: outputs that inference.c computes together.
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
    """One product of a kernel (outputs / at once, at once, C, ., .), with a segment for each phase of the source."""
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
    """Products of a kernel (outputs / at once, at once, C, 3, 3) along rows and columns of a tile."""
    along = kernel.new_tensor(weights)
    products = torch.einsum("pi,qj,tocij->pqtco", along, along, kernel).flatten(0, 1).contiguous()
    read = [4 * row + column for row in planes for column in planes]
    none = (ctypes.c_int64 * 9)()
    return [_CSegment(plane * source.channels, kernel.shape[2], 1, none) for plane in read], list(products)


class Plan:
    """Maps, and layers of which each reads a map and writes to others."""

    def __init__(self, library: ctypes.CDLL, input_size: tuple[int, int, int]) -> None:
        self.library, self.input_size = library, input_size
        self.of_input: Sequence[Map] = ()
        self.activates_input = False
        self.layers: list[tuple[Layer, Map, int, Sequence[Map]]] = []

    def convolve(self, conv: nn.Conv2d | nn.ConvTranspose2d, source: Map, to: Sequence[Map], channel: int = 0) -> None:
        """Add a layer that reads a map and writes to others, from a channel on."""
        self.layers.append((Layer(conv, source, self.library.outputs_at_once()), source, channel, to))


class Workspace:
    """Memory in which up to n images pass through a plan's layers."""

    def __init__(self, plan: Plan, n: int) -> None:
        self._plan, self._n, library = plan, n, plan.library
        self._memory: dict[Map, Tensor] = {}
        for _, source, _, _ in plan.layers:
            behind = library.pixels_at_once() + 4 * (source.width + 2)  # may be read, too
            floats = source.channels * _PLANES.get(source.kind, 1) * source.stride(n) + behind
            self._memory.setdefault(source, torch.empty(floats))
        _, height, width = plan.input_size
        count = ctypes.c_int64(n)
        needed = [library.scratch_floats(ctypes.byref(layer.c), count) for layer, _, _, _ in plan.layers]
        needed.append(2 * library.plane_floats(count, ctypes.c_int64(height), ctypes.c_int64(width)))
        self._scratch = torch.empty(max(needed))

    def __call__(self, x: Tensor, out: Tensor) -> None:
        """Take x (n, C, H, W) through the layers to out (n, ...); both are contiguous float32."""
        plan, n, scratch = self._plan, ctypes.c_int64(len(x)), ctypes.c_void_p(self._scratch.data_ptr())
        size = map(ctypes.c_int64, (*plan.input_size, plan.activates_input))
        to = self._results(plan.of_input, 0, out)
        plan.library.begin(ctypes.c_void_p(x.data_ptr()), *size, ctypes.byref(to), n, scratch)
        for layer, source, channel, wanted in plan.layers:
            to, planes = self._results(wanted, channel, out), self._planes(source, 0)
            plan.library.convolve(ctypes.byref(layer.c), ctypes.byref(planes), ctypes.byref(to), n, scratch)

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
