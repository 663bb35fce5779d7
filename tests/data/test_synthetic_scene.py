"""Scenes are consistent in three dimensions: eyes aim at targets, and the annotation of simple people has a bias."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from one_frame import normalize_pose

from faze.base.errors import UserError
from faze.base.geometry import angular_error, pitchyaw_from_vector, vector_from_pitchyaw
from faze.config.parameters import Synthetic
from faze.config.yaml_files import read_yaml
from faze.data.normalization.pose import INNER_EYE_CORNERS_6_MM, INNER_EYE_CORNERS_14_MM
from faze.data.synthetic.layouts import PersonFrames, head_pose, landmarks_px, supplementary, truth
from faze.data.synthetic.people import Role, cast, sample_frames
from faze.data.synthetic.person import sample_person
from faze.data.synthetic.scene import optical_axes

VALUES = read_yaml(Path(__file__).parents[2] / "config" / "config.yaml")["synthetic"]
DEFAULT = Synthetic(**VALUES | {"gazecapture_train_frames": None})
TINY = dataclasses.replace(DEFAULT, people="simple", frames_per_person=40)
ROLES = [Role("mpiifacegaze", "test", 0), Role("gazecapture", "train", 1), Role("gazecapture", "val", 0)]


@pytest.fixture(params=ROLES, ids=lambda role: role.domain)
def frames(request: pytest.FixtureRequest) -> PersonFrames:
    return sample_frames(request.param, TINY)


def annotated_labels(frames: PersonFrames) -> np.ndarray:
    """Return (N, 4) labels as preprocessing computes them from the annotation."""
    poses = head_pose(frames.scene, INNER_EYE_CORNERS_14_MM)
    return np.stack(
        [
            normalize_pose(pose[:3], pose[3:], INNER_EYE_CORNERS_14_MM, target).labels
            for pose, target in zip(poses, frames.scene.target_mm, strict=True)
        ]
    )


def test_visual_axes_meet_in_the_true_target(frames: PersonFrames) -> None:
    person, scene = frames.person, frames.scene
    visual_in_head = -vector_from_pitchyaw(pitchyaw_from_vector(-scene.optical_in_head) + person.kappa_rad)
    visual = np.einsum("nij,nej->nei", scene.rotation, visual_in_head)
    to_target = scene.true_target_mm[:, None] - scene.eye_centres_mm(person)
    assert angular_error(visual, to_target).max() < 1e-9


def test_annotated_gaze_deviates_by_the_bias_alone(frames: PersonFrames) -> None:
    scene, bias = frames.scene, frames.person.gaze_bias_rad
    annotated = scene.target_mm - scene.annotated_origin_mm
    true = scene.true_target_mm - scene.origin_mm
    error = angular_error(annotated, true)
    np.testing.assert_allclose(error.mean(), np.hypot(*bias), rtol=0.1)  # smaller the farther from the axis of turning
    frontal = np.array([0.0, 0.0, -1.0])
    turned = np.linalg.lstsq(
        true / np.linalg.norm(true, axis=1)[:, None], annotated / np.linalg.norm(annotated, axis=1)[:, None], rcond=None
    )[0].T
    np.testing.assert_allclose(turned @ turned.T, np.eye(3), atol=1e-9)  # one rotation for all frames
    np.testing.assert_allclose(pitchyaw_from_vector(-turned @ frontal), bias, atol=1e-9)


def test_annotated_head_deviates_by_the_bias_alone(frames: PersonFrames) -> None:
    scene = frames.scene
    turn = scene.annotated_rotation @ np.swapaxes(scene.rotation, 1, 2)
    facing = turn @ np.array([0.0, 0.0, -1.0])
    np.testing.assert_allclose(pitchyaw_from_vector(-facing), np.tile(frames.person.head_bias_rad, (40, 1)), atol=1e-9)


def test_labels_deviate_from_the_truth_by_the_bias(frames: PersonFrames) -> None:
    labels, true = annotated_labels(frames), truth(frames)["labels"]
    for columns, bias in ((slice(0, 2), frames.person.gaze_bias_rad), (slice(2, 4), frames.person.head_bias_rad)):
        error = angular_error(vector_from_pitchyaw(labels[:, columns]), vector_from_pitchyaw(true[:, columns]))
        assert np.all(error <= np.hypot(*bias) * 1.001)
        np.testing.assert_allclose(error.mean(), np.hypot(*bias), rtol=0.12)


def test_without_bias_annotation_and_truth_agree() -> None:
    frames = sample_frames(ROLES[1], dataclasses.replace(TINY, bias_deg=0.0))
    np.testing.assert_allclose(annotated_labels(frames), truth(frames)["labels"], atol=1e-9)


def test_label_is_what_geometry_gives(frames: PersonFrames) -> None:
    """The expected label is computed independently, with a camera that is rotated towards the origin."""
    scene = frames.scene
    origin, target, head_x = scene.annotated_origin_mm, scene.target_mm, scene.annotated_rotation[:, :, 0]
    forward = origin / np.linalg.norm(origin, axis=1, keepdims=True)
    right = head_x - np.sum(head_x * forward, axis=1, keepdims=True) * forward
    right /= np.linalg.norm(right, axis=1, keepdims=True)
    gaze = (target - origin) / np.linalg.norm(target - origin, axis=1, keepdims=True)
    across, along = np.sum(gaze * right, axis=1), np.sum(gaze * forward, axis=1)
    down = np.sum(gaze * np.cross(forward, right), axis=1)
    expected = np.column_stack([np.arcsin(-down), np.arctan2(-across, -along)])
    np.testing.assert_allclose(annotated_labels(frames)[:, :2], expected, atol=1e-9)


def test_both_face_models_give_the_same_gaze_origin(frames: PersonFrames) -> None:
    origins = []
    for corners in (INNER_EYE_CORNERS_6_MM, INNER_EYE_CORNERS_14_MM):
        pose = head_pose(frames.scene, corners)
        origins.append(frames.scene.annotated_rotation @ corners.mean(axis=0) + pose[:, 3:])
    np.testing.assert_allclose(origins[0], origins[1], atol=1e-9)


def test_annotated_origin_lies_between_the_seen_inner_corners(frames: PersonFrames) -> None:
    inner = landmarks_px(frames)[:, 1:3].mean(axis=1)
    annotated = np.stack([c.project(o) for c, o in zip(frames.cameras, frames.scene.annotated_origin_mm, strict=True)])
    assert np.abs(inner - annotated).max() < 1.0


def test_kappa_is_sampled_as_configured() -> None:
    people = [sample_person(np.random.default_rng(k), kappa_spread_deg=2.0, bias_deg=1.5) for k in range(800)]
    kappa = np.degrees([person.kappa_rad for person in people])  # (800, eye, pitch yaw)
    nasal = kappa[:, :, 1] * [-1, 1]
    for angle, mean in ((nasal, 5.0), (kappa[:, :, 0], 1.5)):
        assert abs(angle.mean() - mean) < 0.2
        assert abs(angle.std() - 2.0) < 0.15
    bias = np.degrees([[person.gaze_bias_rad, person.head_bias_rad] for person in people])
    assert abs(bias.mean()) < 0.1
    assert abs(bias.std() - 1.5) < 0.1
    flat = np.stack([nasal[:, 0], nasal[:, 1], bias[:, 0, 0], bias[:, 1, 0]])
    assert np.abs(np.corrcoef(flat) - np.eye(4)).max() < 0.12, "eyes and biases are drawn independently"


def test_kappa_turns_the_visual_axis_toward_the_nose_and_up() -> None:
    person = sample_person(np.random.default_rng(0), kappa_spread_deg=0.0, bias_deg=0.0)
    optical = optical_axes(person, np.eye(3)[None], np.array([[0.0, 0.0, 500.0]]), np.array([[0.0, 0.0, -1e6]]))[0]
    assert optical[0, 0] < 0 < optical[1, 0], "with both eyes on a far target the optical axes point outward"
    assert (optical[:, 1] > 0).all(), "and down"
    np.testing.assert_allclose(np.degrees(np.arcsin(np.abs(optical[:, 0]))), 5.0, atol=0.1)
    np.testing.assert_allclose(np.degrees(np.arcsin(optical[:, 1])), 1.5, atol=0.1)


def test_people_who_cannot_look_at_the_screen_are_told_with_the_key() -> None:
    """Regression: an assertion failed, without naming a parameter that the user could change."""
    squinting = dataclasses.replace(TINY, people="simple", kappa_spread_deg=60.0)
    with pytest.raises(UserError, match=r"lower synthetic\.kappa_spread_deg or synthetic\.bias_deg"):
        for role in cast(squinting):
            sample_frames(role, squinting)


def test_people_depend_on_seed_domain_and_index_alone() -> None:
    more = dataclasses.replace(TINY, gazecapture_train_people=99, mpiigaze_people=3, jpeg_quality=50)
    for role in ROLES:
        first, again = sample_frames(role, TINY), sample_frames(role, more)
        np.testing.assert_array_equal(first.scene.target_mm, again.scene.target_mm)
        np.testing.assert_array_equal(first.scene.rotation, again.scene.rotation)
        assert first.file_names == again.file_names
    everybody = [sample_frames(role, dataclasses.replace(TINY, frames_per_person=2)) for role in cast(TINY)]
    assert len({frames.person.outer_half_mm for frames in everybody}) == len(everybody)
    assert len({frames.scene.origin_mm[0, 0] for frames in everybody}) == len(everybody)
    other = sample_frames(ROLES[0], dataclasses.replace(TINY, seed=1))
    assert other.person.outer_half_mm != everybody[0].person.outer_half_mm


def test_train_people_alone_have_their_own_number_of_frames() -> None:
    """Fails if val people have that number of frames, too."""
    few = dataclasses.replace(TINY, gazecapture_train_frames=3)
    for role in ROLES:
        frames = sample_frames(role, few)
        assert len(frames.file_names) == len(frames.scene) == (3 if role.split == "train" else 40)
    assert {role.split for role in ROLES} >= {"train", "val"}


def test_person_ids_are_unique_and_stable() -> None:
    roles = list(cast(DEFAULT))
    assert len({role.person_id for role in roles}) == len(roles) == 30 + 240 + 12 + 30
    fewer = {role.person_id for role in cast(dataclasses.replace(DEFAULT, gazecapture_train_people=1))}
    assert fewer < {role.person_id for role in roles}


@pytest.mark.parametrize("people", ["simple", "measured"])
@pytest.mark.parametrize("layout", ["mpiifacegaze", "gazecapture"])
def test_gaze_cannot_be_told_from_the_head(layout: str, people: str) -> None:
    """A linear function of the head pose, fitted to each person, errs by nine or ten degrees."""
    errors = []
    for role in cast(DEFAULT):
        if role.layout == layout:
            frames = sample_frames(role, dataclasses.replace(DEFAULT, people=people, frames_per_person=60))
            labels = annotated_labels(frames)
            known = np.column_stack([np.ones(len(labels)), labels[:, 2:]])
            blind = known @ np.linalg.lstsq(known, labels[:, :2], rcond=None)[0]
            errors.append(angular_error(vector_from_pitchyaw(blind), vector_from_pitchyaw(labels[:, :2])).mean())
    print(f"{layout}: pixel-blind error {np.degrees(np.mean(errors)):.2f} deg")
    assert np.degrees(np.mean(errors)) > {"simple": 9.5, "measured": 9.0}[people]  # measured ones sit farther away


def test_supplementary_follows_the_camera_of_each_frame() -> None:
    frames = sample_frames(ROLES[1], TINY)
    annotation = supplementary(frames)
    assert len(np.unique(annotation.camera_parameters, axis=0)) > 1, "a turned device has other parameters"
    for row, camera in enumerate(frames.cameras):
        np.testing.assert_array_equal(annotation.camera_parameters[row], [*camera.focal_px, *camera.principal_px])
        np.testing.assert_array_equal(annotation.distortion_parameters[row], camera.distortion)
