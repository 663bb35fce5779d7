"""An estimator of gaze and head pose that judges redirected strips: a small residual network, no part of DT-ED.

Another architecture, other weights, and training on real strips alone (He et al. 2016; the use as a judge: ST-ED, Zheng
et al., NeurIPS 2020, section 4.2). What it makes of real strips, the floor, stands beside whatever it judges.

Shapes: B strips of H x W pixels, C channels.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.data.store.strips import StripStore
from faze.model.torch_file import is_format, read_mapping

FORMAT = 1
GRID = (2, 8)  # where in the strip features were found is kept this finely


class ResidualBlock(nn.Module):
    """Two convolutions, added to what came in."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Conv2d(channels_in, channels, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """(B, C_in, H, W) -> (B, C, H / stride, W / stride)."""
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class GazeHeadEstimator(nn.Module):
    """Estimates gaze and head pose of a strip.

    Args:
        channels: C of the first block; each of the three that follow has twice as many, at half the size.
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
        nn.init.normal_(self.angles.weight, std=1e-3)  # begins by looking straight ahead
        nn.init.zeros_(self.angles.bias)

    def forward(self, image: Tensor) -> Tensor:
        """(B, 3, H, W) in [-1, 1] -> (B, 4) gaze pitch, yaw, head pitch, yaw, radians."""
        features = self.blocks(F.relu(self.norm(self.stem(image))))
        return self.angles(self.pool(features).flatten(1))


@dataclass(frozen=True, eq=False)
class TrainedEstimator:
    """An estimator, and whom it must not judge."""

    network: GazeHeadEstimator  # in evaluation mode
    trained_on: Collection[str]  # digest of each person (`StripStore.person_digest`)

    def check_size(self, path: Path, height: int, width: int) -> None:
        """Refuse pictures of another size, px.

        Raises:
            UserError: naming the file and both sizes.
        """
        if self.network.size != (height, width):
            own = "{} x {}".format(*self.network.size)
            raise UserError(
                f"{path}: judges strips of {own} px, but the network makes them {height} x {width}: make it again with "
                "the rule estimator"
            )

    def check_strangers(self, path: Path, strips: StripStore, people: Collection[str]) -> None:
        """Refuse to judge people whom the estimator was trained on.

        Raises:
            UserError: naming them.
        """
        known = set(self.trained_on)
        familiar = [person for person in people if strips.person_digest(person) in known]
        if familiar:
            raise UserError(
                f"{path}: the estimator was trained on {', '.join(familiar)}, whom it is to judge: give test "
                "people the split test in every store, and train the estimator again"
            )


def save_estimator(path: Path, trained: TrainedEstimator) -> None:
    """Write an estimator, and whom it must not judge."""
    network = trained.network
    content = {
        "format": FORMAT,
        "estimator": {key: value.cpu() for key, value in network.state_dict().items()},
        "channels": network.channels,
        "size": list(network.size),
        "trained_on": list(trained.trained_on),
    }
    with whole_file(path) as temporary:
        torch.save(content, temporary)


def load_estimator(path: Path, device: torch.device | str = "cpu") -> TrainedEstimator:
    """Read an estimator, in evaluation mode.

    Raises:
        UserError: the file is missing, torn, or no estimator.
    """
    content = read_mapping(path, device)
    if not is_format(content, FORMAT) or "estimator" not in content:
        raise UserError(f"{path}: not an estimator of faze, format {FORMAT}; make it again with the rule estimator")
    try:
        return _fill(content, device)
    except (KeyError, TypeError, RuntimeError, ValueError, AttributeError, OverflowError) as error:
        reason = (str(error).splitlines() or [""])[0][:200]
        raise UserError(f"{path}: not a whole estimator ({reason}); make it again") from None


def _fill(content: Mapping[str, Any], device: torch.device | str) -> TrainedEstimator:
    height, width = content["size"]
    if not all(isinstance(number, int) and number > 0 for number in (height, width, content["channels"])):
        raise ValueError("sizes that are none")
    if not all(isinstance(digest, str) for digest in content["trained_on"]):
        raise ValueError("trained_on names nobody")
    with torch.device("meta"):  # whatever the file states, nothing is as large as that before it is known to hold it
        network = GazeHeadEstimator(content["channels"], (height, width))
    dtypes = {key: value.dtype for key, value in network.state_dict().items()}
    state = {key: value.to(dtypes.get(key, value.dtype)) for key, value in content["estimator"].items()}
    if not all(value.isfinite().all() for value in state.values()):
        raise ValueError("it holds nan or infinity")
    network.load_state_dict(state, assign=True)
    return TrainedEstimator(network.to(device).eval(), content["trained_on"])
