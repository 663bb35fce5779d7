"""Spectacles: what their lenses do to the eyes' turning and to what a camera sees of them, and how they look.

Both lenses are thin, and in one plane across the head frame. A ray that meets a lens of power F (dioptres) h mm off
its optical centre changes its slope by F h / 1000 toward the centre (Prentice's rule). So a myope's eyes (F < 0) turn
less for the same gaze, and look smaller. Everything in the head frame and mm unless a name says otherwise.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from faze.data.synthetic.texture import Image, Light, ramp

FRONT_RADIUS_MM = 110.0  # of the lenses' front, which mirrors
TILT = 0.12  # tangent of the angle by which the lenses' lower rim is nearer to the face: 7 degrees
EDGE_MM = 0.5  # over which a rim's edge runs out
BRIDGE_MM = (-5.0, 1.2)  # of the bar between the lenses: above their middles, and half its height


class Meeting(NamedTuple):
    """Where rays meet the lenses' plane; (h, w) each."""

    aside: Image  # (h, w, 2) off the nearer lens's centre
    on_right: NDArray[np.bool_]  # that lens is the one on the image's right
    beyond_mm: Image  # outside that lens, about; negative inside
    inside: Image  # 1 in the lens, 0 beyond


@dataclass(frozen=True, eq=False)
class Spectacles:
    """One person's spectacles; lens 0 is before eye 0, on the image's left."""

    power_dioptres: NDArray  # (2,)
    centre_mm: NDArray  # (2, 2) x, y of each lens's optical centre, which is its middle
    plane_mm: float  # z of both lenses
    behind_mm: float  # from the lenses to the irises: what the camera sees is exact there
    half_mm: tuple[float, float]  # half the width and height of a lens
    rim_mm: float
    rim_rgb: NDArray  # (3,) 0..1
    reflectance: float  # of both surfaces together, 0..1

    def apparent_target(self, eye_centres_mm: NDArray, target_mm: NDArray) -> NDArray:
        """Find where each eye would look without spectacles, turned as it is to look at the target through them.

        Args:
            eye_centres_mm: (2, 3) what the eyes turn about.
            target_mm: (N, 3).

        Returns:
            (N, 2, 3).
        """
        behind = eye_centres_mm[:, 2:] - self.plane_mm  # (2, 1)
        before = (self.plane_mm - target_mm[:, 2])[:, None, None]  # (N, 1, 1)
        bend = (self.power_dioptres / 1000)[:, None] * before  # (N, 2, 1)
        aside = target_mm[:, None, :2] - eye_centres_mm[:, :2] + bend * (eye_centres_mm[:, :2] - self.centre_mm)
        slope = aside / (behind + before - bend * behind)
        seen = eye_centres_mm[:, :2] + slope * (behind + before)
        return np.concatenate([seen, np.broadcast_to(target_mm[:, None, 2:], (*seen.shape[:2], 1))], axis=-1)

    def meet(self, origin: NDArray, rays: Image) -> Meeting:
        """Find where rays (h, w, 3), of any length, from the camera's place (3,) meet the lenses' plane."""
        reach = np.float32(self.plane_mm - origin[2]) / rays[..., 2:]
        point = origin[:2].astype(np.float32) + reach * rays[..., :2]
        on_right = point[..., 0] > np.float32(self.centre_mm[:, 0].mean())
        aside = point - self.centre_mm.astype(np.float32)[on_right.astype(np.intp)]
        scaled = np.square(np.square(aside * (1 / np.array(self.half_mm, np.float32))))
        beyond = (np.sqrt(np.sqrt(scaled[..., 0] + scaled[..., 1])) - 1) * np.float32(min(self.half_mm))
        return Meeting(aside, on_right, beyond, ramp(np.float32(0.5) - beyond * np.float32(1 / EDGE_MM)))

    def bend(self, met: Meeting, origin: NDArray, rays: Image) -> Image:
        """Turn the rays that meet a lens so that, straight on, they reach what the lens shows: (h, w, 3)."""
        left, right = self.bends()
        straight = rays * (np.float32(self.plane_mm + self.behind_mm - origin[2]) / rays[..., 2:])
        straight[..., :2] -= met.aside * (np.where(met.on_right, right, left) * met.inside)[..., None]
        return straight

    def cover(self, colour: Image, met: Meeting, rays: Image, light: Light) -> Image:
        """Lay reflections, rims and bridge over what is seen through the lenses: (h, w, 3) -> (h, w, 3)."""
        glow = self._mirrored(met.aside, rays, light) + np.float32(self.glow(light))
        share = (np.float32(self.reflectance) * met.inside)[..., None]
        colour = colour + share * (glow[..., None] - colour)
        thick, above, half = np.float32(self.rim_mm), *np.array(BRIDGE_MM, np.float32)
        rim = ramp((thick - np.abs(met.beyond_mm - thick)) * np.float32(1 / EDGE_MM) + np.float32(0.5))
        inward = (met.aside[..., 0] > 0) != met.on_right
        beside = np.abs(met.aside[..., 1] - above) - half
        bridge = ramp(np.float32(0.5) - beside * np.float32(1 / EDGE_MM)) * (inward & (met.beyond_mm > 0))
        return colour + np.maximum(rim, bridge)[..., None] * (self.metal(light) - colour)

    def bends(self) -> Image:
        """Compute (2,) by how much a lens turns a ray, per mm off its centre, as seen where the irises are."""
        return (self.power_dioptres * (self.behind_mm / 1000)).astype(np.float32)

    def glow(self, light: Light) -> float:
        """Compute the brightness of what lenses mirror besides the lights."""
        return 0.5 * float(light.ambient_rgb.mean())

    def metal(self, light: Light) -> Image:
        """Compute the colour (3,) of the rims under this light."""
        front = np.array([[0.0, 0.0, -1.0]], np.float32)
        return (self.rim_rgb.astype(np.float32) * light.on(front))[0]

    def _mirrored(self, aside: Image, rays: Image, light: Light) -> Image:
        """Compute the lights' images on the lenses' fronts: (h, w)."""
        normal = np.concatenate([aside / np.float32(FRONT_RADIUS_MM), np.full_like(aside[..., :1], -1)], axis=-1)
        normal[..., 1] += np.float32(TILT)
        normal /= np.sqrt(np.einsum("hwc,hwc->hw", normal, normal))[..., None]
        straight = rays / np.sqrt(np.einsum("hwc,hwc->hw", rays, rays))[..., None]
        glow = np.zeros(rays.shape[:2], np.float32)
        for towards, width_rad, strength in light.mirrored:
            half = towards.astype(np.float32) - straight
            cosine = np.einsum("hwc,hwc->hw", normal, half) / np.sqrt(np.einsum("hwc,hwc->hw", half, half))
            glow += np.float32(3 * strength) * np.exp(-np.square((1 - cosine) / np.float32(0.5 * width_rad**2)))
        return glow
