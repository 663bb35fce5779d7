"""One optimisation step. It has no branch on a switch: every switch was decided while building.

Nothing in it waits for the device: numbers that change from step to step are written to the device, none is read back.
The one exception is torch's: a loss scaler in front of an optimiser that is not fused asks whether to skip the step.
"""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from faze.engine.memory import in_parts
from faze.engine.precision import Scaler
from faze.engine.switches import Switch

Clock = Callable[[str], contextlib.AbstractContextManager]


def no_clock(phase: str) -> contextlib.AbstractContextManager:
    """Time nothing."""
    return contextlib.nullcontext()


class DeviceNumbers:
    """Named numbers in one tensor on the device; a captured graph reads them there, it would freeze Python's."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._tensor = torch.empty(0, device=device, dtype=dtype)
        self._views: dict[str, Tensor] = {}

    def __call__(self, values: Mapping[str, float]) -> dict[str, Tensor]:
        """Set the numbers without waiting for the device; scalars keep their addresses while the names stay."""
        if self._views.keys() != values.keys():
            self._tensor = self._tensor.new_empty(len(values))
            self._views = dict(zip(values, self._tensor.unbind(), strict=True))
        in_order = [values[name] for name in self._views]
        # From memory that is new each time: the last copy may still be under way when the host writes the next numbers.
        fresh = torch.tensor(in_order, dtype=self._tensor.dtype, pin_memory=self._tensor.is_cuda)
        self._tensor.copy_(fresh, non_blocking=True)
        return self._views


@dataclass(frozen=True)
class Step:
    """The composed engine: call it with a batch."""

    model: nn.Module  # the objective inside its parallel wrapper; returns named loss terms
    optimizer: torch.optim.Optimizer
    scaler: Scaler
    clip: Callable[[], None]  # shortens long gradients, in place
    set_to_none: bool
    exchanges: tuple[Callable[[], contextlib.AbstractContextManager], ...]  # the context of each part of a batch
    replicas: int  # of the model in this process: one, or one per device under DataParallel
    weights: DeviceNumbers
    launch: "Launch"
    settling_steps: int  # the first ones, which take another time than all that follow
    switches: tuple[Switch, ...]

    def __call__(
        self, batch: Mapping[str, Tensor], weights: Mapping[str, float], clock: Clock = no_clock
    ) -> dict[str, Tensor]:
        """Train on one batch.

        Args:
            batch: this process's share of the global batch.
            weights: of the loss terms.
            clock: times the phases forward, backward and optimizer; or graph, where they are one.

        Returns:
            The loss terms and their weighted `loss`, detached scalars on the device.
        """
        return self.launch(self, batch, self.weights(weights), clock)

    def add_gradients(
        self, batch: Mapping[str, Tensor], weights: Mapping[str, Tensor], clock: Clock
    ) -> dict[str, Tensor]:
        """Run forward and backward pass, part by part; return the loss terms and their weighted `loss`, detached."""
        means: dict[str, Tensor] = {}
        for part, exchange in zip(in_parts(batch, len(self.exchanges)), self.exchanges, strict=True):
            with exchange():
                terms = self._add_part(part, weights, clock)
            means = {name: means.get(name, 0.0) + term for name, term in terms.items()}
        return means

    def _add_part(self, part: Mapping[str, Tensor], weights: Mapping[str, Tensor], clock: Clock) -> dict[str, Tensor]:
        with clock("forward"):
            # DataParallel gathers one value per replica; all replicas and parts hold equally many chunks.
            terms = {name: term.mean() / len(self.exchanges) for name, term in self.model(part).items()}
            loss = torch.stack([weights[name] * term for name, term in terms.items()]).sum()
        with clock("backward"):
            self.scaler.scale(loss).backward()
        return {"loss": loss.detach()} | {name: term.detach() for name, term in terms.items()}

    def update(self) -> None:
        """Move the weights by the gradients."""
        self.clip()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def clear(self) -> None:
        """Forget the gradients."""
        self.optimizer.zero_grad(set_to_none=self.set_to_none)

    @property
    def shares(self) -> int:
        """Pieces into which a process cuts its batch: replicas times parts."""
        return self.replicas * len(self.exchanges)

    def set_learning_rates(self, rates: list[float]) -> None:
        """Set the learning rate of each parameter group, in order.

        In every tier it is a float32 number, since fused kernels read theirs from a float32 tensor on the device.
        """
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = float(np.float32(rate))

    def state_dict(self) -> dict:
        """Give the state of optimiser and scaler for a checkpoint."""
        return {"optimizer": self.optimizer.state_dict(), "scaler": self.scaler.state_dict()}

    def load_state_dict(self, state: Mapping[str, dict]) -> None:
        """Continue from a checkpoint."""
        self.optimizer.load_state_dict(state["optimizer"])
        if state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])


Launch = Callable[[Step, Mapping[str, Tensor], Mapping[str, Tensor], Clock], dict[str, Tensor]]


def at_once(step: Step, batch: Mapping[str, Tensor], weights: Mapping[str, Tensor], clock: Clock) -> dict[str, Tensor]:
    """Launch a step's kernels one by one, as Python comes to them."""
    terms = step.add_gradients(batch, weights, clock)
    with clock("optimizer"):
        step.update()
        step.clear()
    return terms
