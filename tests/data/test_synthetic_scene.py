"""Scenes are consistent in three dimensions: eyes aim at targets, the annotation has a bias, and cameras turn."""

import dataclasses

import numpy as np
import pytest
from truth import annotated_labels

from faze.base.geometry import angular_error, pitchyaw_from_vector, vector_from_pitchyaw
from faze.config.validation import read_config
from faze.data.synthetic.layouts import PersonFrames
from faze.data.synthetic.people import Role, cast, sample_frames
from faze.data.synthetic.person import ANATOMY, sample_person
from faze.data.synthetic.scene import optical_axes
from faze.data.synthetic.setting import sample_camera

DEFAULT = read_config().synthetic
FEW = DEFAULT.model_copy(update={"frames_per_person": 40, "phone_train_frames": None})
ROLES = [Role("mpiifacegaze", "test", 0), Role("gazecapture", "train", 1), Role("gazecapture", "val", 0)]


@pytest.fixture(params=ROLES, ids=lambda role: f"{role.layout}-{role.split}")
def frames(request: pytest.FixtureRequest) -> PersonFrames:
    return sample_frames(request.param, FEW)


def test_visual_axes_meet_in_the_apparent_target(frames: PersonFrames) -> None:
    """Without spectacles, this is the true target."""
    person, scene = frames.person, frames.scene
    visual = -vector_from_pitchyaw(pitchyaw_from_vector(-scene.optical_in_head) + person.kappa_rad)
    target = np.einsum("nji,nj->ni", scene.rotation, scene.true_target_mm - scene.origin_mm)
    aimed = person.spectacles.apparent_target(person.eye_centres_mm, target) if person.spectacles else target[:, None]
    assert angular_error(visual, aimed - person.eye_centres_mm).max() < 1e-9


def test_annotated_head_deviates_by_the_bias_alone(frames: PersonFrames) -> None:
    scene = frames.scene
    turn = scene.annotated_rotation @ np.swapaxes(scene.rotation, 1, 2)
    facing = turn @ np.array([0.0, 0.0, -1.0])
    np.testing.assert_allclose(pitchyaw_from_vector(-facing), np.tile(frames.person.head_bias_rad, (40, 1)), atol=1e-9)
    scale = 1.04 * 45.6 / frames.person.outer_half_mm  # and is farther away, and lower
    in_head = np.einsum("nji,nj->ni", scene.rotation, scene.annotated_origin_mm / scale - scene.origin_mm)
    np.testing.assert_allclose(in_head, np.tile([0.0, frames.person.head_below_mm, 0.0], (40, 1)), atol=1e-9)


def test_kappa_turns_the_visual_axis_toward_the_nose_and_up() -> None:
    person = sample_person(np.random.default_rng(0))
    person = dataclasses.replace(person, kappa_rad=np.radians([[1.5, -5.0], [1.5, 5.0]]), spectacles=None)
    optical = optical_axes(person, np.eye(3)[None], np.array([[0.0, 0.0, 500.0]]), np.array([[0.0, 0.0, -1e6]]))[0]
    assert optical[0, 0] < 0 < optical[1, 0], "with both eyes on a far target the optical axes point outward"
    assert (optical[:, 1] > 0).all(), "and down"
    np.testing.assert_allclose(np.degrees(np.arcsin(np.abs(optical[:, :2]))), [[5.0, 1.5]] * 2, atol=0.1)


@pytest.mark.parametrize("quarters", [1, 2, 3])
def test_turned_camera_sees_the_turned_image(quarters: int) -> None:
    camera = turned = sample_camera(np.random.default_rng(0), 640, 480, (545.0, 600.0))
    points = np.random.default_rng(1).uniform([-150, -110, 300], [150, 110, 400], (20, 3))
    pixels = camera.project(points)
    for _ in range(quarters):  # clockwise: what was at the bottom comes to the left
        pixels = np.column_stack([turned.height_px - 1 - pixels[:, 1], pixels[:, 0]])
        points = points[:, [1, 0, 2]] * [-1, 1, 1]
        turned = turned.turned()
    np.testing.assert_allclose(turned.project(points), pixels, atol=1e-9)


def test_people_depend_on_seed_and_role_alone() -> None:
    more = FEW.model_copy(update={"phone_train_people": 99, "laptop_people": 3, "phone_train_frames": 3})
    for role in ROLES:
        first, again = sample_frames(role, FEW), sample_frames(role, more)
        assert first.person.outer_half_mm == again.person.outer_half_mm
        if role.split == "train":
            assert len(again.file_names) == len(again.scene) == 3
        else:
            np.testing.assert_array_equal(first.scene.target_mm, again.scene.target_mm)
            np.testing.assert_array_equal(first.scene.rotation, again.scene.rotation)
            assert first.file_names == again.file_names and len(again.scene) == 40
    cases = [(role, seed) for role in cast(DEFAULT) for seed in (0, 1)]
    drawn = [sample_person(role.random(seed, ANATOMY)).outer_half_mm for role, seed in cases]
    assert len(set(drawn)) == len(cases)


def test_gaze_cannot_be_told_from_the_head() -> None:
    """People are unique, and a linear function of the head pose, fitted to each, errs by more than nine degrees."""
    errors: dict[str, list[float]] = {"mpiifacegaze": [], "gazecapture": []}
    roles = cast(DEFAULT)
    everybody = [sample_frames(role, FEW.model_copy(update={"frames_per_person": 60})) for role in roles]
    for frames in everybody:
        labels = annotated_labels(frames)
        known = np.column_stack([np.ones(len(labels)), labels[:, 2:]])
        blind = known @ np.linalg.lstsq(known, labels[:, :2], rcond=None)[0]
        error = angular_error(vector_from_pitchyaw(blind), vector_from_pitchyaw(labels[:, :2]))
        errors[frames.role.layout].append(error.mean())
    assert all(np.degrees(np.mean(of_layout)) > 9.0 for of_layout in errors.values())
    assert len({role.person_id for role in roles}) == len({frames.person.outer_half_mm for frames in everybody}) == 312
