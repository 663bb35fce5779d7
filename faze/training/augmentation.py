"""Random changes of training pairs, as operations on whole batches; labels change with the images.

A strip is the image of a virtual camera of known focal length (`faze.data.normalization`):

- Mirroring changes the sign of its yaws.
- Turning the camera moves its pixels by a homography and rotates its labels. This is exact for a person at the
  normalised distance from the virtual camera, at which normalisation places everyone.
- Magnification and colour changes do not affect its labels.

The draws depend only on seed and step. Shapes: B pairs of strips (B, H, W, 3), uint8, of the network's size; angles
(B, 2) pitch and yaw, rad.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from faze.base.geometry import pitchyaw_from_vector, vector_from_pitchyaw
from faze.config.parameters import Augment, Model, NormalizedCamera
from faze.data.pairs import Batch

STREAM = 0xA06  # separates these draws from other draws with the same seed
DRAWN = ("flip", "shift_px", "zoom", "color")  # keys that a batch has until it is augmented


@dataclass(frozen=True)
class Augmentation:
    """The augmentation of a training."""

    settings: Augment
    camera: NormalizedCamera  # of the stored strips
    model: Model
    people: int

    def draw(self, step: int, seed: int, pairs: int) -> Batch:
        """Draw the changes of a step's pairs; switching off one change does not affect the draws of the others.

        Returns:
            `flip` (B,) bool; `shift_px` (B, 2, 2), `zoom` (B, 2) and `color` (B, 3) float32. The first axis of length 2
            selects the member of the pair.
        """
        settings, random = self.settings, np.random.default_rng([STREAM, seed, step])
        flip = random.random(pairs) < 0.5
        # Each member is seen from elsewhere. Both have the same colours, since b is decoded from the codes of a.
        shift = random.uniform(-1, 1, (pairs, 2, 2)) * settings.jitter_px
        zoom = 1 + random.uniform(-1, 1, (pairs, 2)) * settings.zoom
        color = 1 + random.uniform(-1, 1, (pairs, 3)) * settings.color_scale
        drawn = (flip & settings.flip, *(values.astype(np.float32) for values in (shift, zoom, color)))
        return {name: torch.from_numpy(values) for name, values in zip(DRAWN, drawn, strict=True)}

    def __call__(self, batch: Batch) -> Batch:
        """Apply a batch's draws to its strips and labels."""
        settings, (flip, shift_px, zoom, color) = self.settings, (batch[name] for name in DRAWN)
        batch = {name: value for name, value in batch.items() if name not in DRAWN}
        for index, member in enumerate("ab"):
            names = [f"{name}_{member}" for name in ("image", "gaze", "head")]
            image, *angles = (batch[name] for name in names)
            if settings.flip:
                image, *angles = mirror(image, *angles, flip)
            if settings.jitter_px or settings.zoom:
                rotation = self.rotation(shift_px[:, index])
                image = self.warp(image, rotation, zoom[:, index])
                angles = [rotate_angles(each, rotation) for each in angles]
            if settings.color_scale:
                image = (image * color[:, None, None]).round().clamp(0, 255).to(torch.uint8)
            batch |= dict(zip(names, (image, *angles), strict=True))
        # Losses that compare people treat a mirrored person as another one.
        return batch | {"person": batch["person"] + self.people * flip}

    def rotation(self, shift_px: Tensor) -> Tensor:
        """Return rotations (B, 3, 3) to a camera aimed `shift_px` (B, 2) px of a stored strip away from its axis.

        The new x axis is in the plane of the new axis and the old x axis, as in `faze.data.normalization`.
        """
        z = F.normalize(F.pad(shift_px / self.camera.focal_length_px, (0, 1), value=1.0), dim=1)
        y = F.normalize(torch.stack([torch.zeros_like(z[:, 0]), z[:, 2], -z[:, 1]], dim=1), dim=1)  # z x (1, 0, 0)
        return torch.stack([torch.linalg.cross(y, z), y, z], dim=1)

    def warp(self, strips: Tensor, rotation: Tensor, zoom: Tensor) -> Tensor:
        """Return strips as seen after rotation (B, 3, 3) and zoom (B,), interpolated; beyond an edge, it is repeated."""
        (height, width), device = strips.shape[1:3], strips.device
        scale = self.model.image_width_px / self.camera.width_px  # network pixels per pixel of a stored strip
        focal_px = self.camera.focal_length_px * scale
        # Where the camera's axis meets the strip; the centres of pixels are whole numbers.
        center_x, center_y = (scale * (px + 0.5) - 0.5 for px in (self.camera.width_px / 2, height / scale / 2))
        y, x = torch.meshgrid(torch.arange(height, device=device), torch.arange(width, device=device), indexing="ij")
        plane = torch.stack([(x - center_x) / focal_px, (y - center_y) / focal_px], dim=-1)  # (H, W, 2)
        ray = F.pad(plane / zoom[:, None, None, None], (0, 1), value=1.0)  # (B, H, W, 3) in the new frame
        ray = rotate(rotation.mT[:, None, None], ray)
        found_x = focal_px * ray[..., 0] / ray[..., 2] + center_x
        found_y = focal_px * ray[..., 1] / ray[..., 2] + center_y
        grid = torch.stack([2 * found_x / (width - 1) - 1, 2 * found_y / (height - 1) - 1], dim=-1)
        planes = strips.permute(0, 3, 1, 2).float()
        seen = F.grid_sample(planes, grid, mode="bilinear", padding_mode="border", align_corners=True)
        return seen.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()


def mirror(strips: Tensor, gaze: Tensor, head: Tensor, flip: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mirror the strips for which `flip` (B,) is true; their yaws change sign.

    The camera's axis meets a stored strip of width W at pixel W / 2; after mirroring, at W / 2 - 1. This difference of
    0.04 degrees is neglected, so pixels are not interpolated.
    """
    mirrored = torch.where(flip[:, None, None, None], strips.flip(2), strips)
    sign = torch.stack([torch.ones_like(flip, dtype=gaze.dtype), 1 - 2 * flip.to(gaze.dtype)], dim=1)  # (B, 2)
    return mirrored, gaze * sign, head * sign


def rotate_angles(pitchyaw: Tensor, rotation: Tensor) -> Tensor:
    """Rotate directions (B, 2), in rad, by rotations (B, 3, 3)."""
    return pitchyaw_from_vector(rotate(rotation, vector_from_pitchyaw(pitchyaw, torch)), torch)


def rotate(rotation: Tensor, vectors: Tensor) -> Tensor:
    """Multiply (..., 3, 3) by (..., 3) without a matrix product, which TF32 would round to ten bits."""
    return (rotation * vectors[..., None, :]).sum(-1)
