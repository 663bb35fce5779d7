"""Rendered features are where the annotated camera and the ground truth place them; frames are the stored ones."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest

from faze.config.validation import read_config
from faze.data.synthetic.layouts import PersonFrames, project_head_points, truth
from faze.data.synthetic.people import Role, render_frames, sample_frames
from faze.data.synthetic.render import Renderer
from faze.native import compiled

TINY = read_config().synthetic.model_copy(update={"frames_per_person": 6, "phone_train_frames": None})
LAPTOP, PHONE = Role("mpiifacegaze", "test", 1), Role("gazecapture", "test", 3)
SEVERAL = [
    LAPTOP,
    PHONE,
    Role("mpiifacegaze", "test", 4),
    Role("gazecapture", "train", 2),
    Role("gazecapture", "val", 5),
]


def with_person(frames: PersonFrames, **changes: object) -> PersonFrames:
    return dataclasses.replace(frames, person=dataclasses.replace(frames.person, **changes))


def wide_awake(role: Role) -> PersonFrames:
    """Draw a person whose lids are so wide open that the whole iris is visible."""
    lids = {"upper_lids_mm": np.full(2, 17.0), "lower_lids_mm": np.full(2, 10.0), "lashes": 0.0}
    return with_person(sample_frames(role, TINY), **lids, upper_lid_follow=1.0, lower_lid_follow=1.0)


def render(frames: PersonFrames) -> Iterator[np.ndarray]:
    return (image.astype(np.float32) for image in render_frames(frames, TINY.seed))


def project_irises(frames: PersonFrames) -> np.ndarray:
    """Project the edges of irises, (N, 2, 128, 2) px, by the truth and OpenCV's model of the annotated camera."""
    known, person = truth(frames), frames.person
    angles = np.linspace(0, 2 * np.pi, 128, endpoint=False)
    axes = known["optical_axes"]  # (N, 2, 3)
    right = np.cross(axes, [0.0, 1.0, 0.0])
    right /= np.linalg.norm(right, axis=-1, keepdims=True)
    down = np.cross(axes, right)
    circle = np.cos(angles)[:, None] * right[..., None, :] + np.sin(angles)[:, None] * down[..., None, :]
    depth = np.sqrt(person.eyeball_mm**2 - person.iris_mm**2)
    points = (known["eye_centres_mm"] + depth * axes)[..., None, :] + person.iris_mm * circle
    return np.stack([camera.project(p) for camera, p in zip(frames.cameras, points, strict=True)])


@pytest.mark.parametrize("role", SEVERAL, ids=lambda role: f"{role.layout}-{role.person_id}")
def test_irises_are_where_the_annotated_camera_sees_them(role: Role) -> None:
    """The iris is where a change of its colour changes the frame; its centroid is right to 0.1 px in every frame."""
    frames = wide_awake(role)
    still = dataclasses.replace(frames.setting, moved=0.0)
    frames = dataclasses.replace(with_person(frames, pupil_mm=0.1, spectacles=None), setting=still)
    dark, light = (render(with_person(frames, iris=np.full(3, tone))) for tone in (0.05, 0.6))
    for a, b, edges in zip(dark, light, project_irises(frames), strict=True):
        for edge in edges:
            left, top = np.floor(edge.min(axis=0)).astype(int) - 6
            right, bottom = np.ceil(edge.max(axis=0)).astype(int) + 7
            change = (b - a)[top:bottom, left:right].sum(axis=-1)
            found = centroid(np.clip(change / (0.3 * np.percentile(change, 90)), 0, 1)) + [left, top]
            area = cv2.moments((edge - [left, top]).astype(np.float32)[:, None])
            expected = np.array([area["m10"], area["m01"]]) / area["m00"] + [left, top]
            np.testing.assert_allclose(found, expected, rtol=0, atol=0.1)


def centroid(weights: np.ndarray) -> np.ndarray:
    moments = cv2.moments(weights)
    return np.array([moments["m10"], moments["m01"]]) / moments["m00"]


@pytest.mark.parametrize("role", [LAPTOP, PHONE], ids=lambda role: role.layout)
def test_landmarks_lie_on_the_lids_corners(role: Role) -> None:
    """The opening of an eye is between its annotated corners, and no part of it is outside."""
    frames = wide_awake(role)
    dark, light = (render(with_person(frames, sclera=np.full(3, c), iris=np.full(3, c))) for c in (0.0, 1.0))
    for a, b, corners in zip(dark, light, project_head_points(frames, frames.person.corners_mm), strict=True):
        y, x = np.nonzero((b - a).sum(axis=-1) > 60)
        for outer, inner in ((0, 1), (3, 2)):
            axis = corners[outer] - corners[inner]
            length = np.hypot(*axis)
            along = ((np.column_stack([x, y]) - corners[inner]) @ axis) / length
            along = along[np.abs(along - length / 2) < length]
            assert -3.0 < along.min() < 8.0
            assert -8.0 < along.max() - length < 3.0


@pytest.mark.parametrize("role", [LAPTOP, PHONE], ids=lambda role: role.layout)
def test_a_frame_does_not_depend_on_the_frames_rendered_before_it(role: Role) -> None:
    frames = sample_frames(role, TINY)
    in_order = list(render_frames(frames, TINY.seed))
    renderer = Renderer(frames, TINY.seed)
    for row in (5, 0, 3):
        np.testing.assert_array_equal(renderer.render(row), in_order[row])


@pytest.mark.parametrize("level", compiled.LEVELS)
def test_frames_are_the_stored_ones_whatever_the_processor(level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Levels of the architecture round differently, by at most one grey level."""
    below = {number: flags for number, flags in compiled.LEVELS.items() if number <= level}
    monkeypatch.setattr(compiled, "LEVELS", below)
    compiled.library.cache_clear()
    with np.load(Path(__file__).parents[1] / "golden/rendered_people.npz") as stored:
        for name, picture in stored.items():
            layout, split, index, part = name.split("_")
            frames = sample_frames(Role(layout, split, int(index)), TINY)
            image = next(render_frames(frames, TINY.seed))
            x, y = np.round(frames.cameras[0].project(frames.scene.origin_mm[0])).astype(int)
            eyes = image[y - 32 : y + 32, x - 80 : x + 80]
            found = eyes if part == "eyes" else cv2.resize(image, None, fx=0.2, fy=0.2, interpolation=cv2.INTER_AREA)
            apart = np.abs(found.astype(int) - picture)
            assert apart.max() <= 1 and (apart > 0).mean() < 0.01, name
    compiled.library.cache_clear()
