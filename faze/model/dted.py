"""DT-ED: the disentangling, transforming encoder-decoder (paper section 3.1, figure 2).

A strip is encoded into appearance, gaze and head codes. Gaze and head codes are sets of 3-D row vectors that rotate
with the gaze and the head. Multiplying a code by R(pitch, yaw) makes it frontal; multiplying a frontal code by the
transpose of R(pitch, yaw) turns it to (pitch, yaw).

Shapes: B images of H x W pixels; A appearance features; G and D 3-D vectors in the gaze code and the head code.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faze.config.parameters import Model, NormalizedCamera
from faze.model.densenet import DenseNetDecoder, DenseNetEncoder

GAZE_HIDDEN = 64


class Codes(NamedTuple):
    """The codes of B strips."""

    app: Tensor  # (B, A)
    gaze: Tensor  # (B, G, 3)
    head: Tensor  # (B, D, 3)

    def turn(self, gaze_rotation: Tensor, head_rotation: Tensor) -> "Codes":
        """Right-multiply the rows by rotations (B, 3, 3) or (3, 3); leave the appearance code unchanged."""
        return Codes(self.app, self.gaze @ gaze_rotation, self.head @ head_rotation)

    def halves(self) -> tuple["Codes", "Codes"]:
        """Split the batch into its first and second halves."""
        first, second = zip(*(code.chunk(2) for code in self), strict=True)
        return Codes(*first), Codes(*second)


class DTED(nn.Module):
    """The encoder, the decoder and the gaze head. The configuration's checks ensure that the image size fits them.

    Convolutional and linear layers run in the context that `autocast` returns. Codes are normalised and rotated outside
    it, in the dtype of the weights, because low precision would degrade the geometry.
    """

    def __init__(self, model: Model, autocast: Callable[[], AbstractContextManager] = nullcontext) -> None:
        super().__init__()
        height, width = model.image_height_px, model.image_width_px
        times = 2 ** (model.blocks + 1)  # two strided convolutions and the transitions each halve both sides
        self.model = model
        self.autocast = autocast
        self.camera: NormalizedCamera | None = None  # the virtual camera of the training strips, if known
        self.code_sizes = (model.z_app, 3 * model.z_gaze, 3 * model.z_head)
        self.innermost = (model.decoder_channels, height // times, width // times)

        self.encoder = DenseNetEncoder(model.blocks, model.growth)
        self.fc_enc = nn.Linear(self.encoder.channels, sum(self.code_sizes))

        self.gaze1 = nn.Linear(3 * model.z_gaze, GAZE_HIDDEN)
        self.gaze2 = nn.Linear(GAZE_HIDDEN, 3)

        self.fc_dec = nn.Linear(sum(self.code_sizes), self.innermost[0] * self.innermost[1] * self.innermost[2])
        self.decoder = DenseNetDecoder(model.blocks, model.decoder_channels, model.growth)
        self.apply(_initialize)

    def encode(self, image: Tensor) -> Codes:
        """Encode strips (B, 3, H, W) in [-1, 1] into normalised codes."""
        with self.autocast():
            z = self.fc_enc(self.encoder(image.to(self.dtype)))
        app, gaze, head = z.to(self.dtype).split(self.code_sizes, dim=1)
        gaze = gaze.reshape(z.shape[0], -1, 3)  # len() would fix the batch size of an exported graph
        head = head.reshape(z.shape[0], -1, 3)
        return Codes(app, self._normalize(gaze), self._normalize(head))

    def decode(self, codes: Codes) -> Tensor:
        """Decode codes into strips (B, 3, H, W), with values roughly in [-1, 1]."""
        z = torch.cat([code.flatten(1) for code in codes], dim=1)
        with self.autocast():
            image = self.decoder(self.fc_dec(z).view(-1, *self.innermost))
        return image.to(self.dtype)

    def gaze_vector(self, z_gaze: Tensor) -> Tensor:
        """Apply the gaze head: codes (B, G, 3) -> unit vectors (B, 3) in the normalised camera frame."""
        if not self.model.backprop_gaze:
            z_gaze = z_gaze.detach()
        with self.autocast():
            vector = self.gaze2(F.relu(self.gaze1(z_gaze.flatten(1))))
        return F.normalize(vector.to(self.dtype), dim=1)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return self.fc_enc.weight.dtype

    def _normalize(self, code: Tensor) -> Tensor:
        """Normalise codes (B, F, 3) along `normalize_axis`: 1 (features; published), 2 (rows), 3 (both) or 0 (none)."""
        axis = (1, 2) if self.model.normalize_axis == 3 else self.model.normalize_axis
        return F.normalize(code, dim=axis) if axis else code


# Units that training can freeze: parts of the network, and dense blocks with the adjacent layers.
_PARTS = {"encoder": "encoder", "fc_enc": "encoder", "decoder": "decoder", "fc_dec": "decoder"}
_BLOCKS = {"encoder.initial": "encoder.block1", "decoder.last": "decoder.block{blocks}"}


def part_of(parameter: str) -> str:
    """Return the part of the network that contains a named parameter: encoder, decoder or gaze_head."""
    return _PARTS.get(parameter.split(".")[0], "gaze_head")


def block_of(parameter: str, blocks: int) -> str:
    """Return a parameter's dense block (with adjacent layers), such as encoder.block1, or "" if it is in none."""
    module = ".".join(parameter.split(".")[:2]).replace("trans", "block")
    return _BLOCKS.get(module, module if ".block" in module else "").format(blocks=blocks)


def freeze(dted: DTED, frozen: Sequence[str]) -> None:
    """Exclude parts and blocks from training."""
    for name, parameter in dted.named_parameters():
        if {part_of(name), block_of(name, dted.model.blocks)} & set(frozen):
            parameter.requires_grad_(False)


def _initialize(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
        nn.init.kaiming_normal_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
