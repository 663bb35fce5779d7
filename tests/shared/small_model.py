"""The smallest DT-ED that has all parts, and people with random strips."""

import numpy as np
from stores import PersonStrips

from faze.config.parameters import Model

MODEL = Model(
    growth=2,
    blocks=4,
    image_height_px=32,
    image_width_px=128,
    z_app=8,
    z_gaze=2,
    z_head=4,
    decoder_channels=4,
    normalize_axis=1,
    backprop_gaze=True,
)


def random_people(*people: tuple[str, str, int], seed: int = 0) -> list[PersonStrips]:
    """Create people from their name, split and number of strips."""
    rng = np.random.default_rng(seed)
    return [
        PersonStrips(
            name,
            split,
            rng.integers(0, 256, (count, 64, 256, 3), dtype=np.uint8),
            rng.normal(0, 0.2, (count, 4)).astype(np.float32),
        )
        for name, split, count in people
    ]
