"""Random changes of the pairs that train, as operations on whole batches; the labels follow their geometry.

A strip is what a virtual camera of known focal length sees (`faze.data.normalization`). Mirrored, its yaws change sign.
Seen by the same camera turned elsewhere, its pixels move as one homography, and its labels turn with the camera; so it
is for a person at the virtual camera's distance, where normalisation puts everyone, but a store does not say from how
far. Larger or smaller, or in other colours, it has the same labels. What is drawn depends on seed and step alone.

Shapes: B pairs of H x W pixels, the network's size.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Dataset

from faze.base.geometry import pitchyaw_from_vector, vector_from_pitchyaw
from faze.config.data_parameters import Augment, StripCamera
from faze.config.parameters import Model
from faze.data.pairs import Batch, BatchShare

STREAM = 0xA06  # tells these draws from those of other things with the same seed
DRAWN = ("flip", "shift_px", "zoom", "color")  # what a batch carries until it is augmented


@dataclass(frozen=True)
class VirtualCamera:
    """The virtual camera at the network's size."""

    focal_length_px: float
    center_px: tuple[float, float]  # where its axis meets the strip; pixels have their centre at whole numbers
    scale: float  # network pixels per pixel of a stored strip

    @classmethod
    def of(cls, camera: StripCamera, model: Model) -> "VirtualCamera":
        """Scale the camera of stored strips to the model's images; shrinking moves the centres of pixels."""
        scale = model.image_width_px / camera.width_px
        full = (camera.width_px / 2, model.image_height_px / scale / 2)
        x, y = (scale * (center + 0.5) - 0.5 for center in full)
        return cls(camera.focal_length_px * scale, (x, y), scale)


@dataclass(frozen=True)
class Augmentation:
    """Which changes are made."""

    settings: Augment
    camera: VirtualCamera
    people: int

    def __call__(self, batch: Batch) -> Batch:
        """Change a batch that carries its draws; its strips have the network's size."""
        settings, drawn = self.settings, {name: batch[name] for name in DRAWN}
        batch = {name: value for name, value in batch.items() if name not in DRAWN}
        for place, member in enumerate("ab"):
            names = [f"{what}_{member}" for what in ("image", "gaze", "head")]
            changed = tuple(batch[name] for name in names)
            if settings.flip:
                changed = mirror(*changed, drawn["flip"])
            if settings.jitter_px or settings.zoom:
                changed = look_elsewhere(*changed, drawn["shift_px"][:, place], drawn["zoom"][:, place], self.camera)
            if settings.color_scale:
                changed = (recolor(changed[0], drawn["color"]), *changed[1:])
            batch |= dict(zip(names, changed, strict=True))
        # To losses that compare people, a mirrored person is another.
        return batch | {"person": batch["person"] + self.people * drawn["flip"]}


def build_augmentation(settings: Augment, camera: StripCamera, model: Model, people: int) -> Augmentation | None:
    """Build what the config asks for; None if that is nothing."""
    if not (settings.flip or settings.jitter_px or settings.zoom or settings.color_scale):
        return None
    return Augmentation(settings, VirtualCamera.of(camera, model), people)


class Drawn(Dataset):
    """The items of a dataset of steps, each with what was drawn for its pairs."""

    def __init__(self, source: Dataset, settings: Augment, share: BatchShare) -> None:
        """Args: source: this process's share of the batches. settings: how far to go. share: the pairs in source."""
        self._source, self._settings, self._share = source, settings, share

    def __getitem__(self, step: int) -> Batch:
        """Give the item, and `flip` (B,) bool, `shift_px` (B, 2, 2), `zoom` (B, 2), `color` (B, 3) float32."""
        return self._source[step] | self.draw(step)

    def draw(self, step: int) -> Batch:
        """Draw for the whole global batch, and keep this process's part; a change that is off moves no other draw."""
        random, settings = np.random.default_rng([STREAM, self._share.seed, step]), self._settings
        pairs, rows = self._share.global_batch, self._share.rows
        flip = random.random(pairs) < 0.5
        # Each member is seen from elsewhere. Colours are both members': b has to be made from the codes of a.
        shift = random.uniform(-1, 1, (pairs, 2, 2)) * settings.jitter_px
        zoom = 1 + random.uniform(-1, 1, (pairs, 2)) * settings.zoom
        color = 1 + random.uniform(-1, 1, (pairs, 3)) * settings.color_scale
        drawn = (flip & settings.flip, *(values.astype(np.float32) for values in (shift, zoom, color)))
        return {name: torch.from_numpy(values[rows].copy()) for name, values in zip(DRAWN, drawn, strict=True)}


def mirror(strips: Tensor, gaze: Tensor, head: Tensor, flip: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mirror some strips, (B, H, W, 3), left to right; their yaws change sign, their pitches do not.

    The camera's axis meets a stored strip of width W at pixel W / 2; mirrored, at W / 2 - 1, which is 0.04 degrees
    aside. Pixels are not interpolated for that.
    """
    mirrored = torch.where(flip[:, None, None, None], strips.flip(2), strips)
    sign = torch.stack([torch.ones_like(flip, dtype=gaze.dtype), 1 - 2 * flip.to(gaze.dtype)], dim=1)  # (B, 2)
    return mirrored, gaze * sign, head * sign


def look_elsewhere(
    strips: Tensor, gaze: Tensor, head: Tensor, shift_px: Tensor, zoom: Tensor, camera: VirtualCamera
) -> tuple[Tensor, Tensor, Tensor]:
    """Turn the virtual camera to another point, and magnify.

    Args:
        strips: (B, H, W, 3) uint8.
        gaze: (B, 2) rad.
        head: (B, 2) rad.
        shift_px: (B, 2) x, y of that point from the strip's centre, in pixels of a stored strip.
        zoom: (B,) magnification.
        camera: the virtual one.

    Returns:
        the same; pixels from beyond the strip repeat its edge.
    """
    rotation = camera_rotation(shift_px * camera.scale, camera.focal_length_px)
    return warp(strips, rotation, zoom, camera), turned(gaze, rotation), turned(head, rotation)


def camera_rotation(shift_px: Tensor, focal_length_px: float) -> Tensor:
    """(B, 2) -> rotations (B, 3, 3) from the camera's frame to that of a camera which looks shift_px aside.

    Its axis is turned by atan(|shift| / focal length), its x lies in the plane of that axis and the old x, as in
    `faze.data.normalization`.
    """
    z = F.normalize(F.pad(shift_px / focal_length_px, (0, 1), value=1.0), dim=1)
    y = F.normalize(torch.stack([torch.zeros_like(z[:, 0]), z[:, 2], -z[:, 1]], dim=1), dim=1)  # z x (1, 0, 0)
    return torch.stack([torch.linalg.cross(y, z), y, z], dim=1)


def turned(pitchyaw: Tensor, rotation: Tensor) -> Tensor:
    """(B, 2) rad in the old frame -> in the new one."""
    return pitchyaw_from_vector(rotated(rotation, vector_from_pitchyaw(pitchyaw, torch)), torch)


def rotated(rotation: Tensor, vectors: Tensor) -> Tensor:
    """(..., 3, 3) times (..., 3). Not as a matrix product, which TF32 would round to ten bits."""
    return (rotation * vectors[..., None, :]).sum(-1)


def warp(strips: Tensor, rotation: Tensor, zoom: Tensor, camera: VirtualCamera) -> Tensor:
    """(B, H, W, 3) uint8 as seen after rotation (B, 3, 3) and zoom (B,), bilinear."""
    height, width = strips.shape[1:3]
    (center_x, center_y), f = camera.center_px, camera.focal_length_px
    y, x = torch.meshgrid(
        torch.arange(height, device=strips.device), torch.arange(width, device=strips.device), indexing="ij"
    )
    plane = torch.stack([(x - center_x) / f, (y - center_y) / f], dim=-1)  # (H, W, 2)
    ray = F.pad(plane / zoom[:, None, None, None], (0, 1), value=1.0)  # (B, H, W, 3) in the new frame
    ray = rotated(rotation.mT[:, None, None], ray)
    found_x, found_y = (f * ray[..., axis] / ray[..., 2] + camera.center_px[axis] for axis in (0, 1))
    grid = torch.stack([2 * found_x / (width - 1) - 1, 2 * found_y / (height - 1) - 1], dim=-1)
    planes = strips.permute(0, 3, 1, 2).float()
    seen = F.grid_sample(planes, grid, mode="bilinear", padding_mode="border", align_corners=True)
    return seen.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()


def recolor(strips: Tensor, factors: Tensor) -> Tensor:
    """(B, H, W, 3) uint8 with each colour times its factor, (B, 3); what becomes too bright is clipped."""
    return (strips * factors[:, None, None]).round().clamp(0, 255).to(torch.uint8)
