"""DT-ED's encoder and decoder for inference on a CPU: the same mathematics in fewer passes, compiled where it can be.

    fast = for_inference(dted)
    codes = fast.encode(image)  # as dted's, up to rounding

Inference needs no gradients, and what remains goes layer by layer in inference.c: a map is normalised and activated
once and not once per layer that reads it, nothing is concatenated, a convolution of 3 x 3 takes 16 products for 4
pixels instead of 36, pooling comes before the 1 x 1 convolution that it commutes with. Threads take turns at few images
each, so that memory is bounded, and an image's result depends on no other image, nor on the number of threads.

Shapes: B images; C channels; g growth; H x W pixels.
"""

import contextlib
import copy
import ctypes
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor, nn

from faze.base.compiled import library
from faze.model.densenet import DenseBlock, DenseNetDecoder, DenseNetEncoder
from faze.model.dted import DTED
from faze.model.inference_plan import Map, Plan, Workspace

PIXELS = 2**15  # of the images that pass together


def for_inference(dted: DTED) -> DTED:
    """Give a DT-ED of the same weights that encodes and decodes in fp32, without gradients, and fast on a CPU.

    It is for weights that stay as they are: those of the convolutions are read once, when it first encodes or decodes.
    Where there is no compiler, on another device and in another dtype it computes as the given one without autocast.
    """
    fast = copy.copy(dted)
    fast._modules = dict(dted._modules)
    fast.autocast = contextlib.nullcontext
    if dted.fc_enc.weight.device.type != "cpu" or dted.dtype != torch.float32:
        return fast
    code = library("model/inference.c", "DT-ED is applied by torch, more slowly")
    if code is None:
        return fast
    code.scratch_floats.restype = code.plane_floats.restype = ctypes.c_int64
    code.begin.restype = code.convolve.restype = None
    size = dted.model.image_height_px, dted.model.image_width_px
    together = max(PIXELS // (size[0] * size[1]), 1)
    encoder = functools.partial(_encoder_plan, code, dted.encoder, *size)
    decoder = functools.partial(_decoder_plan, code, dted.decoder, *dted.innermost)
    fast.encoder = CompiledNetwork(encoder, (dted.encoder.channels,), together)
    fast.decoder = CompiledNetwork(decoder, (3, *size), together)
    return fast


class CompiledNetwork(nn.Module):
    """An encoder or a decoder, with the weights that it had at the first call."""

    def __init__(self, plan: Callable[[], Plan], result: tuple[int, ...], together: int) -> None:
        """Apply a plan.

        Args:
            plan: makes it.
            result: shape of what becomes of an image.
            together: images that pass at a time.
        """
        super().__init__()
        self._make_plan, self._result, self._together = plan, result, together
        self._workspaces: list[Workspace] = []  # one per thread

    @functools.cached_property
    def _plan(self) -> Plan:
        return self._make_plan()

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, ...)."""
        assert x.shape[1:] == self._plan.input_size
        x, out = x.contiguous(), torch.empty(len(x), *self._result)
        firsts = range(0, len(x), self._together)
        threads = min(torch.get_num_threads(), len(firsts))
        while len(self._workspaces) < threads:
            self._workspaces.append(Workspace(self._plan, self._together))
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


def _encoder_plan(library: ctypes.CDLL, encoder: DenseNetEncoder, height: int, width: int) -> Plan:
    """(n, 3, H, W) -> (n, C)."""
    plan, initial = Plan(library, (3, height, width)), encoder.initial
    image = Map("split", 3, height // 2, width // 2)
    plan.of_input = [image]
    height, width = height // 4, width // 4
    conv, source = initial.conv2, Map("split", initial.conv1.out_channels, height, width)
    plan.convolve(initial.conv1, image, [source])
    for number in range(1, encoder.blocks + 1):
        block, last = getattr(encoder, f"block{number}"), number == encoder.blocks
        after = Map("means" if last else "pooled", block.channels, height // 2, width // 2)
        maps = [Map("tiles", block.channels, height, width), after]
        plan.convolve(conv, source, maps)
        _add_layers(plan, block, maps)
        if not last:
            conv, source = getattr(encoder, f"trans{number}").composite.conv, after
            height, width = height // 2, width // 2
    return plan


def _decoder_plan(library: ctypes.CDLL, decoder: DenseNetDecoder, channels: int, height: int, width: int) -> Plan:
    """(n, C, H/s, W/s) -> (n, 3, H, W)."""
    plan, last, before = Plan(library, (channels, height, width)), decoder.last, None
    for number in range(1, decoder.blocks + 1):
        block = getattr(decoder, f"block{number}")
        after = Map("raw_doubled" if number == decoder.blocks else "doubled", block.channels, height, width)
        maps = [Map("tiles", block.channels, height, width), after]
        if before is None:
            plan.of_input, plan.activates_input = maps, True
        else:
            plan.convolve(*before, maps)
        _add_layers(plan, block, maps)
        before = last.conv1 if number == decoder.blocks else getattr(decoder, f"trans{number}").conv, after
        height, width = 2 * height, 2 * width
    half = Map("doubled", last.conv1.out_channels, height, width)
    whole = Map("active", last.conv2.out_channels, 2 * height, 2 * width)
    plan.convolve(*before, [half])
    plan.convolve(last.conv2, half, [whole])
    plan.convolve(last.conv3, whole, [Map("maps", 3, 2 * height, 2 * width)])
    return plan


def _add_layers(plan: Plan, block: DenseBlock, maps: Sequence[Map]) -> None:
    """Add a dense block's layers: they read the first of the maps, and their outputs join what stands in all."""
    for layer in block.children():
        plan.convolve(layer.conv, maps[0], maps, channel=layer.conv.in_channels)
