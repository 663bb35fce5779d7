"""A workload: the training of any network, described by everything that the engine's switches do not determine."""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.data import Dataset

from faze.base.errors import UserError
from faze.engine.switches import Switch

Batch = dict[str, Tensor]


class Workload(ABC):
    """The training of one network, for an ablation. It is created without arguments; its sizes are attributes.

    No method may depend on the device, the number format or the number of processes, which the switches determine.
    docs/tutorials/own-training.md contains an example.
    """

    batch_size: int  # samples per step, over all processes
    steps: int  # steps of a training run
    score: str  # what `validate` returns, with its unit: "error, %"
    higher_is_better: bool
    lr: float  # learning rate of all parameters; required unless parameter_groups is overridden
    momentum: float = 0.9  # momentum of SGD
    weight_decay: float = 0.0
    clip_norm: float = 0.0  # largest norm of an optimiser's gradient; 0: no limit
    # Published results of a similar training, shown on the page: speed-up and memory saving, as ratios, and the source.
    published_speed: float | None = None
    published_memory: float | None = None
    published: str = ""

    @abstractmethod
    def build(self) -> nn.Module:
        """Return the network, or several in one module, with initial weights drawn from torch's random state."""

    @abstractmethod
    def batch(self, number: int, seed: int) -> Batch:
        """Return the batch of step `number` (from 0) on the CPU. It must depend only on the two arguments.

        The first dimension of each tensor is `batch_size`; each process or part of an accumulated step gets a slice.
        """

    @abstractmethod
    def losses(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Mapping[str, Mapping[str, Tensor]]:
        """Return the loss terms as {optimiser: {name: scalar}}; each scalar is a mean over the samples.

        One call must return all terms. No term may reach the parameters of another optimiser; see `detached`.
        """

    @abstractmethod
    def validate(self, model: nn.Module) -> float | dict[str, float]:
        """Evaluate the model, which is in evaluation mode and computes in float32, on data that no batch contains."""

    def parameter_groups(self, model: nn.Module) -> Mapping[str, list[dict]]:
        """Return the parameter groups by optimiser name; a group has `params` and `lr`. The default is one group."""
        return {"network": [{"params": [p for p in model.parameters() if p.requires_grad], "lr": self.lr}]}

    def rate(self, number: int) -> float:
        """Return the factor by which all learning rates are multiplied in a step; 1 by default."""
        return 1.0

    # Only workloads with stored samples or their own schedules, such as DT-ED's, override the following:

    chunk = 1  # number of samples that losses compare with each other; one process must get all of them
    unit, images = "samples", 1  # unit of throughput in the log, and the number of units per sample
    workers = 0  # loader processes
    pixel_source: str | None = None  # of stored strips (`faze.data.strips`)
    code = ""  # hash of a user's class and what it imports
    identity = ""  # of stored samples and given weights; training resumes only from a checkpoint with the same identity
    notes: tuple[str, ...] = ()  # for the run log

    @property
    def samples(self) -> int:
        """The number of samples in a training run."""
        return self.steps * self.batch_size

    @property
    def every(self) -> tuple[int, int, int]:
        """The intervals, in samples, between log lines, validations and checkpoints, respectively."""
        return max(1, self.samples // 50), max(1, self.samples // 10), max(1, self.samples // 10)

    def read(self, batch: Batch) -> Batch:
        """Read a process's slice of a batch on the host, possibly in a loader process."""
        return batch

    def prepare(self, batch: Batch) -> Batch:
        """Convert a batch that is already on the device to the network's input."""
        return batch

    def keep_resident(self, wanted: bool, device: torch.device) -> Switch:
        """Keep all stored samples on the device if `wanted` and possible; return the resulting `Switch`."""
        return Switch.of("resident", wanted, "the workload generates its batches")

    def rates(self, seen: int, first: Sequence[float]) -> list[float]:
        """Return each group's learning rate after `seen` samples; `first` contains the rates in parameter_groups."""
        return [rate * self.rate(seen // self.batch_size) for rate in first]

    def weights(self, seen: int) -> dict[str, float]:
        """Return the weight of each loss term after `seen` samples; {} means that all weights are 1."""
        return {}

    def network(self, model: nn.Module) -> nn.Module:
        """Return the part of the model whose weights a checkpoint contains."""
        return model

    def about(self, model: nn.Module) -> dict[str, object]:
        """Return the other entries of a checkpoint that describe the network."""
        return {}


@dataclass(frozen=True)
class Batches(Dataset):
    """The batches on the host; item `number` is this process's slice of the batch for step `number`."""

    workload: Workload
    seed: int
    rank: int = 0
    size: int = 1

    def __getitem__(self, number: int) -> Batch:
        whole, wanted, batch = self.workload.batch_size, torch.get_default_dtype(), {}
        count, given = whole // self.size, self.workload.batch(number, self.seed)
        for name, value in given.items():
            if not isinstance(value, Tensor) or value.shape[:1] != (whole,):
                fault = f"{name} in batch({number}, {self.seed}) is not a tensor of batch_size {whole} rows"
                raise UserError(f"{fault}: stack or pad samples, skip incomplete batches, keep constants elsewhere")
            rows = value[self.rank * count : (self.rank + 1) * count]
            batch[name] = rows.to(wanted) if rows.is_floating_point() else rows
        return self.workload.read(batch)


def seed_draws(*numbers: int) -> None:
    """Seed the generators from which a network or its losses may draw: torch's, NumPy's and Python's."""
    seed = int(np.random.SeedSequence(numbers).generate_state(1)[0])
    for set_seed in (random.seed, np.random.seed, torch.manual_seed):
        set_seed(seed)


def call_directly(part: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """Call a part of a network; `checkpointing` replaces this function to recompute the part's activations."""
    return part(*inputs)


def detached(model: nn.Module, *inputs: Tensor) -> Tensor:
    """Call a network so that gradients flow from its output to its inputs, but not to its parameters."""
    return functional_call(model, {name: p.detach() for name, p in model.named_parameters()}, inputs)
