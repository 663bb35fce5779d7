"""Random augmentation of training pairs, applied to whole batches; labels change with the images.

The draws depend only on the seed and the step. Shapes: B pairs of strips (B, H, W, 3), uint8, of the network's input
size; angles (B, 2), pitch and yaw in rad.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from faze.config.parameters import Augment
from faze.data.pairs import Batch

STREAM = 0xA06  # separates these draws from other draws with the same seed


@dataclass(frozen=True)
class Augmentation:
    """The augmentation of a training run."""

    settings: Augment
    people: int

    def draw(self, step: int, seed: int, pairs: int) -> Batch:
        """Draw `flip` (B,) bool and `color` (B, 3) float32, which both strips of a pair share.

        Strips share colours because strip b is decoded from the codes of strip a.
        """
        random = np.random.default_rng([STREAM, seed, step])
        flip = (random.random(pairs) < 0.5) & self.settings.flip
        random.random(6 * pairs)  # unused draws, without which networks would differ from those of earlier versions
        color = 1 + random.uniform(-1, 1, (pairs, 3)) * self.settings.color_scale
        return {"flip": torch.from_numpy(flip), "color": torch.from_numpy(color.astype(np.float32))}

    def __call__(self, batch: Batch) -> Batch:
        """Apply a batch's draws to its strips and labels."""
        batch = dict(batch)
        flip, color = batch.pop("flip"), batch.pop("color")
        for member in "ab":
            names = [f"{name}_{member}" for name in ("image", "gaze", "head")]
            image, gaze, head = (batch[name] for name in names)
            if self.settings.flip:
                image, gaze, head = mirror(image, gaze, head, flip)
            if self.settings.color_scale:
                image = (image * color[:, None, None]).round().clamp(0, 255).to(torch.uint8)
            batch |= dict(zip(names, (image, gaze, head), strict=True))
        # Losses that compare people treat a mirrored person as a different person.
        return batch | {"person": batch["person"] + self.people * flip}


def mirror(strips: Tensor, gaze: Tensor, head: Tensor, flip: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mirror the strips for which `flip` (B,) is true; their yaws change sign.

    The camera's axis meets a stored strip of width W at pixel W / 2, and a mirrored strip at W / 2 - 1. This difference
    of 0.04 degrees is neglected, so pixels are not interpolated.
    """
    mirrored = torch.where(flip[:, None, None, None], strips.flip(2), strips)
    sign = torch.stack([torch.ones_like(flip, dtype=gaze.dtype), 1 - 2 * flip.to(gaze.dtype)], dim=1)  # (B, 2)
    return mirrored, gaze * sign, head * sign
