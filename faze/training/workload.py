"""A workload: the training of any network, described by what the engine's switches do not decide."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from faze.engine.switches import Switch

Batch = dict[str, Tensor]


class Workload(ABC):
    """The training of one network, for an ablation. It is created without arguments; its sizes are attributes.

    No method may depend on the device, the number format or the number of processes: these belong to the switches.
    docs/tutorials/own-training.md contains an example.
    """

    batch_size: int  # samples per step, over all processes
    steps: int  # steps of a training run
    score: str  # what `validate` returns, with its unit: "error, %"
    higher_is_better: bool
    lr: float  # learning rate of all parameters; required unless parameter_groups is overridden
    momentum: float = 0.9  # momentum of SGD
    weight_decay: float = 0.0
    clip_norm: float = 0.0  # largest norm of an optimiser's gradient; 0: any
    # Published results of a similar training, shown on the page: speed-up and memory saving, as ratios, and the source.
    published_speed: float | None = None
    published_memory: float | None = None
    published: str = ""

    @abstractmethod
    def build(self) -> nn.Module:
        """Return the network, or several in one module, with first weights from torch's random state."""

    @abstractmethod
    def batch(self, number: int, seed: int) -> Batch:
        """Return a step's batch, on the CPU. It depends on the two numbers only.

        Args:
            number: index of the step, from 0.
            seed: seed of the training run.

        Returns:
            Tensors whose first dimension is `batch_size`; a process, or a part of an accumulated step, gets a slice.
        """

    @abstractmethod
    def losses(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Mapping[str, Mapping[str, Tensor]]:
        """Return the loss terms of each optimiser, by its name and theirs: scalars that are means over the samples.

        One call must return all terms. No term may reach the parameters of another optimiser; see `detached`.
        """

    @abstractmethod
    def validate(self, model: nn.Module) -> float | dict[str, float]:
        """Evaluate the model, which is in evaluation mode and computes in float32, on data that no batch contains."""

    def parameter_groups(self, model: nn.Module) -> Mapping[str, list[dict]]:
        """Return the groups of each optimiser, by its name; a group has `params` and `lr`. The default is one group."""
        return {"network": [{"params": list(model.parameters()), "lr": self.lr}]}

    def rate(self, number: int) -> float:
        """Return the factor of all learning rates in a step; by default 1."""
        return 1.0

    # Only training with stored samples or schedules of its own, such as DT-ED's, overrides these:

    chunk = 1  # samples that the losses compare with each other, so that no process may have a part of them
    unit, images = "samples", 1  # in which the log counts throughput, and how many of them a sample has
    workers = 0  # loader processes
    pixel_source: str | None = None  # of stored strips (`faze.data.strips`)
    code = ""  # hash of a user's class and what it imports
    identity = ""  # of stored samples and given weights: a checkpoint with another one is not resumed
    notes: tuple[str, ...] = ()  # for the run log

    @property
    def samples(self) -> int:
        """The number of samples of a training run."""
        return self.steps * self.batch_size

    @property
    def every(self) -> tuple[int, int, int]:
        """Samples from one log line, validation and checkpoint to the next."""
        return max(1, self.samples // 50), max(1, self.samples // 10), max(1, self.samples // 10)

    def read(self, batch: Batch) -> Batch:
        """Read a process's slice of a batch, on the host, perhaps in a loader process."""
        return batch

    def prepare(self, batch: Batch) -> Batch:
        """Convert a batch, which is on the device, to the network's input."""
        return batch

    def keep_resident(self, wanted: bool, device: torch.device) -> Switch:
        """Keep all stored samples on the device, if this is `wanted` and possible."""
        return Switch.of("resident", wanted, "the workload generates its batches")

    def rates(self, seen: int, first: Sequence[float]) -> list[float]:
        """Return the learning rate of each group after `seen` samples; `first` are those of parameter_groups."""
        return [rate * self.rate(seen // self.batch_size) for rate in first]

    def weights(self, seen: int) -> dict[str, float]:
        """Return the weight of each loss term after `seen` samples; {}: all weights are 1."""
        return {}

    def network(self, model: nn.Module) -> nn.Module:
        """Return the part of the model whose weights a checkpoint keeps."""
        return model

    def about(self, model: nn.Module) -> dict[str, object]:
        """Return the other entries of a checkpoint that describe the network."""
        return {}


def call_directly(part: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """Call a part of a network; `checkpointing` replaces this, to recompute the part's activations."""
    return part(*inputs)


def detached(model: nn.Module, *inputs: Tensor) -> Tensor:
    """Call a network so that its output has gradients for the inputs, but none for its parameters."""
    return functional_call(model, {name: p.detach() for name, p in model.named_parameters()}, inputs)
