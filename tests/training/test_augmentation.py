"""Augmentation: the geometry of labels follows that of pixels; draws depend only on seed and step."""

from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch
from trajectory import made_up_people

from faze.base.geometry import pitchyaw_from_vector, vector_from_pitchyaw
from faze.config.parameters import Augment, Model, NormalizedCamera
from faze.data.network_input import shrink
from faze.data.normalization.pose import NormalizedPose, normalize_poses
from faze.data.normalization.warp import make_strip
from faze.data.pairs import Batch, PairIndices, People
from faze.training.augmentation import (
    VirtualCamera,
    build_augmentation,
    mirror,
    recolor,
    turn_camera,
)

CAMERA = NormalizedCamera(focal_length_px=1300.0, distance_mm=600.0, width_px=256, height_px=64)
K = np.array([[1100.0, 0, 630], [0, 1120.0, 350], [0, 0, 1]])
CORNERS = np.array([[-19.0, 1.5, -3.0], [19.0, 1.5, -3.0]])
HEAD, TARGET = np.array([0.1, -0.25, 0.08]), np.array([-90.0, 120.0, 5.0])
ORIGIN = 600.0 * np.array([0.06, -0.05, 1.0]) / np.linalg.norm([0.06, -0.05, 1.0])  # at the virtual camera's distance
PLACE = ORIGIN - cv2.Rodrigues(HEAD)[0] @ CORNERS.mean(axis=0)
OFF = Augment(flip=False, jitter_px=0.0, zoom=0.0, color_scale=0.0)
ALL = Augment(flip=True, jitter_px=6.0, zoom=0.1, color_scale=0.5)


def model(height: int, width: int) -> Model:
    sizes = {"blocks": 4, "image_height_px": height, "image_width_px": width}
    return Model(
        growth=2, **sizes, z_app=4, z_gaze=2, z_head=2, decoder_channels=4, normalize_axis=1, backprop_gaze=True
    )


def pose_of(head: np.ndarray, place: np.ndarray, target: np.ndarray) -> NormalizedPose:
    return normalize_poses(head[None], place[None], CORNERS, target[None])[0][0]


def frame() -> np.ndarray:
    """Return a frame of soft colours, so that interpolation matters little."""
    random = np.random.default_rng(5)
    return cv2.resize(random.integers(0, 256, (36, 64, 3), dtype=np.uint8), (1280, 720), interpolation=cv2.INTER_CUBIC)


def strip(pose: NormalizedPose, image: np.ndarray | None = None, matrix: np.ndarray = K) -> torch.Tensor:
    image = frame() if image is None else image
    return torch.from_numpy(make_strip(image, matrix, np.zeros(5), pose, CAMERA))[None]


def labels(pose: NormalizedPose) -> tuple[torch.Tensor, torch.Tensor]:
    gaze, head = torch.from_numpy(pose.labels.astype(np.float32))[None].chunk(2, dim=1)
    return gaze, head


def difference(a: torch.Tensor, b: torch.Tensor, edge: int = 12) -> float:
    """Compute the mean absolute difference over the inner pixels."""
    inner = (a.float() - b.float()).abs()[:, edge // 2 : -edge // 2, edge:-edge]
    return float(inner.mean())


def test_a_mirrored_frame_has_the_mirrored_strip_and_labels():
    """Mirror the whole scene in the camera's vertical plane, then normalise it as usual."""
    pose = pose_of(HEAD, PLACE, TARGET)
    across = np.array([-1.0, 1, 1])
    # A mirrored rotation M R M: its vector keeps x and changes sign in y and z. The face model is symmetrical.
    other = pose_of(HEAD * -across, PLACE * across, TARGET * across)
    matrix = K.copy()
    matrix[0, 2] = 1279 - K[0, 2]
    wanted = strip(other, frame()[:, ::-1].copy(), matrix)
    found, gaze, head = mirror(strip(pose), *labels(pose), torch.tensor([True]))
    np.testing.assert_allclose(np.concatenate([gaze[0], head[0]]), other.labels, atol=2e-6)
    assert abs(other.labels[1]) > 0.02 and abs(other.labels[3]) > 0.02
    # The mirrored axis meets pixel 127 and not 128.
    assert difference(found.roll(1, dims=2), wanted) < 1 < difference(strip(pose), wanted)


@pytest.mark.parametrize("shift", [(8.0, 0.0), (0.0, -6.0), (-30.0, 12.0)])
@pytest.mark.parametrize("size", [(64, 256), (32, 128)])
def test_a_turned_camera_sees_what_the_frame_shows_it(shift, size):
    """Compare with normalisation: the frame is warped by a virtual camera that is aimed shift px away."""
    pose = pose_of(HEAD, PLACE, TARGET)
    u = np.array([*shift, 1300.0]) / np.linalg.norm([*shift, 1300.0])
    y = np.cross(u, [1.0, 0, 0]) / np.linalg.norm(np.cross(u, [1.0, 0, 0]))
    turn = np.stack([np.cross(y, u), y, u])
    aside = replace(pose, rotation=turn @ pose.rotation)
    gaze, head = labels(pose)
    camera, one = VirtualCamera.of(CAMERA, model(*size)), torch.ones(1)
    found, gaze, head = turn_camera(shrink(strip(pose), *size), gaze, head, torch.tensor([shift]), one, camera)
    wanted = shrink(strip(aside), *size)
    edge = 2 * int(max(map(abs, shift))) + 4
    edge = edge * size[0] // 64
    inner = (found.float() - wanted.float()).abs()[:, edge // 4 : -(edge // 4), edge:-edge]
    assert inner.numel() and inner.mean() < 1.2
    assert difference(shrink(strip(pose), *size), wanted) > 2
    vectors = vector_from_pitchyaw(pose.labels.reshape(2, 2)) @ turn.T
    np.testing.assert_allclose(np.stack([gaze[0], head[0]]), pitchyaw_from_vector(vectors), atol=2e-6)


def test_shrinking_moves_the_centre_of_pixels():
    """A network pixel covers two stored ones, whose centres are a quarter of a pixel to either side of its own."""
    assert VirtualCamera.of(CAMERA, model(64, 256)) == VirtualCamera(1300.0, (128.0, 32.0), 1.0)
    assert VirtualCamera.of(CAMERA, model(32, 128)) == VirtualCamera(650.0, (63.75, 15.75), 0.5)


def test_colours_are_scaled_each_by_itself_and_clipped():
    strips = torch.tensor([10, 100, 200], dtype=torch.uint8).expand(2, 4, 5, 3)
    found = recolor(strips, torch.tensor([[0.5, 1.25, 1.5], [0.06, 0.008, 0.5]]))
    assert torch.equal(found, torch.tensor([[5, 125, 255], [1, 1, 100]]).to(found).view(2, 1, 1, 3).expand(2, 4, 5, 3))


def people(height: int = 64, width: int = 256) -> People:
    random = np.random.default_rng(0)
    pixels = [random.integers(0, 256, (n, height, width, 3), dtype=np.uint8) for n in (5, 7)]
    return made_up_people(pixels, [random.normal(0, 0.2, (n, 4)).astype(np.float32) for n in (5, 7)])


def batch_of(everyone: People, pairs: int) -> dict[str, torch.Tensor]:
    return everyone.gather_pairs(PairIndices(everyone.counts, 1, pairs)[3])


def test_a_batch_is_changed_as_drawn_and_pairs_share_colour_and_mirror():
    everyone, small = people(32, 128), model(32, 128)
    augmentation = build_augmentation(ALL, CAMERA, small, 2)
    plain, drawn = batch_of(everyone, 16), augmentation.draw(3, PairIndices(everyone.counts, 1, 16))
    batch = augmentation(plain | drawn)
    assert batch.keys() == plain.keys()
    assert 0 < drawn["flip"].sum() < 16
    assert torch.equal(batch["person"], plain["person"] + 2 * drawn["flip"])
    for index, member in enumerate("ab"):
        strips, gaze, head = mirror(*(plain[f"{name}_{member}"] for name in ("image", "gaze", "head")), drawn["flip"])
        camera = VirtualCamera.of(CAMERA, small)
        turned = turn_camera(strips, gaze, head, drawn["shift_px"][:, index], drawn["zoom"][:, index], camera)
        assert torch.equal(batch[f"image_{member}"], recolor(turned[0], drawn["color"]))
        assert torch.equal(batch[f"gaze_{member}"], turned[1]) and torch.equal(batch[f"head_{member}"], turned[2])


@pytest.mark.parametrize("processes", [2, 4])
def test_draws_depend_on_seed_and_step_alone(processes):
    augmentation = build_augmentation(ALL, CAMERA, model(64, 256), 2)

    def draw(step: int, *share: int) -> Batch:
        return augmentation.draw(step, PairIndices([5, 7], *share))

    torch.manual_seed(7)
    np.random.seed(7)
    shares = [draw(5, 1, 8, r, processes) for r in range(processes)]
    for name, value in draw(5, 1, 8).items():
        assert torch.equal(torch.cat([share[name] for share in shares]), value)
        if name != "flip":
            assert not torch.equal(value, draw(6, 1, 8)[name])
            assert not torch.equal(value, draw(5, 2, 8)[name])
    far = draw(0, 1, 4000)
    assert far["flip"].float().mean() == pytest.approx(0.5, abs=0.05)
    assert far["color"].aminmax() == pytest.approx((0.5, 1.5), abs=0.01)
    assert far["shift_px"].aminmax() == pytest.approx((-6, 6), abs=0.01)
    assert far["zoom"].aminmax() == pytest.approx((0.9, 1.1), abs=0.001)
