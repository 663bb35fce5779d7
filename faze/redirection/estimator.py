"""A small residual network that estimates gaze and head pose independently of DT-ED, to evaluate redirected strips.

Its architecture (He et al. 2016) differs from DT-ED's, and it is trained only on original strips of train people.
ST-ED (Zheng et al., NeurIPS 2020, section 4.2) is evaluated in the same way. Since decoded strips are blurrier than
originals, half of the training strips are blurred. Independently, half are mirrored, and all are recoloured.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from faze.base.errors import UserError
from faze.base.geometry import vector_from_pitchyaw
from faze.base.progress import Progress
from faze.config.parameters import Estimator
from faze.data.network_input import to_network
from faze.data.pairs import People, open_people
from faze.data.strips import StripStore
from faze.model.losses import angle_deg
from faze.model.torch_file import read_mapping, write_mapping

WARMUP = 0.05  # fraction of the training during which the learning rate rises; then it falls along half a cosine
COLOR_SCALE = 0.2  # largest relative change of a colour
BLUR_PX = 2.0  # largest standard deviation of the blur
WEIGHT_DECAY = 0.05
SEED = 0
BATCH = 128  # strips estimated at a time


class ResidualBlock(nn.Module):
    """Two convolutions with a residual connection."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        first = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        second = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.layers = nn.Sequential(first, nn.BatchNorm2d(channels), nn.ReLU(), second, nn.BatchNorm2d(channels))
        self.shortcut = nn.Conv2d(channels_in, channels, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Map features (B, C_in, H, W) to (B, C, H / stride, W / stride)."""
        return F.relu(self.layers(x) + self.shortcut(x))


class GazeHeadEstimator(nn.Module):
    """A network that maps strips (B, 3, H, W) in [-1, 1] to gaze pitch, gaze yaw, head pitch and head yaw (B, 4), rad.

    `size` is (H, W). The first block has `channels` channels; each of the next three doubles them and halves H and W.
    """

    def __init__(self, channels: int, size: tuple[int, int]) -> None:
        super().__init__()
        self.channels, self.size = channels, size
        stem = nn.Conv2d(3, channels, 5, 2, 2, bias=False)
        halving = [ResidualBlock(channels * 2**level, channels * 2 ** (level + 1), 2) for level in range(3)]
        blocks = nn.Sequential(ResidualBlock(channels, channels, 1), *halving)
        pool = nn.AdaptiveAvgPool2d((2, 8))  # roughly keeps the position of features in the strip
        self.angles = nn.Linear(8 * channels * 2 * 8, 4)
        self.features = nn.Sequential(stem, nn.BatchNorm2d(channels), nn.ReLU(), blocks, pool, nn.Flatten())
        nn.init.normal_(self.angles.weight, std=1e-3)  # initially, estimates point straight ahead
        nn.init.zeros_(self.angles.bias)

    def forward(self, image: Tensor) -> Tensor:
        """Map strips (B, 3, H, W) to angles (B, 4)."""
        return self.angles(self.features(image))


def save_estimator(path: Path, network: GazeHeadEstimator) -> None:
    """Write an estimator to a file."""
    weights = {key: value.cpu() for key, value in network.state_dict().items()}
    write_mapping(path, {"channels": network.channels, "size": list(network.size), "estimator": weights})


def load_estimator(path: Path, device: torch.device | str = "cpu") -> GazeHeadEstimator:
    """Read an estimator and put it in evaluation mode."""
    content = read_mapping(path, device)
    network = GazeHeadEstimator(content["channels"], tuple(content["size"]))
    network.load_state_dict(content["estimator"])
    return network.to(device).eval()


@torch.inference_mode()
def estimate(network: nn.Module, images: Tensor) -> NDArray[np.float64]:
    """Estimate gaze and head angles (N, 4), in radians, from strips (N, 3, H, W) in [-1, 1]."""
    return torch.cat([network(some).double().cpu() for some in images.split(BATCH)]).numpy()


def train_estimator(people: People, settings: Estimator, device: torch.device | str) -> GazeHeadEstimator:
    """Train an estimator on people whose strips are cached in memory; raise UserError if training diverges."""
    torch.manual_seed(SEED)
    network = GazeHeadEstimator(settings.channels, people.size).to(device)
    optimizer = torch.optim.AdamW(network.parameters(), settings.lr, weight_decay=WEIGHT_DECAY)
    steps, count = math.ceil(settings.strips / settings.batch), len(people.labels)
    # Every epoch contains each strip once, in random order.
    random, epochs = np.random.default_rng(SEED), math.ceil(steps * settings.batch / count)
    order = torch.from_numpy(np.concatenate([random.permutation(count) for _ in range(epochs)]))
    progress = Progress("estimator", steps, "steps")
    for step, indices in enumerate(order[: steps * settings.batch].split(settings.batch)):
        share = (step + 1) / steps
        cosine = 0.5 + 0.5 * math.cos(math.pi * (share - WARMUP) / (1 - WARMUP))
        for group in optimizer.param_groups:
            group["lr"] = settings.lr * (share / WARMUP if share < WARMUP else cosine)
        image = to_network(people.gather(indices).to(device))
        image, labels = vary(image, people.labels[indices].to(device), step)
        optimizer.zero_grad()
        sum(_errors_deg(network(image), labels)).backward()
        optimizer.step()
        progress(step + 1)
    if not all(value.isfinite().all() for value in network.state_dict().values()):
        raise UserError("the training of the estimator diverged: train again with a lower estimator.lr")
    return network.eval()


def _errors_deg(estimated: Tensor, labels: Tensor) -> Iterator[Tensor]:
    """Yield the mean angular errors of gaze and head pose, in degrees, given angles (B, 4) in radians."""
    for a, b in zip(estimated.split(2, 1), labels.split(2, 1), strict=True):
        yield angle_deg(vector_from_pitchyaw(a, torch), vector_from_pitchyaw(b, torch)).mean()


def vary(image: Tensor, labels: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """Randomly mirror, recolour and blur strips (B, 3, H, W) in [-1, 1] with labels (B, 4), seeded by `step`."""
    draw = torch.Generator().manual_seed(int(np.random.SeedSequence([SEED, step]).generate_state(1)[0]))
    each = (len(image), 1, 1, 1)
    mirrored = torch.rand(each, generator=draw).to(image.device) < 0.5
    image = torch.where(mirrored, image.flip(3), image)
    labels = torch.where(mirrored.flatten(1), labels * labels.new_tensor([1, -1, 1, -1]), labels)
    color = 1 + COLOR_SCALE * (2 * torch.rand(len(image), 3, 1, 1, generator=draw) - 1)
    image = ((image + 1) * color.to(image) - 1).clamp(-1, 1)
    blurred = blur(image, BLUR_PX * float(torch.rand((), generator=draw)))
    soft = torch.rand(each, generator=draw).to(image.device) < 0.5
    return torch.where(soft, blurred, image), labels


def blur(image: Tensor, sigma_px: float) -> Tensor:
    """Blur images (B, 3, H, W) with a Gaussian of standard deviation `sigma_px`, truncated at 2 `sigma_px`."""
    reach = math.ceil(2 * sigma_px)
    weights = torch.exp(-0.5 * (torch.arange(-reach, reach + 1) / max(sigma_px, 1e-3)) ** 2)
    kernel = (weights / weights.sum()).to(image).expand(3, 1, 1, -1)
    image = F.pad(image, (reach, reach, reach, reach), mode="replicate")
    return F.conv2d(F.conv2d(image, kernel, groups=3), kernel.mT, groups=3)


def measure_errors(network: GazeHeadEstimator, store: StripStore) -> Iterator[dict[str, str | int | float]]:
    """Yield the errors on the val and test splits, averaged over people; skip splits without people."""
    for split in ("val", "test"):
        if store.of_split(split):
            people, errors = open_people(store, network.size, split=split), []
            for indices in people.person_indices():
                image = to_network(people.gather(indices).to(network.angles.weight.device))
                found = _errors_deg(torch.from_numpy(estimate(network, image)), people.labels[indices].double())
                errors.append([float(error) for error in found])
            gaze_deg, head_deg = np.mean(errors, axis=0).tolist()
            row = {"dataset": store.dataset, "split": split, "people": len(errors)}
            yield row | {"gaze_deg": gaze_deg, "head_deg": head_deg}
