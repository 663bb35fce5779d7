"""An independent estimator of gaze and head pose that measures redirected strips: a small residual network.

Its architecture (He et al. 2016) differs from that of DT-ED. It has separate weights and is trained only on original
strips of train people. It is used as an evaluator as in ST-ED (Zheng et al., NeurIPS 2020, section 4.2). Its error on
original strips is reported beside all of its measurements.

Decoded strips are blurrier than original ones, so half of the training strips are blurred. A separate random half is
mirrored, and the colours of all strips are changed. Random draws depend only on seed and step.

Shapes: B or N strips of H x W pixels, C channels.
"""

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from faze.base.errors import UserError
from faze.base.geometry import vector_from_pitchyaw
from faze.config.parameters import Estimator
from faze.data.network_input import to_network
from faze.data.pairs import People, open_people
from faze.data.strips import StoredPerson, StripStore
from faze.model.losses import angle_deg
from faze.model.torch_file import read_mapping, write_mapping

GRID = (2, 8)  # resolution at which the position of features in the strip is kept
WARMUP = 0.05  # share of the training in which the learning rate rises; then it falls along a half cosine
COLOR_SCALE = 0.2  # largest relative change of a colour
BLUR_PX = 2.0  # largest standard deviation of the blur
WEIGHT_DECAY = 0.05
SEED = 0
BATCH = 128  # strips estimated at a time


class ResidualBlock(nn.Module):
    """Two convolutions with a residual connection."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Conv2d(channels_in, channels, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C_in, H, W) to (B, C, H / stride, W / stride)."""
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class GazeHeadEstimator(nn.Module):
    """Network that estimates the gaze and head pose of a strip.

    Args:
        channels: C in the first block; each of the next three blocks doubles C and halves height and width.
        size: height and width of the strips, px.
    """

    def __init__(self, channels: int, size: tuple[int, int]) -> None:
        super().__init__()
        self.channels, self.size = channels, size
        self.stem = nn.Conv2d(3, channels, 5, 2, 2, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        widths = [channels * 2**level for level in range(4)]
        blocks = [ResidualBlock(a, b, 2) for a, b in zip(widths, widths[1:], strict=False)]
        self.blocks = nn.Sequential(ResidualBlock(channels, channels, 1), *blocks)
        self.pool = nn.AdaptiveAvgPool2d(GRID)
        self.angles = nn.Linear(widths[-1] * GRID[0] * GRID[1], 4)
        nn.init.normal_(self.angles.weight, std=1e-3)  # estimates start straight ahead
        nn.init.zeros_(self.angles.bias)

    def forward(self, image: Tensor) -> Tensor:
        """Map (B, 3, H, W) in [-1, 1] to (B, 4) gaze pitch, gaze yaw, head pitch and head yaw in radians."""
        features = self.blocks(F.relu(self.norm(self.stem(image))))
        return self.angles(self.pool(features).flatten(1))


@dataclass(frozen=True, eq=False)
class TrainedEstimator:
    """An estimator and the people on whom it was trained."""

    network: GazeHeadEstimator  # in evaluation mode
    trained_on: Collection[str]  # digest of each person (`StoredPerson.digest`)

    def check_unseen(self, path: Path, people: Collection[StoredPerson]) -> None:
        """Raise UserError if the estimator was trained on any of these people, even under another name."""
        if seen := [person.name for person in people if person.digest in self.trained_on]:
            raise UserError(
                f"{path}: the estimator was trained on {', '.join(seen)}, so it cannot evaluate them: use the split "
                "test for them in every store, and run the rule estimator again"
            )


def save_estimator(path: Path, trained: TrainedEstimator) -> None:
    """Write an estimator and the people on whom it was trained."""
    network = trained.network
    content = {
        "format": 1,
        "estimator": {key: value.cpu() for key, value in network.state_dict().items()},
        "channels": network.channels,
        "size": list(network.size),
        "trained_on": list(trained.trained_on),
    }
    write_mapping(path, content)


def load_estimator(path: Path, device: torch.device | str = "cpu") -> TrainedEstimator:
    """Read an estimator and put it in evaluation mode."""
    content = read_mapping(path, device)
    network = GazeHeadEstimator(content["channels"], tuple(content["size"]))
    network.load_state_dict(content["estimator"])
    return TrainedEstimator(network.to(device).eval(), content["trained_on"])


def train_estimator(
    people: People, settings: Estimator, device: torch.device, done: Callable[[int], None]
) -> GazeHeadEstimator:
    """Train an estimator to minimise the mean angular error of gaze and head.

    Args:
        people: train people, in memory.
        settings: the config section.
        device: device to train on.
        done: called with the number of strips seen so far.

    Raises:
        UserError: the training diverged.
    """
    torch.manual_seed(SEED)
    network = GazeHeadEstimator(settings.channels, people.size).to(device)
    optimizer = torch.optim.AdamW(network.parameters(), settings.lr, weight_decay=WEIGHT_DECAY)
    steps = -(-settings.strips // settings.batch)
    for step, indices in enumerate(_batches(len(people.labels), settings, steps)):
        for group in optimizer.param_groups:
            group["lr"] = settings.lr * _relative_rate((step + 1) / steps)
        image = to_network(people.gather(indices).to(device))
        image, wanted = vary(image, people.labels[indices].to(device), step)
        loss = sum(_errors_deg(network(image), wanted))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done(min((step + 1) * settings.batch, settings.strips))
    if not all(value.isfinite().all() for value in network.state_dict().values()):
        raise UserError("the training of the estimator diverged: train again with a lower estimator.lr")
    return network.eval()


def _relative_rate(share: float) -> float:
    """Return the learning rate, relative to its maximum, after the given share of training."""
    if share < WARMUP:
        return share / WARMUP
    return 0.5 + 0.5 * math.cos(math.pi * (share - WARMUP) / (1 - WARMUP))


def vary(image: Tensor, labels: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """Randomly mirror, recolour and blur strips.

    Args:
        image: (B, 3, H, W) in [-1, 1].
        labels: (B, 4) radians.
        step: number of the training step, which determines the random draws.
    """
    draw = torch.Generator().manual_seed(int(np.random.SeedSequence([SEED, step]).generate_state(1)[0]))
    count = len(image)
    mirrored = torch.rand(count, generator=draw).to(image.device) < 0.5
    image = torch.where(mirrored[:, None, None, None], image.flip(3), image)
    labels = torch.where(mirrored[:, None], labels * labels.new_tensor([1, -1, 1, -1]), labels)
    color = 1 + COLOR_SCALE * (2 * torch.rand(count, 3, 1, 1, generator=draw) - 1)
    image = ((image + 1) * color.to(image) - 1).clamp(-1, 1)
    blurred = blur(image, BLUR_PX * float(torch.rand((), generator=draw)))
    soft = torch.rand(count, generator=draw).to(image.device) < 0.5
    return torch.where(soft[:, None, None, None], blurred, image), labels


def blur(image: Tensor, sigma_px: float) -> Tensor:
    """Blur (B, 3, H, W) with a Gaussian of standard deviation `sigma_px`, cut off at two standard deviations."""
    reach = math.ceil(2 * sigma_px)
    if not reach:
        return image
    weights = torch.exp(-0.5 * (torch.arange(-reach, reach + 1) / sigma_px) ** 2)
    kernel = (weights / weights.sum()).to(image).expand(3, 1, -1)
    image = F.pad(image, (reach, reach, reach, reach), mode="replicate")
    image = F.conv2d(image, kernel[:, :, None], groups=3)
    return F.conv2d(image, kernel[:, :, :, None], groups=3)


def _errors_deg(estimated: Tensor, labels: Tensor) -> Iterator[Tensor]:
    """Yield the mean angular error of gaze, then that of head, in degrees, for angles (B, 4) in radians."""
    for a, b in zip(estimated.split(2, 1), labels.split(2, 1), strict=True):
        yield angle_deg(vector_from_pitchyaw(a, torch), vector_from_pitchyaw(b, torch)).mean()


def measure_errors(network: GazeHeadEstimator, store: StripStore) -> Iterator[dict[str, str | int | float]]:
    """Measure an estimator on the val and test people of a store, skipping splits without people.

    Yields:
        A row per split: dataset, split, number of people, and their mean errors gaze_deg and head_deg.
    """
    device = network.stem.weight.device
    for split in ("val", "test"):
        if store.of_split(split):
            people, errors = open_people(store, network.size, split=split), []
            for indices in people.person_indices():
                estimated = torch.from_numpy(estimate(network, to_network(people.gather(indices).to(device))))
                errors.append([float(error) for error in _errors_deg(estimated, people.labels[indices].double())])
            gaze, head = np.mean(errors, axis=0).tolist()
            row = {"dataset": store.dataset, "split": split, "people": len(errors)}
            yield row | {"gaze_deg": gaze, "head_deg": head}


@torch.inference_mode()
def estimate(network: GazeHeadEstimator, images: Tensor) -> NDArray[np.float64]:
    """Estimate the gaze and head pose, (N, 4) in radians, of strips (N, 3, H, W) in [-1, 1]."""
    parts = [network(some).double().cpu() for some in images.split(BATCH)]
    return torch.cat(parts).numpy()


def _batches(count: int, settings: Estimator, steps: int) -> Iterator[Tensor]:
    """Yield the indices of each step's strips; every epoch contains each strip once, in random order."""
    draw, order = np.random.default_rng(SEED), np.empty(0, np.int64)
    for _ in range(steps):
        while len(order) < settings.batch:
            order = np.concatenate([order, draw.permutation(count)])
        yield torch.from_numpy(order[: settings.batch])
        order = order[settings.batch :]
