"""Redirect a person's strips, measure them and their controls, and return the measurements as table rows.

| column | meaning |
|---|---|
| pair, variant | `faze.redirection.pairs` |
| own_* | gaze_pitch, gaze_yaw, head_pitch, head_yaw of strip a, radians |
| wanted_* | the same for strip b |
| seen_* | the same, estimated in the image |
| l1, psnr, ssim, ms_ssim | similarity to strip b; nan for strip b itself |

All redirection results are computed from these rows (`faze.evaluation.redirected_angles`).
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchmetrics.functional.image import (
    multiscale_structural_similarity_index_measure,
    structural_similarity_index_measure,
)

from faze.base.geometry import rotation_from_pitchyaw
from faze.model.dted import DTED, Codes
from faze.redirection.estimator import GazeHeadEstimator, estimate
from faze.redirection.pairs import VARIANTS

ANGLES = ("gaze_pitch", "gaze_yaw", "head_pitch", "head_yaw")
OWN, WANTED, SEEN = (tuple(f"{kind}_{angle}" for angle in ANGLES) for kind in ("own", "wanted", "seen"))
METRICS = ("l1", "psnr", "ssim", "ms_ssim")
# A strip is not high enough for the usual five scales of MS-SSIM (Wang et al. 2003): these are the first three
# published weights, scaled to sum to 1.
_PUBLISHED = (0.0448, 0.2856, 0.3001)
BETAS = tuple(beta / sum(_PUBLISHED) for beta in _PUBLISHED)
# Minimum height of a strip -> standard deviation and side of the Gaussian window, px, which fits a quarter of it.
WINDOWS = {44: (1.5, 11), 28: (0.8, 7), 20: (0.5, 5)}


@torch.inference_mode()
def redirect(dted: DTED, image: Tensor, labels: NDArray, targets: NDArray[np.int64]) -> Mapping[str, Tensor]:
    """Redirect every strip of a person to its target.

    Args:
        dted: trained network.
        image: the person's strips, (N, 3, H, W) in [-1, 1].
        labels: labels of these strips, (N, 4) gaze pitch, gaze yaw, head pitch and head yaw in radians.
        targets: (N,) index of each strip b.

    Returns:
        not_turned and redirected -> (N, 3, H, W) in about [-1, 1].
    """
    codes, angles = dted.encode(image), torch.from_numpy(labels).to(image)
    gaze, head = (rotation_from_pitchyaw(part, torch) for part in angles.split(2, dim=1))
    turned = codes.turn(gaze, head).turn(gaze[targets].mT, head[targets].mT)
    decoded = dted.decode(Codes(*map(torch.cat, zip(codes, turned, strict=True))))
    return dict(zip(("not_turned", "redirected"), decoded.chunk(2), strict=True))


def evaluate_person(
    estimator: GazeHeadEstimator, images: Mapping[str, Tensor], labels: NDArray, targets: NDArray[np.int64]
) -> pd.DataFrame:
    """Measure all variants of a person's strips.

    Args:
        estimator: trained estimator.
        images: VARIANTS -> (N, 3, H, W), one image per pair.
        labels: labels of the person's strips, (N, 4) radians.
        targets: (N,) index of each strip b.

    Returns:
        A row per variant and pair.
    """
    wanted, tables = labels[targets].astype(np.float64), []
    for variant in VARIANTS:
        table = pd.DataFrame({"pair": np.arange(len(labels)), "variant": variant})
        table[[*OWN, *WANTED, *SEEN]] = np.column_stack([labels, wanted, estimate(estimator, images[variant])])
        if variant == "real":
            tables.append(table.assign(**dict.fromkeys(METRICS, np.nan)))
        else:
            found = similarity(images[variant], images["real"])
            tables.append(table.assign(**{name: value.cpu().numpy() for name, value in found.items()}))
    return pd.concat(tables, ignore_index=True)


@torch.inference_mode()
def similarity(images: Tensor, real: Tensor) -> Mapping[str, Tensor]:
    """Compare images with real ones.

    L1 is on the scale of the images. The other metrics are on a scale from 0 (black) to 1 (white); values outside that
    range are clipped.

    Args:
        images: (N, 3, H, W) in about [-1, 1].
        real: (N, 3, H, W) in [-1, 1].

    Returns:
        METRICS -> (N,); SSIM (Wang et al. 2004) and MS-SSIM are nan if H is less than every key of WINDOWS.
    """
    a, b = ((part.clamp(-1, 1) + 1) / 2 for part in (images, real))
    squares = (a - b).square().mean((1, 2, 3))
    found = {"l1": (images - real).abs().mean((1, 2, 3)), "psnr": -10 * squares.clamp(min=1e-10).log10()}
    window = next((window for height, window in WINDOWS.items() if a.shape[2] >= height), None)
    if window is None:
        return found | dict.fromkeys(("ssim", "ms_ssim"), torch.full_like(squares, torch.nan))
    options = {"sigma": window[0], "kernel_size": window[1], "data_range": 1.0, "reduction": "none"}
    ssim = structural_similarity_index_measure(a, b, **options)
    ms_ssim = multiscale_structural_similarity_index_measure(a, b, betas=BETAS, normalize="relu", **options)
    return found | {"ssim": ssim.reshape(-1), "ms_ssim": ms_ssim.reshape(-1)}
