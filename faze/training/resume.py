"""The work folder of a training: checkpoint and run log, from which a killed training goes on.

However it is killed, it ends with the weights of one that was not, and with a log without gap: the folder keeps both
until the outputs are whole, and a checkpoint whose log is not as long as it says is not resumed from. With three or
more processes of ddp, to rounding: their first step after a start adds gradients up in other buckets than later ones.
"""

import dataclasses
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.base.run_log import is_whole, read_events
from faze.engine.step import Step
from faze.model.dted import DTED
from faze.model.torch_file import read_mapping, write_mapping
from faze.model.weights import FORMAT


@dataclass(frozen=True)
class Resume:
    """Where a training goes on; all zero at its beginning."""

    step: int = 0
    pairs: int = 0
    log_bytes: int = 0
    window: Mapping[str, Any] = field(default_factory=dict)  # what was measured since the last log line


@dataclass(frozen=True)
class WorkFolder:
    """Where a training keeps its checkpoint and its log until it has ended."""

    path: Path
    identity: str  # of this very training: its configuration, code and data

    @property
    def checkpoint(self) -> Path:
        """The last checkpoint."""
        return self.path / "checkpoint.pt"

    @property
    def log(self) -> Path:
        """The run log."""
        return self.path / "run.jsonl"

    @property
    def donor_log(self) -> Path:
        """The run log of another run, whose training is taken over."""
        return self.path / "donor.jsonl"

    def save(self, dted: DTED, step: Step, at: Resume) -> None:
        """Write weights, optimiser, scaler, position and random state; whole or not at all.

        The sampler's state is the position: pairs follow from (seed, pair number) alone.
        """
        state = {
            "format": FORMAT,
            "model": dted.state_dict(),
            "model_config": dataclasses.asdict(dted.model),
            **step.state_dict(),
            **dataclasses.asdict(at),
            "rng": {"torch": torch.get_rng_state()},
            "identity": self.identity,
        }
        write_mapping(self.checkpoint, state)

    def load(self, dted: DTED, step: Step) -> Resume:
        """Continue from the checkpoint if it is of this very training; else say why not, and begin anew."""
        if not self.checkpoint.exists():
            return Resume()
        try:
            state = read_mapping(self.checkpoint, dted.fc_enc.weight.device)
            self._check(state)
        except UserError as error:
            print(f"{error}; training begins anew", file=sys.stderr)
            return Resume()
        dted.load_state_dict(state["model"])
        step.load_state_dict(state)
        torch.set_rng_state(state["rng"]["torch"].cpu())
        return Resume(state["step"], state["pairs"], state["log_bytes"], state["window"])

    def events(self) -> list[dict[str, Any]]:
        """Read what the log says up to the checkpoint that a training goes on from; nothing where it begins anew."""
        if not self.checkpoint.exists():
            return []
        try:
            self._check(state := read_mapping(self.checkpoint))
        except UserError:
            return []
        return read_events(self.log, state["log_bytes"])

    def _check(self, state: Mapping) -> None:
        if state.get("identity") != self.identity:
            raise UserError(f"{self.checkpoint}: is of another configuration, code or data")
        if not self.log.exists() or self.log.stat().st_size < state["log_bytes"]:
            raise UserError(f"{self.log}: lacks what was written before the checkpoint")

    def publish(self, out: Path, run_log: Path) -> None:
        """Copy log and checkpoint to where they belong, in this order: where the checkpoint is, the log is too."""
        for source, target in ((self.log, run_log), (self.checkpoint, out)):
            with whole_file(target) as temporary:
                shutil.copyfile(source, temporary)
        self.remove()

    def remove(self) -> None:
        """Remove the folder, whose outputs are whole."""
        shutil.rmtree(self.path, ignore_errors=True)

    def has_ended(self, out: Path, run_log: Path, pairs: int) -> bool:
        """Whether the outputs are this very training's end (written, say, by the orphan of a killed workflow)."""
        try:
            state = read_mapping(out)
        except UserError:
            return False
        return (
            run_log.exists()
            and is_whole(run_log)
            and state.get("identity") == self.identity
            and state.get("pairs", 0) >= pairs
        )
