"""One optimisation step. It does not branch on switches, which are resolved when the step is built.

It never waits for the device: numbers that change between steps are written to the device, and none is read back. The
one exception is in torch: if the optimiser is not fused, the loss scaler reads back whether to skip the step.
"""

import contextlib
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from faze.engine.precision import Context, Scaler
from faze.engine.switches import Switch

Clock = Callable[[str], contextlib.AbstractContextManager]
no_clock: Clock = contextlib.nullcontext  # measures nothing


class DeviceNumbers:
    """Named scalars in one tensor on the device. A captured graph reads them there, but would freeze Python numbers."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._tensor = torch.empty(0, device=device, dtype=dtype)
        self._views: dict[str, Tensor] = {}

    def __call__(self, values: Mapping[str, float]) -> dict[str, Tensor]:
        """Set the numbers without waiting for the device; return scalar tensors, reused if the names are unchanged."""
        if list(self._views) != list(values):
            self._tensor = self._tensor.new_empty(len(values))
            self._views = dict(zip(values, self._tensor.unbind(), strict=True))
        # Use a new host tensor each time, because the device may not have copied the previous one yet.
        fresh = torch.tensor(list(values.values()), dtype=self._tensor.dtype, pin_memory=self._tensor.is_cuda)
        self._tensor.copy_(fresh, non_blocking=True)
        return self._views


@dataclass(frozen=True)
class Update:
    """An optimiser with its loss scaler and gradient clipping. Call it after the backward pass."""

    name: str
    prefix: str  # begins the names of its loss terms; "" if it is the only optimiser
    optimizer: torch.optim.Optimizer
    scaler: Scaler  # may be shared with other optimisers
    clip_norm: float  # a gradient with a larger norm is scaled down to this norm; 0: no limit

    def __call__(self) -> None:
        """Update the weights from the gradients, which are averaged over all processes."""
        if self.clip_norm:
            self.scaler.unscale_(self.optimizer)  # no effect without loss scaling; step() still skips overflows
            parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
            nn.utils.clip_grad_norm_(parameters, self.clip_norm, foreach=False)
        self.scaler.step(self.optimizer)


@dataclass(frozen=True)
class Step:
    """The composed engine. Call it with a batch.

    All loss terms come from one forward pass. All gradients come from one backward pass, so that processes exchange
    them once. A term must not reach the parameters of another term's optimiser.
    """

    model: nn.Module  # the objective inside its parallel wrapper; returns named loss terms
    updates: tuple[Update, ...]
    set_to_none: bool
    part_contexts: tuple[Context, ...]  # for each part of a batch; processes exchange gradients only in the last one
    replicas: int  # of the model in this process: one, or one per device under DataParallel
    weights: DeviceNumbers
    launch: "Launch"
    settling_steps: int  # number of initial steps, whose duration differs from that of later steps
    switches: tuple[Switch, ...]

    def __call__(
        self, batch: Mapping[str, Tensor], weights: Mapping[str, float], clock: Clock = no_clock
    ) -> dict[str, Tensor]:
        """Train on this process's share of the global batch, with a weight for each loss term ({}: all weights are 1).

        Return the loss terms and their weighted sum `loss`, as detached scalars on the device.
        """
        return self.launch(self, batch, self.weights(weights), clock)

    def add_gradients(
        self, batch: Mapping[str, Tensor], weights: Mapping[str, Tensor], clock: Clock
    ) -> dict[str, Tensor]:
        """Run the forward and backward passes, part by part; return the loss terms and `loss`, detached."""
        means: dict[str, Tensor] = {}
        parts = {name: value.chunk(len(self.part_contexts)) for name, value in batch.items()}
        for number, context in enumerate(self.part_contexts):
            with context():
                terms = self._add_part({name: part[number] for name, part in parts.items()}, weights, clock)
            means = {name: means.get(name, 0.0) + term for name, term in terms.items()}
        return means

    def _add_part(self, part: Mapping[str, Tensor], weights: Mapping[str, Tensor], clock: Clock) -> dict[str, Tensor]:
        with clock("forward"):
            # DataParallel gathers one value per replica; all replicas and parts have the same number of chunks.
            terms = {name: term.mean() / len(self.part_contexts) for name, term in self.model(part).items()}
            weighted = {name: weights[name] * term for name, term in terms.items()} if weights else terms
            losses = [
                torch.stack([term for name, term in weighted.items() if name.startswith(u.prefix)]).sum()
                for u in self.updates
            ]
        with clock("backward"):
            scaled = [u.scaler.scale(loss) for u, loss in zip(self.updates, losses, strict=True)]
            functools.reduce(torch.add, scaled).backward()
        total = functools.reduce(torch.add, [loss.detach() for loss in losses])
        return {"loss": total} | {name: term.detach() for name, term in terms.items()}

    def update(self) -> None:
        """Update the weights from the gradients."""
        for update in self.updates:
            update()
        for scaler in self.scalers:
            scaler.update()

    @property
    def scalers(self) -> list[Scaler]:
        """The distinct loss scalers."""
        return list(dict.fromkeys(update.scaler for update in self.updates))

    @property
    def groups(self) -> list[dict]:
        """The parameter groups of all optimisers, in order."""
        return [group for update in self.updates for group in update.optimizer.param_groups]

    @property
    def group_names(self) -> list[str]:
        """The groups' names or numbers, each preceded by its optimiser's name if there are several optimisers."""
        names = []
        for update in self.updates:
            groups = update.optimizer.param_groups
            for number, group in enumerate(groups):
                own = [str(group.get("name", number))] if "name" in group or len(groups) > 1 else []
                names.append("/".join(own if len(self.updates) == 1 else [update.name, *own]))
        return names

    def counts(self) -> dict[str, float]:
        """Return the number of skipped steps for the run log, or {} without loss scaling. This waits for the device."""
        enabled = [float(scaler.skipped) for scaler in self.scalers if scaler.is_enabled()]
        return {"train/skipped_steps": sum(enabled)} if enabled else {}

    @property
    def shares(self) -> int:
        """Number of pieces into which a process splits its batch: replicas times parts."""
        return self.replicas * len(self.part_contexts)

    def set_learning_rates(self, rates: list[float]) -> None:
        """Set the groups' learning rates, rounded to float32 in every tier because fused kernels use that dtype."""
        for group, rate in zip(self.groups, rates, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = float(np.float32(rate))

    def state_dict(self) -> dict:
        """Return the states of the optimisers and the scalers for a checkpoint."""
        return {
            "optimizers": {update.name: update.optimizer.state_dict() for update in self.updates},
            "scalers": [scaler.state_dict() for scaler in self.scalers],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state from a checkpoint."""
        for update in self.updates:
            update.optimizer.load_state_dict(state["optimizers"][update.name])
        for scaler, saved in zip(self.scalers, state["scalers"], strict=True):
            if saved:
                scaler.load_state_dict(saved)


Launch = Callable[[Step, Mapping[str, Tensor], Mapping[str, Tensor], Clock], dict[str, Tensor]]


def launch_eagerly(
    step: Step, batch: Mapping[str, Tensor], weights: Mapping[str, Tensor], clock: Clock
) -> dict[str, Tensor]:
    """Launch a step's kernels one by one; return the loss terms and `loss`."""
    terms = step.add_gradients(batch, weights, clock)
    with clock("optimizer"):
        step.update()
        for update in step.updates:
            update.optimizer.zero_grad(set_to_none=step.set_to_none)
    return terms
