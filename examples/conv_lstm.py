"""Video prediction with the convolutional tensor-train LSTM of the talk's tutorial (Su et al., NeurIPS 2020)."""

from collections.abc import Mapping
from math import cos, pi

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faze.training.workload import Workload, call_directly


class Cell(nn.Module):
    """An LSTM cell whose gates depend on its last few outputs, through a chain of convolutions with few channels.

    The chain is a tensor train. It has fewer weights than one convolution over all outputs but launches more kernels.
    """

    def __init__(self, inputs: int, width: int, order: int, rank: int, kernel: int):
        super().__init__()
        self.width = width
        self.inputs = nn.Conv2d(inputs, 4 * width, kernel, padding=kernel // 2)
        self.reduce = nn.ModuleList(nn.Conv2d(width, rank, kernel, padding=kernel // 2) for _ in range(order))
        channels = [rank] * (order - 1) + [4 * width]
        self.chain = nn.ModuleList(nn.Conv2d(rank, c, kernel, padding=kernel // 2, bias=False) for c in channels)

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        """Return the next state (N, (order + 1) * width, H, W), given the input (N, inputs, H, W) and the state.

        The state contains the last `order` outputs, the latest one first, and the memory.
        """
        *outputs, memory = state.split(self.width, 1)
        train: Tensor | float = 0.0
        for output, reduce, link in zip(reversed(outputs), self.reduce, self.chain, strict=True):
            train = link(reduce(output) + train)
        keep, write, show, new = (self.inputs(x) + train).chunk(4, 1)
        memory = torch.sigmoid(keep) * memory + torch.sigmoid(write) * torch.tanh(new)
        return torch.cat([torch.sigmoid(show) * torch.tanh(memory), *outputs[:-1], memory], 1)


class Predictor(nn.Module):
    """Layers of cells that receive a video's first frames and then their own predictions."""

    def __init__(self, layers: int, width: int, order: int, rank: int, kernel: int, future: int):
        super().__init__()
        self.width, self.channels, self.future = width, (order + 1) * width, future
        self.cells = nn.ModuleList(Cell(width if i else 1, width, order, rank, kernel) for i in range(layers))
        self.frame = nn.Conv2d(layers * width, 1, 1)
        self.call = call_directly

    def forward(self, frames: Tensor) -> Tensor:
        """Predict the frame after each input frame, then `future - 1` more: (N, past, H, W) to (N, …, H, W)."""
        past, predictions = frames.shape[1], []
        # The memory is a sum over time steps, so it stays in float32 even if autocast computes the gates in 16 bits.
        zeros = frames.new_zeros(len(frames), self.channels, *frames.shape[2:], dtype=torch.get_default_dtype())
        states = [zeros for _ in self.cells]
        for step in range(past + self.future - 1):
            last = frames[:, step, None] if step < past else predictions[-1]
            x = last
            for layer, cell in enumerate(self.cells):
                states[layer] = self.call(cell, x, states[layer])
                x = states[layer][:, : self.width]
            change = self.frame(torch.cat([state[:, : self.width] for state in states], 1))
            predictions.append(last + change)
        return torch.cat(predictions, 1)


class ConvLSTM(Workload):
    """Prediction of bouncing-ball videos. The learning rate is for AdamW.

    An error of 100 % equals that of repeating the last frame, which is an L1 error of 0.095 for brightness from 0 to 1.
    """

    published_speed, published_memory = 5.5, 2.3
    published = (
        "NVIDIA's tutorial of 2020, eight V100: mixed precision, fused Adam, fused LSTM kernels, thread binding and "
        "checkpointing together"
    )
    batch_size, steps = 8, 600
    score, higher_is_better = "L1 error, % of the error of repeating the last frame", False
    lr, clip_norm = 6e-3, 1.0
    size, past, future = 16, 6, 4  # pixels, given frames, predicted frames
    balls, radius, speed = 2, 0.15, 0.1  # radius and largest speed per frame are relative to the image's side
    layers, width, order, rank, kernel = 2, 16, 2, 8, 3
    validation = 256  # videos

    def build(self) -> nn.Module:
        """Return the network."""
        return Predictor(self.layers, self.width, self.order, self.rank, self.kernel, self.future)

    def rate(self, number: int) -> float:
        """Return the learning-rate factor, which decays along half a cosine."""
        return (1 + cos(pi * number / self.steps)) / 2

    def batch(self, number: int, seed: int) -> dict[str, Tensor]:
        """Return the frames of videos (N, past + future, size, size)."""
        return {"frames": self.draw(self.batch_size, 1 + number + 1_000_000 * seed)}  # seed 0 is for validation

    def draw(self, count: int, seed: int) -> Tensor:
        """Return videos (count, past + future, size, size) in [0, 1] of blurred balls that bounce off the borders."""
        random = torch.rand(count, 1, self.balls, 2, 2, generator=torch.Generator().manual_seed(seed))
        start, velocity = 2 * random[..., 0], self.speed * (2 * random[..., 1] - 1)
        place = start + velocity * torch.arange(self.past + self.future)[:, None, None]
        place = self.radius + (1 - 2 * self.radius) * (place.remainder(2) - 1).abs()
        axis = torch.arange(0.5, self.size) / self.size
        x, y = torch.exp(-((axis - place[..., None]) / self.radius).square()).unbind(-2)
        return torch.einsum("nfby,nfbx->nfyx", y, x).clamp(max=1)

    def losses(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Mapping[str, Mapping[str, Tensor]]:
        """Return the mean absolute and squared errors of all predictions, including those of input frames."""
        predicted, frames = model(batch["frames"][:, : self.past]).to(torch.get_default_dtype()), batch["frames"][:, 1:]
        return {"network": {"L1": F.l1_loss(predicted, frames), "MSE": F.mse_loss(predicted, frames)}}

    def validate(self, model: nn.Module) -> float:
        """Return the mean absolute error of future frames, as a percentage of the error of repeating the last input."""
        past, future = self.draw(self.validation, 0).split([self.past, self.future], 1)
        device = next(model.parameters()).device
        predicted = torch.cat([model(part.to(device))[:, -self.future :].cpu() for part in past.split(64)])
        return 100 * (F.l1_loss(predicted, future) / (past[:, -1:] - future).abs().mean()).item()


class PaperConvLSTM(ConvLSTM):
    """The ConvLSTM at roughly the paper's sizes: 128 pixels, 10 input and 10 predicted frames, 5-pixel kernels."""

    batch_size, lr = 16, 1e-3
    size, past, future = 128, 10, 10
    balls, radius, speed = 3, 0.08, 0.05
    layers, width, order, rank, kernel = 4, 48, 3, 8, 5
    steps, validation = 200, 16
