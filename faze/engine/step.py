"""One optimisation step. It has no branch on a switch: every switch was decided while building."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from faze.engine.memory import in_parts
from faze.engine.precision import Scaler
from faze.engine.switches import Switch

Clock = Callable[[str], contextlib.AbstractContextManager]


def no_clock(phase: str) -> contextlib.AbstractContextManager:
    """Time nothing."""
    return contextlib.nullcontext()


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
    switches: tuple[Switch, ...]

    def __call__(
        self, batch: Mapping[str, Tensor], weights: Mapping[str, float], clock: Clock = no_clock
    ) -> dict[str, Tensor]:
        """Train on one batch.

        Args:
            batch: this process's share of the global batch.
            weights: of the loss terms.
            clock: times the phases forward, backward and optimizer.

        Returns:
            The loss terms and their weighted `loss`, detached scalars on the device.
        """
        means: dict[str, Tensor] = {}
        for part, exchange in zip(in_parts(batch, len(self.exchanges)), self.exchanges, strict=True):
            with exchange():
                terms = self._add_gradients(part, weights, clock)
            means = {name: means.get(name, 0.0) + term for name, term in terms.items()}
        with clock("optimizer"):
            self.clip()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad(set_to_none=self.set_to_none)
        return means

    def _add_gradients(
        self, part: Mapping[str, Tensor], weights: Mapping[str, float], clock: Clock
    ) -> dict[str, Tensor]:
        """Forward and backward pass of one part; what it adds to the step's terms and loss, detached."""
        with clock("forward"):
            # DataParallel gathers one value per replica; all replicas and parts hold equally many chunks.
            terms = {name: term.mean() / len(self.exchanges) for name, term in self.model(part).items()}
            loss = torch.stack([weights[name] * term for name, term in terms.items()]).sum()
        with clock("backward"):
            self.scaler.scale(loss).backward()
        return {"loss": loss.detach()} | {name: term.detach() for name, term in terms.items()}

    @property
    def shares(self) -> int:
        """Pieces into which a process cuts its batch: replicas times parts."""
        return self.replicas * len(self.exchanges)

    def set_learning_rates(self, rates: list[float]) -> None:
        """Set the learning rate of each parameter group, in order."""
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate

    def state_dict(self) -> dict:
        """Optimiser and scaler, for a checkpoint."""
        return {"optimizer": self.optimizer.state_dict(), "scaler": self.scaler.state_dict()}

    def load_state_dict(self, state: Mapping[str, dict]) -> None:
        """Continue from a checkpoint."""
        self.optimizer.load_state_dict(state["optimizer"])
        if state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
