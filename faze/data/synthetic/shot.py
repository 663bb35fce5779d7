"""One frame being taken: camera, light and eyes as the head sees them, and which pixels its parts fill."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faze.data.synthetic.camera import Camera
from faze.data.synthetic.eyeball import Eyeball
from faze.data.synthetic.lids import Margins, margins
from faze.data.synthetic.light import Light
from faze.data.synthetic.person import SyntheticPerson
from faze.data.synthetic.texture import Image

_HEAD_MM = ((-80.0, -105.0, 0.0), (80.0, 145.0, 90.0))  # two corners of a box in the head frame
_BAND_MM = ((-66.0, -34.0, 0.0), (66.0, 30.0, 0.0))
_EYE_MM = np.array([[-17.0, -13.0, 0.0], [17.0, 11.0, 0.0]])  # around an eyeball
FEATHER_PX = 5

Box = tuple[int, int, int, int]  # left, top, width, height, px


@dataclass(frozen=True, eq=False)
class Shot:
    """One frame being taken."""

    camera: Camera
    rotation: NDArray  # (3, 3) head -> camera
    origin_mm: NDArray  # (3,) of the head in the camera frame
    light: Light  # in the head frame
    exposure: np.float32  # grey level of white
    optical: NDArray  # (2, 3) optical axes in the head frame
    aperture: float  # how wide the lids are open, 1 = as usual
    pupil_mm: float

    @property
    def viewpoint_mm(self) -> NDArray:
        """Position (3,) of the camera in the head frame."""
        return -self.rotation.T @ self.origin_mm

    def rays(self, box: Box, scale: float) -> Image:
        """Compute (h, w, 3) directions in the head frame."""
        grid, rotation = self.camera.ray_grid(box, scale), self.rotation.astype(np.float32)
        # No matrix product: whether it fuses, and so rounds, is up to BLAS and processor, and kernel.c does the same.
        return grid[..., :1] * rotation[0] + grid[..., 1:] * rotation[1] + rotation[2]

    def eyes(self, person: SyntheticPerson) -> list[tuple[Eyeball, Margins]]:
        """Place each eyeball and its lids."""
        return [
            (Eyeball(centre, axis, self.pupil_mm), margins(person, eye, axis, self.aperture))
            for eye, (centre, axis) in enumerate(zip(person.eye_centres_mm, self.optical, strict=True))
        ]

    def boxes(self, person: SyntheticPerson) -> tuple[Box, Box, list[Box]]:
        """Find the pixels of the frame around the head, around the band of the eyes, and around each eye."""
        eyes = [_EYE_MM + centre * [1, 1, 0] for centre in person.eye_centres_mm]
        low, high = np.moveaxis(np.array([_HEAD_MM, _BAND_MM, *eyes])[:, :, None], 1, 0)  # (4, 1, 3) each
        points = np.where(_CORNERS, high, low)  # (4, 8, 3)
        pixels = self.camera.project(points @ self.rotation.T + self.origin_mm)
        size = np.array([self.camera.width_px, self.camera.height_px])
        first = np.clip(np.floor(pixels.min(axis=1)), 0, size - 2).astype(int)
        last = np.clip(np.ceil(pixels.max(axis=1)) + 1, first + 2, size).astype(int)
        sides = (last - first) // 2 * 2  # even, so that half resolution meets the pixels
        head, band, *found = (tuple(box) for box in np.concatenate([first, sides], axis=1).tolist())
        return head, band, found


_CORNERS = np.array([[x, y, z] for x in (False, True) for y in (False, True) for z in (False, True)])


def within(box: Box, outer: Box) -> Box:
    """Return the intersection of a box with an outer one: left, top, width, height, from the outer one's corner."""
    left, top = max(box[0] - outer[0], 0), max(box[1] - outer[1], 0)
    right, bottom = box[0] + box[2] - outer[0], box[1] + box[3] - outer[1]
    return left, top, max(min(right, outer[2]) - left, 0), max(min(bottom, outer[3]) - top, 0)


def feather(width: int, height: int) -> Image:
    """Compute weights (height, width) that fall to nothing at the edges."""
    ramps = [np.minimum(np.arange(n) + 0.5, n - 0.5 - np.arange(n)) / FEATHER_PX for n in (width, height)]
    across, down = (np.clip(ramp, 0, 1).astype(np.float32) for ramp in ramps)
    return down[:, None] * across
