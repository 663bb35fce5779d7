"""Random augmentation of training pairs, as operations on whole batches; labels are transformed with the images.

A strip is the image of a virtual camera of known focal length (`faze.data.normalization`):

- Mirroring changes the sign of its yaws.
- Turning the camera moves its pixels by a homography and rotates its labels. This
  is exact for a person at the normalised distance from the virtual camera, at which normalisation places everyone.
- Magnification and colour changes do not affect its labels.

The random draws depend only on seed and step.

Shapes: B pairs of strips of H x W pixels, the network's size; angles are (B, 2) pitch and yaw, rad.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from faze.base.geometry import pitchyaw_from_vector, vector_from_pitchyaw
from faze.config.parameters import Augment, Model, NormalizedCamera
from faze.data.pairs import Batch, PairIndices

STREAM = 0xA06  # separates these draws from other draws with the same seed
DRAWN = ("flip", "shift_px", "zoom", "color")  # keys that a batch has until it is augmented


@dataclass(frozen=True)
class VirtualCamera:
    """The virtual camera at the network's size."""

    focal_length_px: float
    center_px: tuple[float, float]  # x, y where its axis meets the strip; the centres of pixels are whole numbers
    scale: float  # network pixels per pixel of a stored strip

    @classmethod
    def of(cls, camera: NormalizedCamera, model: Model) -> "VirtualCamera":
        """Scale the camera of stored strips to the size of the model's images; shrinking shifts pixel centres."""
        scale = model.image_width_px / camera.width_px
        full = (camera.width_px / 2, model.image_height_px / scale / 2)
        x, y = (scale * (center + 0.5) - 0.5 for center in full)
        return cls(camera.focal_length_px * scale, (x, y), scale)


@dataclass(frozen=True)
class Augmentation:
    """The augmentation of a training run."""

    settings: Augment
    camera: VirtualCamera
    people: int

    def draw(self, step: int, indices: PairIndices) -> Batch:
        """Draw the augmentation of a step's global batch, and return the part for this process's pairs.

        Switching off one change does not affect the draws of the others.

        Returns:
            `flip` (B,) bool; `shift_px` (B, 2, 2), `zoom` (B, 2) and `color` (B, 3) float32. The first axis of length 2
            selects the member of the pair.
        """
        settings, pairs = self.settings, indices.global_batch
        random = np.random.default_rng([STREAM, indices.seed, step])
        flip = random.random(pairs) < 0.5
        # Each member is seen from elsewhere. Both have the same colours, since b is decoded from the codes of a.
        shift = random.uniform(-1, 1, (pairs, 2, 2)) * settings.jitter_px
        zoom = 1 + random.uniform(-1, 1, (pairs, 2)) * settings.zoom
        color = 1 + random.uniform(-1, 1, (pairs, 3)) * settings.color_scale
        drawn = (flip & settings.flip, *(values.astype(np.float32) for values in (shift, zoom, color)))
        return {name: torch.from_numpy(values[indices.rows].copy()) for name, values in zip(DRAWN, drawn, strict=True)}

    def __call__(self, batch: Batch) -> Batch:
        """Apply a batch's draws to its strips and labels."""
        settings, drawn = self.settings, {name: batch[name] for name in DRAWN}
        batch = {name: value for name, value in batch.items() if name not in DRAWN}
        for index, member in enumerate("ab"):
            names = [f"{name}_{member}" for name in ("image", "gaze", "head")]
            changed = tuple(batch[name] for name in names)
            if settings.flip:
                changed = mirror(*changed, drawn["flip"])
            if settings.jitter_px or settings.zoom:
                changed = turn_camera(*changed, drawn["shift_px"][:, index], drawn["zoom"][:, index], self.camera)
            if settings.color_scale:
                changed = (recolor(changed[0], drawn["color"]), *changed[1:])
            batch |= dict(zip(names, changed, strict=True))
        # Losses that compare people treat a mirrored person as another one.
        return batch | {"person": batch["person"] + self.people * drawn["flip"]}


def build_augmentation(settings: Augment, camera: NormalizedCamera, model: Model, people: int) -> Augmentation | None:
    """Return the configured augmentation; None if it is switched off entirely."""
    if not (settings.flip or settings.jitter_px or settings.zoom or settings.color_scale):
        return None
    return Augmentation(settings, VirtualCamera.of(camera, model), people)


def mirror(strips: Tensor, gaze: Tensor, head: Tensor, flip: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mirror the strips (B, H, W, 3) for which `flip` (B,) is true; their yaws change sign.

    The camera's axis meets a stored strip of width W at pixel W / 2; after mirroring, at W / 2 - 1. This difference of
    0.04 degrees is neglected, so pixels are not interpolated.
    """
    mirrored = torch.where(flip[:, None, None, None], strips.flip(2), strips)
    sign = torch.stack([torch.ones_like(flip, dtype=gaze.dtype), 1 - 2 * flip.to(gaze.dtype)], dim=1)  # (B, 2)
    return mirrored, gaze * sign, head * sign


def turn_camera(
    strips: Tensor, gaze: Tensor, head: Tensor, shift_px: Tensor, zoom: Tensor, camera: VirtualCamera
) -> tuple[Tensor, Tensor, Tensor]:
    """Turn the virtual camera to another point, and magnify the strips.

    Args:
        strips: (B, H, W, 3) uint8.
        gaze: (B, 2) rad.
        head: (B, 2) rad.
        shift_px: (B, 2) x, y of that point relative to the strip's centre, in pixels of a stored strip.
        zoom: (B,) magnification.
        camera: the virtual camera.

    Returns:
        Strips, gaze and head in the same shapes; pixels from outside the strip repeat its edge.
    """
    rotation = camera_rotation(shift_px * camera.scale, camera.focal_length_px)
    return warp(strips, rotation, zoom, camera), rotate_angles(gaze, rotation), rotate_angles(head, rotation)


def camera_rotation(shift_px: Tensor, focal_length_px: float) -> Tensor:
    """Return rotations (B, 3, 3) from the camera's frame to that of a camera aimed `shift_px` (B, 2) away.

    The new axis is turned by atan(|shift| / focal length). The new x axis is in the plane of the new axis and the old x
    axis, as in `faze.data.normalization`.
    """
    z = F.normalize(F.pad(shift_px / focal_length_px, (0, 1), value=1.0), dim=1)
    y = F.normalize(torch.stack([torch.zeros_like(z[:, 0]), z[:, 2], -z[:, 1]], dim=1), dim=1)  # z x (1, 0, 0)
    return torch.stack([torch.linalg.cross(y, z), y, z], dim=1)


def rotate_angles(pitchyaw: Tensor, rotation: Tensor) -> Tensor:
    """Rotate directions (B, 2), in rad, by rotations (B, 3, 3)."""
    return pitchyaw_from_vector(rotate(rotation, vector_from_pitchyaw(pitchyaw, torch)), torch)


def rotate(rotation: Tensor, vectors: Tensor) -> Tensor:
    """Multiply (..., 3, 3) by (..., 3) without a matrix product, which TF32 would round to ten bits."""
    return (rotation * vectors[..., None, :]).sum(-1)


def warp(strips: Tensor, rotation: Tensor, zoom: Tensor, camera: VirtualCamera) -> Tensor:
    """Return strips (B, H, W, 3), uint8, as seen after rotation (B, 3, 3) and zoom (B,), interpolated bilinearly."""
    height, width = strips.shape[1:3]
    (center_x, center_y), f = camera.center_px, camera.focal_length_px
    y, x = torch.meshgrid(
        torch.arange(height, device=strips.device), torch.arange(width, device=strips.device), indexing="ij"
    )
    plane = torch.stack([(x - center_x) / f, (y - center_y) / f], dim=-1)  # (H, W, 2)
    ray = F.pad(plane / zoom[:, None, None, None], (0, 1), value=1.0)  # (B, H, W, 3) in the new frame
    ray = rotate(rotation.mT[:, None, None], ray)
    found_x, found_y = (f * ray[..., axis] / ray[..., 2] + camera.center_px[axis] for axis in (0, 1))
    grid = torch.stack([2 * found_x / (width - 1) - 1, 2 * found_y / (height - 1) - 1], dim=-1)
    planes = strips.permute(0, 3, 1, 2).float()
    seen = F.grid_sample(planes, grid, mode="bilinear", padding_mode="border", align_corners=True)
    return seen.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()


def recolor(strips: Tensor, factors: Tensor) -> Tensor:
    """Multiply each colour channel of strips (B, H, W, 3), uint8, by its factor (B, 3); values are clipped at 255."""
    return (strips * factors[:, None, None]).round().clamp(0, 255).to(torch.uint8)
