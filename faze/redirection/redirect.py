"""Redirect each test person's strips to the gaze and head pose of their other strips, and measure the results.

Each strip a is redirected to the angles of another strip b of that person. The table has a row per pair and variant:
docs/explanation/redirection.md defines the variants, and docs/reference/formats.md the columns. The angles are those of
a (own), b (wanted) and the image (seen).

Shapes: N pairs of one person; images of H x W pixels.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torchmetrics.functional.image import multiscale_structural_similarity_index_measure as ms_ssim
from torchmetrics.functional.image import structural_similarity_index_measure as ssim

from faze.base.geometry import rotation_from_pitchyaw
from faze.base.progress import Progress
from faze.config.parameters import Redirect
from faze.data.network_input import to_network
from faze.data.pairs import open_people
from faze.data.strips import StripStore
from faze.model.dted import DTED, Codes
from faze.model.weights import load_model
from faze.redirection.estimator import GazeHeadEstimator, estimate, load_estimator

ANGLES = ("gaze_pitch", "gaze_yaw", "head_pitch", "head_yaw")
COLUMNS = [f"{kind}_{angle}" for kind in ("own", "wanted", "seen") for angle in ANGLES]
# The first three of MS-SSIM's five weights (Wang et al. 2003), scaled to sum to 1; strips are too low for five scales.
BETAS = tuple(beta / (0.0448 + 0.2856 + 0.3001) for beta in (0.0448, 0.2856, 0.3001))
# Minimum H -> standard deviation and side (px) of a Gaussian window that fits into a quarter of H.
WINDOWS = {44: (1.5, 11), 28: (0.8, 7), 20: (0.5, 5), 12: (0.3, 3)}


def load_networks(checkpoint: Path, estimator: Path) -> tuple[DTED, GazeHeadEstimator]:
    """Load DT-ED and an estimator, onto a GPU if available."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return load_model(checkpoint, device), load_estimator(estimator, device)


def draw_targets(strips: int) -> NDArray[np.int64]:
    """For each of N >= 2 strips, draw another one; return indices (N,). Each depends only on N and the strip's own."""
    draws = np.array([np.random.default_rng([0, index]).random() for index in range(strips)])
    targets = np.floor(draws * (strips - 1)).astype(np.int64)
    return targets + (targets >= np.arange(strips))


def redirect_store(dted: DTED, estimator: GazeHeadEstimator, store: StripStore, settings: Redirect) -> pd.DataFrame:
    """Redirect and measure strips of test people (or, without test people, of everyone) with at least two strips."""
    people = open_people(store, estimator.size, split="test" if store.of_split("test") else None, min_entries=2)
    device, tables = dted.fc_enc.weight.device, []
    progress = Progress("redirect", len(people.persons), "people")
    for person, indices in zip(people.persons, people.person_indices(), strict=True):
        # Evenly spaced, since adjacent strips were often recorded in succession.
        chosen = np.linspace(0, len(indices) - 1, min(len(indices), settings.strips)).round()
        rows = indices[chosen.astype(int)]
        image, labels = to_network(people.gather(rows).to(device)), people.labels[rows].to(device)
        targets = draw_targets(len(rows))
        images = redirect(dted, image, labels, targets)
        tables.append(measure_person(estimator, images, labels, targets).assign(person=person.name))
        progress(len(tables))
    table = pd.concat(tables, ignore_index=True)
    table.insert(0, "dataset", store.dataset)
    return table


@torch.inference_mode()
def redirect(dted: DTED, image: Tensor, labels: Tensor, targets: NDArray[np.int64]) -> dict[str, Tensor]:
    """Redirect a person's strips (N, 3, H, W) with labels (N, 4) to targets (N,); return each variant's images."""
    codes = dted.encode(image)
    gaze, head = (rotation_from_pitchyaw(angles, torch) for angles in labels.split(2, dim=1))
    turned = codes.turn(gaze, head).turn(gaze[targets].mT, head[targets].mT)
    not_turned, redirected = dted.decode(Codes(*map(torch.cat, zip(codes, turned, strict=True)))).chunk(2)
    return {"real": image[targets], "not_turned": not_turned, "redirected": redirected}


def measure_person(
    estimator: nn.Module, images: Mapping[str, Tensor], labels: Tensor, targets: NDArray[np.int64]
) -> pd.DataFrame:
    """Measure a person's images (N, 3, H, W) in each variant, given the strips' labels (N, 4) and targets (N,)."""
    own, tables = labels.double().cpu().numpy(), []
    for variant, image in images.items():
        table = pd.DataFrame({"pair": np.arange(len(own)), "variant": variant})
        table[COLUMNS] = np.column_stack([own, own[targets], estimate(estimator, image)])
        if variant != "real":
            for name, values in similarity(image, images["real"]).items():
                table[name] = values.double().cpu().numpy()
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


@torch.inference_mode()
def similarity(images: Tensor, real: Tensor) -> dict[str, Tensor]:
    """Compare images with real ones, both (N, 3, H, W) with H >= 12; return each metric's values (N,).

    L1 is computed in the images' range, [-1, 1]. For the other metrics, the images are clipped and rescaled to [0, 1].
    """
    a, b = ((part.clamp(-1, 1) + 1) / 2 for part in (images, real))
    squares = (a - b).square().mean((1, 2, 3))
    sigma_px, side_px = next(window for height_px, window in WINDOWS.items() if a.shape[2] >= height_px)
    options = {"sigma": sigma_px, "kernel_size": side_px, "data_range": 1.0, "reduction": "none"}
    return {
        "l1": (images - real).abs().mean((1, 2, 3)),
        "psnr": -10 * squares.clamp(min=1e-10).log10(),
        "ssim": ssim(a, b, **options).reshape(-1),
        "ms_ssim": ms_ssim(a, b, betas=BETAS, normalize="relu", **options).reshape(-1),
    }
