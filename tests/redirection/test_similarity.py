"""L1 and PSNR against hand-computed values, SSIM and MS-SSIM at the ends of their scales. Fails without clipping."""

import pytest
import torch

from faze.redirection.evaluator import METRICS, similarity


def pictures(height, count=5):
    draw = torch.Generator().manual_seed(0)
    coarse = torch.rand(count, 3, height // 8, height // 2, generator=draw)
    real = torch.nn.functional.interpolate(coarse, scale_factor=8, mode="bilinear") * 2 - 1
    noise = torch.randn(real.shape, generator=draw) * torch.linspace(0.05, 0.5, count)[:, None, None, None]
    return real + noise, real


@pytest.mark.parametrize("height", [24, 32, 64])  # one for each window
def test_more_noise_is_less_similar(height):
    found = similarity(*pictures(height))
    assert found["ssim"].diff().max() < 0 and found["ms_ssim"].diff().max() < 0


def test_l1_and_psnr_by_hand():
    real = torch.zeros(3, 3, 32, 128)
    made = real + torch.tensor([0.2, 3.0, 0.0])[:, None, None, None]  # the second is white, and beyond
    made[2, :, :, ::4] = -0.4  # a quarter of the third: the mean square of the halved difference is 0.01
    found = similarity(made, real)
    assert found["l1"] == pytest.approx(torch.tensor([0.2, 3.0, 0.1]))
    assert found["psnr"] == pytest.approx(torch.tensor([20.0, 6.0206, 20.0]), rel=1e-4)


def test_equal_pictures_have_similarity_one_and_low_ones_no_ssim():
    made, _ = pictures(32)
    found = similarity(made.clamp(-1, 1), made.clamp(-1, 1))
    assert found["ssim"] == pytest.approx(torch.ones(5)) and found["ms_ssim"] == pytest.approx(torch.ones(5))
    assert similarity(made[:, :, :20], made[:, :, :20])["ms_ssim"] == pytest.approx(torch.ones(5))
    low = similarity(made[:, :, :19], made[:, :, :19])
    assert set(low) == set(METRICS) and low["ssim"].isnan().all() and low["ms_ssim"].isnan().all()
    assert (low["l1"] == 0).all()
