"""The work folder of a training run: checkpoint and run log, from which a killed run resumes.

A resumed run ends with the same weights as an uninterrupted one, and with a log without gaps. The folder keeps the
checkpoint and the log until the outputs are complete. A checkpoint is used only if the log is at least as long as the
checkpoint records. With three or more ddp processes, weights are equal up to rounding: the first step after a start
sums gradients in different buckets from later steps.
"""

import dataclasses
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.base.run_log import read_events
from faze.engine.step import Step
from faze.model.torch_file import read_mapping, write_mapping
from faze.model.weights import FORMAT


@dataclass(frozen=True)
class Resume:
    """Position from which training resumes; zero at the beginning."""

    step: int = 0
    pairs: int = 0
    log_bytes: int = 0
    window: Mapping[str, Any] = field(default_factory=dict)  # see LogWindow.state


@dataclass(frozen=True)
class WorkFolder:
    """Folder that contains a run's checkpoint and log until the run has ended."""

    path: Path
    identity: str  # hash of the training's configuration, code and data

    @classmethod
    def of(cls, out: Path, identity: str) -> "WorkFolder":
        """Return the work folder of the training that writes the checkpoint `out`, next to it: `NAME.work`."""
        return cls(out.with_suffix(".work"), identity)

    @property
    def checkpoint(self) -> Path:
        """The last checkpoint."""
        return self.path / "checkpoint.pt"

    @property
    def log(self) -> Path:
        """The run log."""
        return self.path / "run.jsonl"

    def save(self, module: nn.Module, step: Step, at: Resume, about: Mapping[str, Any]) -> None:
        """Write weights, optimisers, scalers, position, random state and the entries of `about`, atomically.

        There is no sampler state: seed and position determine the batches.
        """
        state = {
            "format": FORMAT,
            "model": module.state_dict(),
            **about,
            **step.state_dict(),
            **dataclasses.asdict(at),
            "rng": {"torch": torch.get_rng_state()},
            "identity": self.identity,
        }
        write_mapping(self.checkpoint, state)

    def load(self, module: nn.Module, step: Step) -> Resume:
        """Restore the checkpoint if it belongs to this run; otherwise print the reason and start from the beginning."""
        if not self.checkpoint.exists():
            return Resume()
        try:
            state = self._read(next(module.parameters()).device)
        except UserError as error:
            print(f"{error}; training starts from the beginning", file=sys.stderr)
            return Resume()
        module.load_state_dict(state["model"])
        step.load_state_dict(state)
        torch.set_rng_state(state["rng"]["torch"].cpu())
        return Resume(state["step"], state["pairs"], state["log_bytes"], state["window"])

    def events(self) -> list[dict[str, Any]]:
        """Return the events of the log up to the checkpoint that `load` would restore; [] if there is none."""
        try:
            return read_events(self.log, self._read()["log_bytes"]) if self.checkpoint.exists() else []
        except UserError:
            return []

    def _read(self, device: torch.device | str = "cpu") -> Mapping[str, Any]:
        state = read_mapping(self.checkpoint, device)
        if state.get("identity") != self.identity:
            raise UserError(f"{self.checkpoint}: belongs to another configuration, code or data")
        if not self.log.exists() or self.log.stat().st_size < state["log_bytes"]:
            raise UserError(f"{self.log}: is shorter than it was when the checkpoint was written")
        return state

    def publish(self, out: Path, run_log: Path) -> None:
        """Copy log and checkpoint to the outputs, in this order: if the checkpoint exists, so does the log."""
        for source, target in ((self.log, run_log), (self.checkpoint, out)):
            with whole_file(target) as temporary:
                shutil.copyfile(source, temporary)
        self.remove()

    def remove(self) -> None:
        """Remove the folder; its outputs are complete."""
        shutil.rmtree(self.path, ignore_errors=True)
