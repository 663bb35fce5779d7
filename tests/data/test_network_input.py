"""Strips become the network's input as OpenCV equalises them, by OpenCV on a CPU and by torch elsewhere."""

import cv2
import numpy as np
import torch

from faze.data.network_input import from_network, shrink, to_network, to_network_torch


def levels(image: torch.Tensor) -> np.ndarray:
    """Return the pixel levels (B, H, W, 3) of network input."""
    return ((255 * image + 255) / 2).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()


def opencv_equalize(strip: np.ndarray) -> np.ndarray:
    ycrcb = cv2.cvtColor(strip, cv2.COLOR_RGB2YCrCb)
    ycrcb[..., 0] = cv2.equalizeHist(np.ascontiguousarray(ycrcb[..., 0]))
    return cv2.cvtColor(ycrcb, cv2.COLOR_YCrCb2RGB)


def assert_equalized(strips: np.ndarray) -> None:
    """Check both ways, and that they agree to the bit."""
    found, of_torch = to_network(torch.from_numpy(strips)), to_network_torch(torch.from_numpy(strips))
    assert torch.equal(found, of_torch)
    np.testing.assert_array_equal(levels(found), [opencv_equalize(strip) for strip in strips])


def test_equalize_is_opencv_on_many_colours(numbers):
    """Every 64th colour, and real strips in more than one piece."""
    each = np.arange(256, dtype=np.uint8)
    colours = np.stack(np.meshgrid(each[::4], each[::4], each[::4], indexing="ij"), -1).reshape(64, 64, 64, 3)
    assert_equalized(colours + np.random.default_rng(0).integers(0, 4, colours.shape, dtype=np.uint8))
    arrays = [numbers("misc")["pre/in_uint8"], *numbers("normalize").values()]
    strips = [a.reshape(-1, 64, 256, 3) for a in arrays if a.dtype == np.uint8 and a.shape[-3:] == (64, 256, 3)]
    assert_equalized(np.tile(np.concatenate(strips), (20, 1, 1, 1)))


def test_equalize_is_opencv_on_pictures_of_few_levels():
    """Rounding in the look-up table is visible in strips with narrow histograms and odd sizes."""
    rng = np.random.default_rng(0)
    for _ in range(600):
        low, high = np.sort(rng.integers(0, 257, 2))
        shape = (int(rng.integers(1, 4)), *rng.integers(1, 70, 2), 3)
        assert_equalized(rng.integers(low, max(high, low + 1), shape).astype(np.uint8))
    constant = np.zeros((4, 8, 32, 3), np.uint8) + np.array([0, 1, 127, 255], np.uint8)[:, None, None, None]
    np.testing.assert_array_equal(levels(to_network(torch.from_numpy(constant))), constant)
    assert_equalized(constant)


def test_shrink_rounds_the_mean_of_each_square():
    strips = torch.zeros(2, 2, 4, 3, dtype=torch.uint8)
    strips[:, :, :2, 0] = torch.tensor([[1, 2], [3, 4]])  # mean 2.5
    strips[:, :, 2:, 0] = torch.tensor([[255, 255], [255, 254]])  # mean 254.75
    assert shrink(strips, 1, 2)[..., 0].tolist() == [[[3, 255]]] * 2
    assert shrink(strips, 2, 4) is strips


def test_network_range_and_back():
    strip = torch.arange(256, dtype=torch.uint8).repeat(2, 3, 2, 1).permute(0, 2, 3, 1)  # (2, 2, 256, 3), grey ramp
    image = to_network(strip)
    assert image.shape == (2, 3, 2, 256) and image.is_contiguous()
    assert image[0, 0, 0, [0, 255]].tolist() == [-1, 1]  # black and white
    assert (from_network(image).int() - strip.int()).abs().max() <= 1  # truncates, as the released code
    given = torch.tensor([-7.0, -0.5, 0.0, 7.0]).reshape(1, 1, 1, 4)  # 63.75 and 127.5 in the middle
    assert from_network(given).flatten().tolist() == [0, 63, 127, 255]
