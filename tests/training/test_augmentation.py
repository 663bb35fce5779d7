"""Augmentation: the geometry of labels follows that of pixels; draws depend only on seed and step."""

import cv2
import numpy as np
import pytest
import torch
from trajectory import made_up_people

from faze.config.parameters import Augment, NormalizedCamera
from faze.data.normalization.pose import NormalizedPose, normalize_poses
from faze.data.normalization.warp import make_strip
from faze.data.pairs import PairIndices
from faze.training.augmentation import Augmentation, mirror

CAMERA = NormalizedCamera(focal_length_px=1300.0, distance_mm=600.0, width_px=256, height_px=64)
K = np.array([[1100.0, 0, 630], [0, 1120.0, 350], [0, 0, 1]])
CORNERS = np.array([[-19.0, 1.5, -3.0], [19.0, 1.5, -3.0]])
HEAD, PLACE, TARGET = np.array([0.1, -0.25, 0.08]), np.array([36.0, -31, 601]), np.array([-90.0, 120.0, 5.0])
ALL = Augmentation(Augment(flip=True, color_scale=0.5), people=2)


def pose_of(head: np.ndarray, place: np.ndarray, target: np.ndarray) -> NormalizedPose:
    return normalize_poses(head[None], place[None], CORNERS, target[None])[0][0]


def strip(pose: NormalizedPose, image: np.ndarray, matrix: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(make_strip(image, (matrix, np.zeros(5)), pose, CAMERA))[None]


def difference(a: torch.Tensor, b: torch.Tensor) -> float:
    """Compute the mean absolute difference over the inner pixels."""
    return float((a.float() - b.float()).abs()[:, 6:-6, 12:-12].mean())


def test_a_mirrored_frame_has_the_mirrored_strip_and_labels():
    """Mirror the whole scene in the camera's vertical plane, then normalise it as usual."""
    coarse = np.random.default_rng(5).integers(0, 256, (36, 64, 3), dtype=np.uint8)
    frame = cv2.resize(coarse, (1280, 720), interpolation=cv2.INTER_CUBIC)  # soft, so that interpolation matters little
    pose, across = pose_of(HEAD, PLACE, TARGET), np.array([-1.0, 1, 1])
    # A mirrored rotation M R M: its vector keeps x and changes sign in y and z. The face model is symmetrical.
    other = pose_of(HEAD * -across, PLACE * across, TARGET * across)
    matrix = K.copy()
    matrix[0, 2] = 1279 - K[0, 2]
    wanted = strip(other, frame[:, ::-1].copy(), matrix)
    gaze, head = torch.from_numpy(pose.labels.astype(np.float32))[None].chunk(2, dim=1)
    found, gaze, head = mirror(strip(pose, frame, K), gaze, head, torch.tensor([True]))
    np.testing.assert_allclose(np.concatenate([gaze[0], head[0]]), other.labels, atol=2e-6)
    assert abs(other.labels[1]) > 0.02 and abs(other.labels[3]) > 0.02
    # The mirrored axis meets pixel 127 and not 128.
    assert difference(found.roll(1, dims=2), wanted) < 1 < difference(strip(pose, frame, K), wanted)


def test_a_batch_is_changed_as_drawn_and_pairs_share_colour_and_mirror():
    random = np.random.default_rng(0)
    pixels = [random.integers(0, 256, (n, 32, 128, 3), dtype=np.uint8) for n in (5, 7)]
    everyone = made_up_people(pixels, [random.normal(0, 0.2, (n, 4)).astype(np.float32) for n in (5, 7)])
    plain, drawn = everyone.gather_pairs(PairIndices(everyone.counts, 1, 16)[3]), ALL.draw(3, 1, 16)
    batch = ALL(plain | drawn)
    assert batch.keys() == plain.keys() and 0 < drawn["flip"].sum() < 16
    assert torch.equal(batch["person"], plain["person"] + 2 * drawn["flip"])
    for member in "ab":
        names = [f"{name}_{member}" for name in ("image", "gaze", "head")]
        strips, *labels = mirror(*(plain[name] for name in names), drawn["flip"])
        bright = (strips * drawn["color"][:, None, None]).round().clamp(max=255)
        assert torch.equal(batch[names[0]], bright.to(torch.uint8)) and strips.max() * 1.2 > 255
        assert torch.equal(batch[names[1]], labels[0]) and torch.equal(batch[names[2]], labels[1])


def test_draws_depend_on_seed_and_step_alone():
    first = ALL.draw(5, 1, 8)
    torch.manual_seed(7)
    np.random.seed(7)
    assert all(torch.equal(first[name], value) for name, value in ALL.draw(5, 1, 8).items())
    assert not torch.equal(first["color"], ALL.draw(6, 1, 8)["color"])
    assert not torch.equal(first["color"], ALL.draw(5, 2, 8)["color"])
    assert not torch.equal(ALL.draw(5, 2, 8)["color"], ALL.draw(6, 1, 8)["color"])
    far = ALL.draw(0, 1, 4000)
    assert far["flip"].float().mean() == pytest.approx(0.5, abs=0.05)
    assert [float(end) for end in far["color"].aminmax()] == pytest.approx([0.5, 1.5], abs=0.01)
