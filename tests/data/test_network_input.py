import cv2
import numpy as np
import pytest
import torch

from faze.data.network_input import from_network, shrink, to_network, to_network_torch


def equalize(strips: torch.Tensor) -> torch.Tensor:
    """Return the pixel levels (B, H, W, 3) that torch operations pass to the network."""
    image = to_network_torch(strips, *strips.shape[1:3])
    return ((255 * image + 255) / 2).round().to(torch.uint8).permute(0, 2, 3, 1)


def opencv_equalize(strip: np.ndarray) -> np.ndarray:
    ycrcb = cv2.cvtColor(strip, cv2.COLOR_RGB2YCrCb)
    ycrcb[..., 0] = cv2.equalizeHist(np.ascontiguousarray(ycrcb[..., 0]))
    return cv2.cvtColor(ycrcb, cv2.COLOR_YCrCb2RGB)


def test_equalize_is_opencv_on_every_65th_colour():
    levels = np.arange(256, dtype=np.uint8)
    colours = np.stack(np.meshgrid(levels[::4], levels[::4], levels[::4], indexing="ij"), -1).reshape(64, 64, 64, 3)
    colours = colours + np.random.default_rng(0).integers(0, 4, colours.shape, dtype=np.uint8)
    ours = equalize(torch.from_numpy(colours)).numpy()
    for strip, found in zip(colours, ours, strict=True):
        assert np.array_equal(found, opencv_equalize(strip))


@pytest.mark.parametrize("seed", range(4))
def test_equalize_is_opencv_on_pictures_of_few_levels(seed):
    """Rounding in the look-up table is visible in strips with narrow histograms and odd sizes."""
    rng = np.random.default_rng(seed)
    for _ in range(150):
        low, high = np.sort(rng.integers(0, 257, 2))
        strip = rng.integers(low, max(high, low + 1), (*rng.integers(1, 70, 2), 3)).astype(np.uint8)
        assert np.array_equal(equalize(torch.from_numpy(strip[None]))[0], opencv_equalize(strip))


@pytest.mark.parametrize("level", [0, 1, 127, 255])
def test_equalize_keeps_a_constant_picture(level):
    strip = torch.full((1, 8, 32, 3), level, dtype=torch.uint8)
    assert torch.equal(equalize(strip), strip)


def test_shrink_rounds_the_mean_of_each_square():
    strip = torch.zeros(1, 2, 4, 3, dtype=torch.uint8)
    strip[0, :, :2, 0] = torch.tensor([[1, 2], [3, 4]])  # mean 2.5
    strip[0, :, 2:, 0] = torch.tensor([[255, 255], [255, 254]])  # mean 254.75
    assert shrink(strip, 1, 2)[0, 0, :, 0].tolist() == [3, 255]


def test_shrinking_comes_before_equalising():
    strips = torch.randint(0, 256, (2, 64, 256, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(to_network(strips, 32, 128), to_network(shrink(strips, 32, 128), 32, 128))


@pytest.mark.parametrize("size", [(48, 192), (32, 64), (128, 512)])
def test_sizes_that_do_not_divide_are_refused(size):
    with pytest.raises(ValueError, match=r"strips of 64 x 256 px cannot be shrunk to model\.image_height_px"):
        to_network(torch.zeros(1, 64, 256, 3, dtype=torch.uint8), *size)


def test_network_range_and_back():
    strip = torch.arange(256, dtype=torch.uint8).repeat(2, 3, 2, 1).permute(0, 2, 3, 1)  # (2, 2, 256, 3), grey ramp
    image = to_network(strip, 2, 256)
    assert image.shape == (2, 3, 2, 256)
    assert (image.min(), image.max()) == (-1, 1)
    assert image[0, 0, 0, [0, 255]].tolist() == [-1, 1]  # black and white
    assert (from_network(image).int() - equalize(strip).int()).abs().max() <= 1  # truncates, as the released code
    levels = torch.tensor([-7.0, -0.5, 0.0, 7.0]).reshape(1, 1, 1, 4)  # 63.75 and 127.5 in the middle
    assert from_network(levels).flatten().tolist() == [0, 63, 127, 255]


# -- on a CPU OpenCV itself does the work; elsewhere torch --


def golden_strips(numbers) -> torch.Tensor:
    arrays = [numbers("misc")["pre/in_uint8"], *numbers("normalize").values()]
    strips = [a.reshape(-1, 64, 256, 3) for a in arrays if a.dtype == np.uint8 and a.shape[-3:] == (64, 256, 3)]
    return torch.from_numpy(np.concatenate(strips))


@pytest.mark.parametrize("size", [(64, 256), (32, 128)])
@pytest.mark.parametrize("threads", [1, 3])
def test_opencv_and_torch_make_the_same_input_of_all_golden_strips(size, threads, monkeypatch, numbers):
    strips = golden_strips(numbers)
    assert len(strips)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert torch.equal(to_network(strips, *size), to_network_torch(strips, *size))


@pytest.mark.parametrize("size", [(64, 256), (32, 128), (16, 64)])
@pytest.mark.parametrize("seed", range(6))
def test_opencv_and_torch_make_the_same_input_of_random_strips(size, seed):
    """Fails if OpenCV averages 4 x 4 squares, since OpenCV rounds half to even."""
    rng = np.random.default_rng(seed)
    low, high = np.sort(rng.integers(0, 257, (2, 9, 1, 1, 3)), axis=0)
    strips = torch.from_numpy(rng.integers(low, np.maximum(high, low + 1), (9, 64, 256, 3)).astype(np.uint8))
    strips[0] = int(rng.integers(0, 256))
    assert torch.equal(to_network(strips, *size), to_network_torch(strips, *size))
