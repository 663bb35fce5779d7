"""Rendered features are where the annotated camera and ground truth place them, and have the grey levels of eyes."""

import dataclasses
import time
from pathlib import Path

import cv2
import numpy as np
import pytest
from one_frame import normalize_pose, warp_fused

from faze.base.geometry import vector_from_pitchyaw
from faze.config.parameters import NormalizedCamera, Synthetic
from faze.config.yaml_files import read_yaml
from faze.data.normalization.pose import INNER_EYE_CORNERS_14_MM
from faze.data.synthetic.eyes import margins, open_lids
from faze.data.synthetic.layouts import PersonFrames, head_pose, landmarks_px, truth
from faze.data.synthetic.people import Role, render_frames, sample_frames
from faze.data.synthetic.render import Renderer
from faze.data.synthetic.surface import build_face

VALUES = read_yaml(Path(__file__).parents[2] / "config" / "config.yaml")["synthetic"]
DEFAULT = Synthetic(**VALUES | {"gazecapture_train_frames": None})
TINY = dataclasses.replace(DEFAULT, people="simple", frames_per_person=6)
ROLES = [Role("mpiifacegaze", "test", 1), Role("gazecapture", "test", 3)]
STRIP = NormalizedCamera(focal_length_px=1300.0, distance_mm=600.0, width_px=256, height_px=64)


@pytest.fixture(params=ROLES, ids=lambda role: role.layout)
def role(request: pytest.FixtureRequest) -> Role:
    return request.param


def with_person(frames: PersonFrames, **changes: object) -> PersonFrames:
    return dataclasses.replace(frames, person=dataclasses.replace(frames.person, **changes))


def wide_awake(frames: PersonFrames) -> PersonFrames:
    """Open the lids so wide that the whole iris is visible."""
    lids = dataclasses.replace(frames.person.lids[0], upper_mm=9.0, lower_mm=9.0, follow=(1.0, 1.0), lashes=0.0)
    return with_person(frames, lids=(lids, lids))


def render(role: Role, frames: PersonFrames) -> list[np.ndarray]:
    return list(render_frames(role, frames, TINY.seed))


def iris_centres_px(frames: PersonFrames) -> np.ndarray:
    """Return the pixel positions (N, 2, 2) of iris centres, from the ground truth and annotated camera alone."""
    known = truth(frames)
    depth = np.sqrt(frames.person.eyeball_mm**2 - frames.person.iris_mm**2)
    points = known["eye_centres_mm"] + depth * known["optical_axes"]
    return np.stack([c.project(p) for c, p in zip(frames.cameras, points, strict=True)])


def test_irises_lie_where_optics_puts_them(role: Role) -> None:
    frames = wide_awake(sample_frames(role, TINY))
    dark = render(role, with_person(frames, iris=np.array([0.05, 0.05, 0.05])))
    light = render(role, with_person(frames, iris=np.array([0.9, 0.9, 0.9])))
    expected = iris_centres_px(frames)
    for row in range(len(dark)):
        change = np.abs(light[row].astype(int) - dark[row]).sum(axis=-1)
        for eye in range(2):
            x, y = np.round(expected[row, eye]).astype(int)
            window = change[y - 16 : y + 17, x - 16 : x + 17].astype(float)
            at_y, at_x = np.mgrid[y - 16 : y + 17, x - 16 : x + 17]
            found = np.array([(window * at_x).sum(), (window * at_y).sum()]) / window.sum()
            # The lid's shadow dims the upper half a little, so the middle of brightness is not quite that of the disc.
            np.testing.assert_allclose(found, expected[row, eye], atol=0.8)


def test_pupil_is_the_dark_middle_of_the_iris(role: Role) -> None:
    frames = wide_awake(sample_frames(role, TINY))
    frames = with_person(frames, iris=np.array([0.6, 0.7, 0.8]), pupil_mm=2.4)
    for image, centres in zip(render(role, frames), iris_centres_px(frames), strict=True):
        grey = cv2.GaussianBlur(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), (0, 0), 1.0).astype(int)
        for x, y in centres:
            ring = [grey[round(y + 9 * np.sin(a)), round(x + 9 * np.cos(a))] for a in np.linspace(0, 6, 12)]
            middle = grey[round(y) - 2 : round(y) + 3, round(x) - 2 : round(x) + 3]
            assert middle.min() < 0.6 * np.median(ring)


def test_lids_follow_the_gaze() -> None:
    """Looking down lowers the margin of the upper lid by most of the iris's movement, and narrows the opening."""
    person = sample_frames(ROLES[0], TINY).person
    centre = person.eye_centres_mm[1]
    y, x = np.mgrid[-14:14:0.1, -14:14:0.1].astype(np.float32)
    middles, heights = [], []
    for pitch in np.radians([-20.0, 0.0, 15.0]):
        optical = -vector_from_pitchyaw(np.array([pitch, 0.0]))
        at = margins(person, 1, optical, aperture=1.0)
        opening = open_lids(at, x + np.float32(centre[0]), y + np.float32(centre[1]))
        inside = np.minimum(opening.upper, opening.lower) > 0
        column = y[inside[:, 140], 140]
        middles.append(column.min())
        heights.append(np.ptp(column))
    travel = person.eyeball_mm * np.sin(np.radians(20.0))
    assert 0.6 * travel < middles[0] - middles[1] < travel
    assert heights[0] < heights[1] < heights[2]
    assert heights[0] > 3.0, "the eye does not close"


def test_rendering_depends_on_nothing_but_its_arguments(role: Role) -> None:
    frames = sample_frames(role, TINY)
    first = render(role, frames)
    renderer = Renderer(TINY.seed, role.domain, role.index, frames.person, frames.setting, rooms=3)
    for row in (5, 0, 3):  # in another order
        np.testing.assert_array_equal(renderer.render(frames.scene, row, int(frames.rooms[row])), first[row])
    assert any((a != b).any() for a, b in zip(first, first[1:], strict=False) if a.shape == b.shape)


def strips(role: Role, frames: PersonFrames) -> np.ndarray:
    poses = head_pose(frames.scene, INNER_EYE_CORNERS_14_MM)
    found = []
    for image, camera, head, target in zip(
        render(role, frames), frames.cameras, poses, frames.scene.target_mm, strict=True
    ):
        pose = normalize_pose(head[:3], head[3:], INNER_EYE_CORNERS_14_MM, target)
        bgr = np.ascontiguousarray(image[..., ::-1])
        found.append(warp_fused(bgr, camera.matrix, camera.distortion, pose, STRIP))
    return np.stack(found)


def test_strips_show_both_eyes(role: Role) -> None:
    frames = sample_frames(role, TINY)
    light = strips(role, with_person(frames, sclera=np.ones(3), iris=np.ones(3))).astype(int)
    dark = strips(role, with_person(frames, sclera=np.zeros(3), iris=np.zeros(3)))
    eyes = np.abs(light - dark).sum(axis=-1) > 60  # (N, 64, 256)
    for strip in eyes:
        columns = np.flatnonzero(strip.any(axis=0))
        left, right = strip[:, :128].sum(), strip[:, 128:].sum()
        assert min(left, right) > 300, "an eyeball covers some hundred pixels of the strip"
        assert columns.min() > 4 and columns.max() < 251, "and lies within it"
        assert not strip[:, 112:144].any(), "the bridge of the nose is between"


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


def test_the_face_passes_through_the_annotated_corners(role: Role) -> None:
    """Rays from any side to the eye corners meet the face at the corners."""
    person = sample_frames(role, TINY).person
    face = build_face(np.random.default_rng(0), person)
    for side in (-0.4, 0.0, 0.4):
        viewpoint = 500.0 * np.array([np.sin(side), -0.1, -np.cos(side)])
        hit = face.hit(viewpoint, (person.corners_mm - viewpoint).astype(np.float32)[None])
        found = np.column_stack([hit.x[0], hit.y[0]])
        # Of 120 people 90 % are within 0.75 mm; a nose that hides the farther corner from one side may be met first.
        np.testing.assert_allclose(found, person.corners_mm[:, :2], atol=1.0)
        assert hit.inside.all()


def test_speed(role: Role, capsys: pytest.CaptureFixture[str]) -> None:
    """The speed is only printed, since machines differ too much for an assertion."""
    frames = sample_frames(role, dataclasses.replace(TINY, frames_per_person=24))
    renderer = Renderer(TINY.seed, role.domain, role.index, frames.person, frames.setting, rooms=3)
    began = time.process_time()
    for row, room in enumerate(frames.rooms.tolist()):
        assert cv2.imencode(".jpg", renderer.render(frames.scene, row, room))[0]
    with capsys.disabled():
        print(f"\n{role.layout}: {24 / (time.process_time() - began):.0f} frames per second of one core")
