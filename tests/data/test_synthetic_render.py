"""Rendered features are where the annotated camera and ground truth place them, and have the grey levels of eyes."""

import dataclasses
from pathlib import Path

import cv2
import numpy as np
import pytest

from faze.config.parameters import Synthetic
from faze.config.validation import read_yaml
from faze.data.synthetic.layouts import PersonFrames, landmarks_px, truth
from faze.data.synthetic.people import Role, render_frames, sample_frames
from faze.data.synthetic.render import Renderer

VALUES = read_yaml(Path(__file__).parents[2] / "config" / "config.yaml")["synthetic"]
DEFAULT = Synthetic(**VALUES | {"gazecapture_train_frames": None})
TINY = DEFAULT.model_copy(update={"frames_per_person": 6})
ROLES = [Role("mpiifacegaze", "test", 1), Role("gazecapture", "test", 3)]


@pytest.fixture(params=ROLES, ids=lambda role: role.layout)
def role(request: pytest.FixtureRequest) -> Role:
    return request.param


def with_person(frames: PersonFrames, **changes: object) -> PersonFrames:
    return dataclasses.replace(frames, person=dataclasses.replace(frames.person, **changes))


def wide_awake(frames: PersonFrames) -> PersonFrames:
    """Open the lids so wide that the whole iris is visible."""
    lids = dataclasses.replace(frames.person.lids[0], upper_mm=13.0, lower_mm=10.0, follow=(1.0, 1.0), lashes=0.0)
    return with_person(frames, lids=(lids, lids))


def render(role: Role, frames: PersonFrames) -> list[np.ndarray]:
    return list(render_frames(role, frames, TINY.seed))


def irises_px(frames: PersonFrames) -> np.ndarray:
    """Return the centres and 64 points of the edges of irises, (N, 2, 65, 2) px, from truth and annotated camera."""
    known, person = truth(frames), frames.person
    angles = np.linspace(0, 2 * np.pi, 64, endpoint=False)
    axes = known["optical_axes"]  # (N, 2, 3)
    right = np.cross(axes, [0.0, 1.0, 0.0])
    right /= np.linalg.norm(right, axis=-1, keepdims=True)
    down = np.cross(axes, right)
    circle = np.cos(angles)[:, None] * right[..., None, :] + np.sin(angles)[:, None] * down[..., None, :]
    circle = np.concatenate([np.zeros_like(circle[..., :1, :]), circle], axis=2) * person.iris_mm
    depth = np.sqrt(person.eyeball_mm**2 - person.iris_mm**2)
    points = (known["eye_centres_mm"] + depth * axes)[..., None, :] + circle
    return np.stack([camera.project(p) for camera, p in zip(frames.cameras, points, strict=True)])


def test_irises_are_where_optics_puts_them(role: Role) -> None:
    """Locate the iris's edge in every direction, where a change of the iris's colour has half of its effect."""
    frames = wide_awake(sample_frames(role, TINY))
    still = dataclasses.replace(frames.setting, picture=dataclasses.replace(frames.setting.picture, moved=0.0))
    frames = dataclasses.replace(with_person(frames, pupil_mm=0.1, spectacles=None), setting=still)
    dark, light = (render(role, with_person(frames, iris=np.full(3, tone))) for tone in (0.05, 0.6))
    off = []
    for a, b, eyes in zip(dark, light, irises_px(frames), strict=True):
        change = (b.astype(np.float32) - a).sum(axis=-1)
        for centre, *edge in eyes:
            shares = np.linspace(0.5, 1.5, 101)
            at = (centre + shares[:, None, None] * (np.array(edge) - centre)).astype(np.float32)
            along = cv2.remap(change, at[..., 0], at[..., 1], cv2.INTER_LINEAR)  # (share, direction)
            ends = shares[np.argmax(along < 0.5 * along[:20].mean(axis=0), axis=0)]
            off.append(((ends - 1)[:, None] * (np.array(edge) - centre)).mean(axis=0) * 2)
    np.testing.assert_allclose(np.mean(off, axis=0), 0, atol=0.1)
    np.testing.assert_allclose(off, 0, atol=0.4)


def test_rendering_depends_on_nothing_but_its_arguments(role: Role) -> None:
    frames = sample_frames(role, TINY)
    first = render(role, frames)
    renderer = Renderer(TINY.seed, role.domain, role.index, frames.person, frames.setting, rooms=3)
    for row in (5, 0, 3):  # in another order
        np.testing.assert_array_equal(renderer.render(frames.scene, row, int(frames.rooms[row])), first[row])
    assert any((a != b).any() for a, b in zip(first, first[1:], strict=False) if a.shape == b.shape)


def test_landmarks_lie_on_the_lids_corners(role: Role) -> None:
    """The opening of an eye is between its annotated corners, and no part of it is outside."""
    frames = wide_awake(sample_frames(role, TINY))
    light = render(role, with_person(frames, sclera=np.ones(3), iris=np.ones(3)))
    dark = render(role, with_person(frames, sclera=np.zeros(3), iris=np.zeros(3)))
    corners = landmarks_px(frames)
    for row, (a, b) in enumerate(zip(light, dark, strict=True)):
        eyes = np.abs(a.astype(int) - b).sum(axis=-1) > 60
        for outer, inner in ((0, 1), (3, 2)):
            axis = corners[row, outer] - corners[row, inner]
            length = np.hypot(*axis)
            y, x = np.nonzero(eyes)
            along = ((np.column_stack([x, y]) - corners[row, inner]) @ axis) / length
            along = along[(along > -length) & (along < 2 * length)]
            along = along[np.abs(along - length / 2) < length]
            assert -3.0 < along.min() < 8.0
            assert -8.0 < along.max() - length < 3.0


# Frames of the first edition: laptop users without and with spectacles, and a phone user with them.
STORED = [Role("mpiifacegaze", "test", 0), Role("mpiifacegaze", "test", 1), Role("gazecapture", "train", 2)]


def around_eyes(role: Role) -> np.ndarray:
    """Cut the eyes out of a person's first frame, (64, 160, 3)."""
    frames = sample_frames(role, TINY)
    x, y = np.round(frames.cameras[0].project(frames.scene.origin_mm[0])).astype(int)
    return next(render_frames(role, frames, TINY.seed))[y - 32 : y + 32, x - 80 : x + 80]


@pytest.mark.parametrize("role", STORED, ids=lambda role: f"{role.domain}_{role.index}")
def test_frames_are_the_stored_ones(role: Role) -> None:
    """Processors round differently, but by no more than one grey level."""
    with np.load(Path(__file__).parents[1] / "golden/rendered_eyes.npz") as stored:
        apart = np.abs(around_eyes(role).astype(int) - stored[f"{role.domain}_{role.index}"])
    assert apart.max() <= 1 and (apart > 0).mean() < 0.01
