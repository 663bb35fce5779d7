"""Scenes are consistent in three dimensions: eyes aim at targets, and the annotation has a bias."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from one_frame import normalize_pose
from truth import annotated_labels

from faze.base.geometry import angular_error, pitchyaw_from_vector, vector_from_pitchyaw
from faze.config.parameters import Synthetic
from faze.config.validation import read_yaml
from faze.data.normalization.pose import INNER_EYE_CORNERS_14_MM
from faze.data.synthetic.layouts import PersonFrames, head_pose
from faze.data.synthetic.people import Role, cast, sample_frames
from faze.data.synthetic.person import sample_person
from faze.data.synthetic.scene import optical_axes

VALUES = read_yaml(Path(__file__).parents[2] / "config" / "config.yaml")["synthetic"]
DEFAULT = Synthetic(**VALUES | {"gazecapture_train_frames": None})
TINY = DEFAULT.model_copy(update={"frames_per_person": 40})
ROLES = [Role("mpiifacegaze", "test", 0), Role("gazecapture", "train", 1), Role("gazecapture", "val", 0)]


@pytest.fixture(params=ROLES, ids=lambda role: role.domain)
def frames(request: pytest.FixtureRequest) -> PersonFrames:
    return sample_frames(request.param, TINY)


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


def test_labels_are_what_geometry_gives(frames: PersonFrames) -> None:
    poses = head_pose(frames.scene, INNER_EYE_CORNERS_14_MM)
    found = [
        normalize_pose(pose[:3], pose[3:], INNER_EYE_CORNERS_14_MM, target).labels
        for pose, target in zip(poses, frames.scene.target_mm, strict=True)
    ]
    np.testing.assert_allclose(found, annotated_labels(frames), atol=1e-6)


def test_kappa_turns_the_visual_axis_toward_the_nose_and_up() -> None:
    person = sample_person(np.random.default_rng(0))
    person = dataclasses.replace(person, kappa_rad=np.radians([[1.5, -5.0], [1.5, 5.0]]), spectacles=None)
    optical = optical_axes(person, np.eye(3)[None], np.array([[0.0, 0.0, 500.0]]), np.array([[0.0, 0.0, -1e6]]))[0]
    assert optical[0, 0] < 0 < optical[1, 0], "with both eyes on a far target the optical axes point outward"
    assert (optical[:, 1] > 0).all(), "and down"
    np.testing.assert_allclose(np.degrees(np.arcsin(np.abs(optical[:, 0]))), 5.0, atol=0.1)
    np.testing.assert_allclose(np.degrees(np.arcsin(optical[:, 1])), 1.5, atol=0.1)


def test_people_depend_on_seed_domain_and_index_alone() -> None:
    more = TINY.model_copy(update={"gazecapture_train_people": 99, "mpiigaze_people": 3})
    for role in ROLES:
        first, again = sample_frames(role, TINY), sample_frames(role, more)
        np.testing.assert_array_equal(first.scene.target_mm, again.scene.target_mm)
        np.testing.assert_array_equal(first.scene.rotation, again.scene.rotation)
        assert first.file_names == again.file_names
    everybody = [sample_frames(role, TINY.model_copy(update={"frames_per_person": 2})) for role in cast(TINY)]
    assert len({frames.person.outer_half_mm for frames in everybody}) == len(everybody)
    assert len({frames.scene.origin_mm[0, 0] for frames in everybody}) == len(everybody)
    other = sample_frames(ROLES[0], TINY.model_copy(update={"seed": 1}))
    assert other.person.outer_half_mm != everybody[0].person.outer_half_mm


def test_train_people_alone_have_their_own_number_of_frames() -> None:
    """Fails if val people have that number of frames, too."""
    few = TINY.model_copy(update={"gazecapture_train_frames": 3})
    for role in ROLES:
        frames = sample_frames(role, few)
        assert len(frames.file_names) == len(frames.scene) == (3 if role.split == "train" else 40)
    assert {role.split for role in ROLES} >= {"train", "val"}


def test_person_ids_are_unique_and_stable() -> None:
    roles = list(cast(DEFAULT))
    assert len({role.person_id for role in roles}) == len(roles) == 30 + 240 + 12 + 30
    fewer = {role.person_id for role in cast(DEFAULT.model_copy(update={"gazecapture_train_people": 1}))}
    assert fewer < {role.person_id for role in roles}


@pytest.mark.parametrize("layout", ["mpiifacegaze", "gazecapture"])
def test_gaze_cannot_be_told_from_the_head(layout: str) -> None:
    """A linear function of the head pose, fitted to each person, errs by more than nine degrees."""
    errors = []
    for role in cast(DEFAULT):
        if role.layout == layout:
            frames = sample_frames(role, DEFAULT.model_copy(update={"frames_per_person": 60}))
            labels = annotated_labels(frames)
            known = np.column_stack([np.ones(len(labels)), labels[:, 2:]])
            blind = known @ np.linalg.lstsq(known, labels[:, :2], rcond=None)[0]
            errors.append(angular_error(vector_from_pitchyaw(blind), vector_from_pitchyaw(labels[:, :2])).mean())
    assert np.degrees(np.mean(errors)) > 9.0
