"""L1 and PSNR against hand-computed values, SSIM and MS-SSIM at the ends of their scales. Fails without clipping."""

import pytest
import torch

from faze.redirection.redirect import similarity


@pytest.mark.parametrize("height", [16, 24, 32, 64])  # one for each window
def test_more_noise_is_less_similar_and_equal_pictures_are_most_similar(height):
    draw = torch.Generator().manual_seed(0)
    coarse = torch.rand(5, 3, height // 8, height // 2, generator=draw)
    real = torch.nn.functional.interpolate(coarse, scale_factor=8, mode="bilinear") * 2 - 1
    noise = torch.randn(real.shape, generator=draw) * torch.linspace(0, 0.5, 5)[:, None, None, None]
    found = similarity(real + noise, real)
    for name in ("ssim", "ms_ssim"):
        assert found[name][0] == pytest.approx(1) and found[name].diff().max() < 0


def test_l1_and_psnr_by_hand():
    real = torch.zeros(3, 3, 32, 128)
    made = real + torch.tensor([0.2, 3.0, 0.0])[:, None, None, None]  # the second is white, and beyond
    made[2, :, :, ::4] = -0.4  # a quarter of the third: the mean square of the halved difference is 0.01
    found = similarity(made, real)
    assert found["l1"] == pytest.approx(torch.tensor([0.2, 3.0, 0.1]))
    assert found["psnr"] == pytest.approx(torch.tensor([20.0, 6.0206, 20.0]), rel=1e-4)
