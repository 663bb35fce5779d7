"""The lights that fall on a face, and what shines in eyes and spectacles."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faze.data.synthetic.texture import Image


@dataclass(frozen=True, eq=False)
class Light:
    """A key light, light from all sides, and the screen's glow; one frame of reference for all (camera or head)."""

    key: NDArray  # (3,) unit vector toward the key light
    key_rgb: NDArray
    screen: NDArray  # (3,) unit vector toward the screen
    screen_rgb: NDArray
    ambient_rgb: NDArray

    def on(self, normal: Image, wrap: float = 0.25) -> Image:
        """Compute the light that falls on surfaces: (h, w, 3) unit normals -> (h, w, 3) RGB."""
        sources = np.stack([self.key, self.screen], axis=1).astype(np.float32)
        rgb = np.stack([self.key_rgb, self.screen_rgb]).astype(np.float32) / np.float32(1 + wrap)
        cosine = np.maximum(normal @ sources + np.float32(wrap), 0)
        return cosine @ rgb + self.ambient_rgb.astype(np.float32)

    def turned(self, rotation: NDArray) -> "Light":
        """Express the light in another frame of reference, into which the rotation (3, 3) takes vectors."""
        return Light(rotation @ self.key, self.key_rgb, rotation @ self.screen, self.screen_rgb, self.ambient_rgb)

    @property
    def mirrored(self) -> list[tuple[NDArray, float, float]]:
        """Lights that the cornea mirrors: direction, angular half-width on the cornea (rad), brightness."""
        return [(self.key, 0.07, 1.8 * float(self.key_rgb.mean())), (self.screen, 0.09, 0.5)]
