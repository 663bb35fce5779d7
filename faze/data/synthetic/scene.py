"""One person's frames in three dimensions: head poses, targets, eye directions, and their annotation.

The visual axes of both eyes meet at the true target; optical axes deviate from them by kappa, and spectacles deflect
both. The annotation has errors in the target, and in the position and rotation of the head.

Shapes: N frames, 2 eyes. Everything is in the camera frame and in mm unless a name indicates otherwise.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from faze.base.geometry import pitchyaw_from_vector, rotation_from_pitchyaw, vector_from_pitchyaw
from faze.data.synthetic.person import ANNOTATED_FARTHER, SyntheticPerson
from faze.data.synthetic.setting import Setting

MODEL_OUTER_HALF_MM = 45.6  # half the distance between the outer eye corners in annotators' generic face models
_EYE_LIMITS_DEG = ((-33.0, 22.0), (-30.0, 30.0))  # pitch, yaw of the eyes in the head
_STRIP_HALF_MM = np.array([62.0, 17.0])  # half the sides of the area around the gaze origin that must be in the frame


@dataclass(frozen=True, eq=False)
class Scene:
    """N frames of one person."""

    screen: NDArray  # (N,) index into the setting's screens
    target_units: NDArray  # (N, 2) annotated target on the screen, pixels or points
    target_mm: NDArray  # (N, 3) annotated target
    true_target_mm: NDArray  # (N, 3)
    rotation: NDArray  # (N, 3, 3) head -> camera
    origin_mm: NDArray  # (N, 3) midpoint of the inner eye corners: the origin of the head frame
    annotated_rotation: NDArray  # (N, 3, 3)
    annotated_origin_mm: NDArray  # (N, 3)
    optical_in_head: NDArray  # (N, 2, 3) unit vectors of the optical axes, head frame
    aperture: NDArray  # (N,) opening of the lids, 1 = usual

    def __len__(self) -> int:
        return len(self.screen)


def sample_scene(rng: np.random.Generator, person: SyntheticPerson, setting: Setting, count: int) -> Scene:
    """Sample frames in random order, replacing any in which the eyes are outside the image or turned too far."""
    habits = _Habits(
        rng.normal(0.15, 0.15),
        rng.uniform(0.0, 0.5),
        np.radians(rng.normal(0.0, [4.0, 3.0, 2.0])),
        rng.normal(0.0, 0.03 * setting.distance_mm, 2),
    )
    parts: list[dict[str, NDArray]] = []
    missing = count
    while missing:
        scene = _draw(rng, person, setting, habits, 2 * missing + 8)
        rows = np.flatnonzero(_plausible(scene, setting))[:missing]
        parts.append({name: array[rows] for name, array in vars(scene).items()})
        missing -= len(rows)
    return Scene(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


class _Habits(NamedTuple):
    """The distribution of one person's head poses."""

    follow: float  # share of the gaze angle by which the head turns; negative: in the opposite direction
    toward_screen: float  # neutral pose: 0 faces the camera, 1 the middle of the screen
    neutral_rad: NDArray  # (3,) usual pitch, yaw, roll relative to the neutral pose
    aside_mm: NDArray  # (2,) usual offset of the head from the camera's axis


def _draw(rng: np.random.Generator, person: SyntheticPerson, setting: Setting, habits: _Habits, count: int) -> Scene:
    screen = rng.integers(len(setting.screens), size=count)
    units = np.zeros((count, 2))
    target, middle = np.zeros((count, 3)), np.zeros((count, 3))
    for index, seen in enumerate(setting.screens):
        rows = np.flatnonzero(screen == index)
        units[rows] = seen.sample_targets(rng, len(rows))
        target[rows] = seen.target_mm(units[rows])
        middle[rows] = seen.middle_mm
    distance = setting.distance_mm * rng.normal(1.0, 0.05, count)
    place = 0.3 * middle[:, :2] + habits.aside_mm + rng.normal(0.0, 0.05 * setting.distance_mm, (count, 2))
    origin = np.column_stack([place, distance])
    rotation = _draw_rotation(rng, habits, origin, middle, target)
    farther = ANNOTATED_FARTHER * MODEL_OUTER_HALF_MM / person.outer_half_mm
    # The eyes fixate a point near the dot, in the plane of a screen that is not exactly at its annotated position.
    reach_mm = np.linalg.norm(target - origin, axis=1, keepdims=True)
    around = np.tan(np.radians(person.fixation_deg)) * reach_mm * rng.normal(size=(count, 2))
    in_plane = np.stack([seen.rotation[:, :2] for seen in setting.screens])[screen]
    true_target = target + np.einsum("nij,nj->ni", in_plane, person.screen_shift_mm + around)
    return Scene(
        screen=screen,
        target_units=units,
        target_mm=target,
        true_target_mm=true_target,
        rotation=rotation,
        origin_mm=origin,
        annotated_rotation=rotation_from_pitchyaw(person.head_bias_rad * [-1, 1]) @ rotation,
        annotated_origin_mm=farther * (origin + person.head_below_mm * rotation[:, :, 1]),
        optical_in_head=optical_axes(person, rotation, origin, true_target),
        aperture=np.clip(rng.normal(0.97, 0.12, count), 0.6, 1.25),
    )


def _draw_rotation(
    rng: np.random.Generator, habits: _Habits, origin: NDArray, middle: NDArray, target: NDArray
) -> NDArray:
    """Sample head -> camera rotations; the head's -z axis points in the direction of the nose."""
    neutral = pitchyaw_from_vector(origin - habits.toward_screen * middle)
    facing = neutral + habits.follow * (pitchyaw_from_vector(origin - target) - neutral)
    pitch, yaw, roll = (habits.neutral_rad + np.radians(rng.normal(0.0, [5.0, 6.5, 3.5], (len(origin), 3)))).T
    turned = rotation_from_pitchyaw(np.column_stack([-(facing[:, 0] + pitch), facing[:, 1] + yaw]))
    zero, one = np.zeros_like(roll), np.ones_like(roll)
    rows = [np.cos(roll), -np.sin(roll), zero, np.sin(roll), np.cos(roll), zero, zero, zero, one]
    return turned @ np.stack(rows, axis=-1).reshape(-1, 3, 3)


def optical_axes(person: SyntheticPerson, rotation: NDArray, origin: NDArray, target: NDArray) -> NDArray:
    """Compute the optical axes of eyes whose visual axes meet at a target: (N, 2, 3) unit vectors in the head frame."""
    in_head = np.einsum("nji,nj->ni", rotation, target - origin)
    centres, spectacles = person.eye_centres_mm, person.spectacles
    looked_at = spectacles.apparent_target(centres, in_head) if spectacles else in_head[:, None]
    visual = pitchyaw_from_vector(centres - looked_at)
    return -vector_from_pitchyaw(visual - person.kappa_rad)


def _plausible(scene: Scene, setting: Setting) -> NDArray:
    """Return, for each of N frames, whether the eyes are within their range of motion and the strip is in the frame."""
    turn = np.degrees(pitchyaw_from_vector(-scene.optical_in_head))
    low, high = np.transpose(_EYE_LIMITS_DEG)
    good = np.all((turn > low) & (turn < high), axis=(1, 2))
    signs = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    corners = np.column_stack([signs * _STRIP_HALF_MM, np.zeros(4)])
    points = corners @ np.swapaxes(scene.rotation, 1, 2) + scene.origin_mm[:, None]  # (N, 4, 3)
    for index, screen in enumerate(setting.screens):
        rows = np.flatnonzero(scene.screen == index)
        if len(rows):
            pixels = screen.camera.project(points[rows])
            limit = np.array([screen.camera.width_px, screen.camera.height_px]) - 5
            good[rows] &= np.all((pixels > 4) & (pixels < limit), axis=(1, 2))
    return good
