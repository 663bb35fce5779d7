"""What a training has measured since its last log line."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from faze.engine.parallel import World


@dataclass
class LogWindow:
    """Loss terms and time since the last log line; terms stay on the device until they are read."""

    terms: dict[str, Tensor] = field(default_factory=dict)
    steps: int = 0
    seconds: float = 0.0
    lost: Tensor | float = 0.0  # steps in a row, up to the last one, whose loss is not finite; on through all windows

    def add(self, terms: Mapping[str, Tensor]) -> None:
        """Count one step."""
        self.terms = {name: self.terms.get(name, 0.0) + term for name, term in terms.items()}
        self.steps += 1
        self.lost = (self.lost + 1.0) * ~terms["loss"].isfinite()

    def read(self, world: World, global_batch: int) -> dict[str, float]:
        """Average over steps and processes in one collective, add the rate, and start anew."""
        began = time.perf_counter()
        means = world.sum(torch.stack(list(self.terms.values()))) / (world.size * self.steps)
        values = {f"train/{name}": float(mean) for name, mean in zip(self.terms, means, strict=True)}
        self.seconds += time.perf_counter() - began  # reading waits for the device: that is training time too
        values["train/images_per_s"] = 2 * global_batch * self.steps / self.seconds
        self.terms, self.steps, self.seconds = {}, 0, 0.0
        return values

    def state(self, world: World) -> dict[str, Any]:
        """Give what a checkpoint between two log lines must hold: a row of each process's sums. All processes call it.

        Sums of each process, not of all: added up in another order, the next line would differ in its last digit.
        """
        if not self.steps and not isinstance(self.lost, Tensor):
            return {}
        own = torch.stack([*self.terms.values(), torch.as_tensor(self.lost)])
        rows = torch.zeros(world.size, len(own), dtype=own.dtype, device=own.device)
        rows[world.rank] = own
        return {"names": list(self.terms), "rows": world.sum(rows), "steps": self.steps, "seconds": self.seconds}

    @classmethod
    def resumed(cls, state: Mapping[str, Any], world: World) -> "LogWindow":
        """Go on from the state that a checkpoint holds; with another number of processes, from the mean of its rows."""
        if not state:
            return cls()
        rows = state["rows"].to(world.device)
        own = rows[world.rank] if len(rows) == world.size else rows.mean(0)
        *sums, lost = own.clone()
        return cls(dict(zip(state["names"], sums, strict=True)), state["steps"], state["seconds"], lost)
