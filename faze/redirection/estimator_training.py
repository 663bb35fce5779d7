"""Training the estimator that judges redirected strips, on the real strips of train people.

Decoded strips are blurred where real ones are sharp, so half of the strips that it learns from are blurred as well;
every other one is mirrored, and each has its colours changed. What is drawn depends on seed and step alone.

Shapes: B strips of H x W pixels.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from faze.base.errors import UserError
from faze.base.geometry import vector_from_pitchyaw
from faze.config.parameters import Estimator
from faze.data.network_input import to_network
from faze.data.pairs import PeopleStrips
from faze.data.store.strips import StripStore
from faze.model.losses import angle_deg
from faze.redirection.estimator import GazeHeadEstimator

WARMUP = 0.05  # share of the training in which the rate rises; then it falls along a half cosine
COLOR_SCALE = 0.2  # largest change of a colour
TOGETHER = 128  # strips judged at a time


def train_estimator(
    people: PeopleStrips, settings: Estimator, device: torch.device, done: Callable[[int], None]
) -> GazeHeadEstimator:
    """Train an estimator, by the mean angle of gaze and head.

    Args:
        people: train people, held in memory.
        settings: sizes, rates and how long.
        device: where it trains.
        done: told how many strips were seen.

    Raises:
        UserError: the training diverged.
    """
    torch.manual_seed(settings.seed)
    network = GazeHeadEstimator(settings.channels, people.size).to(device)
    optimizer = torch.optim.AdamW(network.parameters(), settings.lr, weight_decay=settings.weight_decay)
    labels = torch.from_numpy(np.concatenate(people.labels))
    steps = -(-settings.strips // settings.batch)
    for step, places in enumerate(_batches(len(labels), settings, steps)):
        for group in optimizer.param_groups:
            group["lr"] = settings.lr * rate((step + 1) / steps)
        image = to_network(people.gather(places).to(device), *people.size)
        image, wanted = vary(image, labels[places].to(device), settings, step)
        loss = mean_angles(network(image), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done(min((step + 1) * settings.batch, settings.strips))
    if not all(value.isfinite().all() for value in network.state_dict().values()):
        raise UserError("the training of the estimator diverged: train again with a lower estimator.lr")
    return network.eval()


def rate(share: float) -> float:
    """Give the learning rate at a share of the training, of the highest."""
    if share < WARMUP:
        return share / WARMUP
    return 0.5 + 0.5 * math.cos(math.pi * (share - WARMUP) / (1 - WARMUP))


def vary(image: Tensor, labels: Tensor, settings: Estimator, step: int) -> tuple[Tensor, Tensor]:
    """Mirror, colour and blur strips at random.

    Args:
        image: (B, 3, H, W) in [-1, 1].
        labels: (B, 4) radians.
        settings: how strong the blur may be, and the seed.
        step: whose draws.
    """
    draw = torch.Generator().manual_seed(int(np.random.SeedSequence([settings.seed, step]).generate_state(1)[0]))
    count = len(image)
    mirrored = torch.rand(count, generator=draw).to(image.device) < 0.5
    image = torch.where(mirrored[:, None, None, None], image.flip(3), image)
    labels = torch.where(mirrored[:, None], labels * labels.new_tensor([1, -1, 1, -1]), labels)
    color = 1 + COLOR_SCALE * (2 * torch.rand(count, 3, 1, 1, generator=draw) - 1)
    image = ((image + 1) * color.to(image) - 1).clamp(-1, 1)
    blurred = blur(image, settings.blur_px * float(torch.rand((), generator=draw)))
    soft = torch.rand(count, generator=draw).to(image.device) < 0.5
    return torch.where(soft[:, None, None, None], blurred, image), labels


def blur(image: Tensor, sigma_px: float) -> Tensor:
    """Blur (B, 3, H, W) by a Gaussian."""
    reach = math.ceil(2 * sigma_px)
    if not reach:
        return image
    weights = torch.exp(-0.5 * (torch.arange(-reach, reach + 1) / sigma_px) ** 2)
    kernel = (weights / weights.sum()).to(image).expand(3, 1, -1)
    image = F.pad(image, (reach, reach, reach, reach), mode="replicate")
    image = F.conv2d(image, kernel[:, :, None], groups=3)
    return F.conv2d(image, kernel[:, :, :, None], groups=3)


def mean_angles(estimated: Tensor, labels: Tensor) -> Tensor:
    """Average the angle between directions over strips, gaze plus head, in degrees; (B, 4) each."""
    both = zip(estimated.split(2, 1), labels.split(2, 1), strict=True)
    return sum(angle_deg(vector_from_pitchyaw(a, torch), vector_from_pitchyaw(b, torch)).mean() for a, b in both)


def measure_errors(network: GazeHeadEstimator, strips: StripStore) -> Iterator[dict[str, str | int | float]]:
    """Measure the estimator on val and test people of a store; a split without people is passed over.

    Yields:
        dataset, split, people, and means over people gaze_deg and head_deg.
    """
    for split in ("val", "test"):
        people = [person for person in strips.persons(split) if strips.count(person)]
        if people:
            gaze, head = np.mean([_errors_of(network, strips, person) for person in people], axis=0).tolist()
            who = {"dataset": strips.dataset, "split": split, "people": len(people)}
            yield who | {"gaze_deg": gaze, "head_deg": head}


@torch.inference_mode()
def estimate(network: GazeHeadEstimator, images: Tensor) -> NDArray[np.float64]:
    """Estimate (N, 4) gaze and head of strips (N, 3, H, W) in [-1, 1]; radians."""
    parts = [network(some).double().cpu() for some in images.split(TOGETHER)]
    return torch.cat(parts).numpy()


def _errors_of(network: GazeHeadEstimator, strips: StripStore, person: str) -> tuple[float, float]:
    """Measure gaze and head error of one person, degrees."""
    device = network.stem.weight.device
    images = to_network(torch.from_numpy(strips.pixels(person)).to(device), *network.size)
    found, labels = torch.from_numpy(estimate(network, images)), torch.from_numpy(strips.labels(person)).double()
    pairs = zip(found.split(2, 1), labels.split(2, 1), strict=True)
    return tuple(
        float(angle_deg(vector_from_pitchyaw(a, torch), vector_from_pitchyaw(b, torch)).mean()) for a, b in pairs
    )


def _batches(count: int, settings: Estimator, steps: int) -> Iterator[Tensor]:
    """Draw the places of each step's strips, every strip once per epoch, in random order."""
    draw, order = np.random.default_rng(settings.seed), np.empty(0, np.int64)
    for _ in range(steps):
        while len(order) < settings.batch:
            order = np.concatenate([order, draw.permutation(count)])
        yield torch.from_numpy(order[: settings.batch])
        order = order[settings.batch :]
