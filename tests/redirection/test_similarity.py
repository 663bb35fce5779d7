"""L1 and PSNR by hand, SSIM and MS-SSIM against torchmetrics, and at the ends of their scales.

Seen red by breaking the code: K1 for K2, contrast at the last scale, a window of another deviation, no clipping.
"""

import pytest
import torch
import torchmetrics.functional.image as image

from faze.redirection.similarity import BETAS, METRICS, WINDOWS, similarity


def pictures(height, count=5):
    draw = torch.Generator().manual_seed(0)
    coarse = torch.rand(count, 3, height // 8, height // 2, generator=draw)
    real = torch.nn.functional.interpolate(coarse, scale_factor=8, mode="bilinear") * 2 - 1
    noise = torch.randn(real.shape, generator=draw) * torch.linspace(0.05, 0.5, count)[:, None, None, None]
    return real + noise, real


@pytest.mark.parametrize("height", [24, 32, 64])
def test_structure_is_torchmetrics_own(height):
    made, real = pictures(height)
    found = similarity(made, real)
    a, b = ((x.clamp(-1, 1) + 1) / 2 for x in (made, real))
    sigma, side = next(window for least, window in WINDOWS.items() if height >= least)
    how = {"data_range": 1.0, "sigma": sigma, "kernel_size": side, "reduction": "none"}
    ssim = image.structural_similarity_index_measure(a, b, **how)
    ms_ssim = image.multiscale_structural_similarity_index_measure(a, b, betas=BETAS, normalize="relu", **how)
    torch.testing.assert_close(found["ssim"], ssim, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found["ms_ssim"], ms_ssim, rtol=1e-4, atol=1e-5)
    assert found["ssim"].diff().max() < 0, "more noise is less alike"


def test_l1_and_psnr_by_hand():
    real = torch.zeros(2, 3, 32, 128)
    made = real + torch.tensor([0.2, 3.0])[:, None, None, None]  # the second is white, and beyond
    found = similarity(made, real)
    assert found["l1"] == pytest.approx(torch.tensor([0.2, 3.0]))
    assert found["psnr"] == pytest.approx(torch.tensor([20.0, 6.0206]), rel=1e-4)


def test_the_same_picture_is_wholly_alike_and_a_low_one_has_no_structure():
    made, _ = pictures(32)
    found = similarity(made.clamp(-1, 1), made.clamp(-1, 1))
    assert found["ssim"] == pytest.approx(torch.ones(5)) and found["ms_ssim"] == pytest.approx(torch.ones(5))
    low = similarity(made[:, :, :16], made[:, :, :16])
    assert set(low) == set(METRICS) and low["ssim"].isnan().all() and low["ms_ssim"].isnan().all()
    assert (low["l1"] == 0).all()
