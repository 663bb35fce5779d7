"""A workload: the training of any network, described by what the engine's switches do not decide."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from torch import Tensor, nn
from torch.func import functional_call


class Workload(ABC):
    """The training of one network, for an ablation. It is created without arguments; its sizes are attributes.

    No method may depend on the device, the number format or the number of processes: these belong to the switches.
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

    def parameter_groups(self, model: nn.Module) -> Mapping[str, list[dict]]:
        """Return the groups of each optimiser, by its name; a group has `params` and `lr`. The default is one group."""
        return {"network": [{"params": list(model.parameters()), "lr": self.lr}]}

    @abstractmethod
    def batch(self, number: int, seed: int) -> dict[str, Tensor]:
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
    def validate(self, model: nn.Module) -> float:
        """Evaluate the model, which is in evaluation mode and computes in float32, on data that no batch contains."""

    def rate(self, number: int) -> float:
        """Return the factor of all learning rates in a step; by default 1."""
        return 1.0


def call_directly(part: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """Call a part of a network; `checkpointing` replaces this, to recompute the part's activations."""
    return part(*inputs)


def detached(model: nn.Module, *inputs: Tensor) -> Tensor:
    """Call a network so that its output has gradients for the inputs, but none for its parameters."""
    return functional_call(model, {name: p.detach() for name, p in model.named_parameters()}, inputs)
