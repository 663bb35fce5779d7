"""Checkpoints of a training in progress: everything that a killed run needs to end as if it had not been killed."""

import dataclasses
import random
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.engine.step import Step
from faze.model.dted import DTED
from faze.model.weights import FORMAT, read_mapping


@dataclass(frozen=True)
class Resume:
    """Where a training goes on; all zero at its beginning."""

    step: int = 0
    pairs: int = 0
    log_bytes: int = 0


def save_training(path: Path, dted: DTED, step: Step, *, at: Resume, identity: str) -> None:
    """Write weights, optimiser, scaler, position and random state; whole or not at all.

    The sampler's state is the position: pairs follow from (seed, pair number) alone.
    """
    state = {
        "format": FORMAT,
        "model": dted.state_dict(),
        "model_config": dataclasses.asdict(dted.model),
        **step.state_dict(),
        **dataclasses.asdict(at),
        "rng": {
            "torch": torch.get_rng_state(),
            "numpy": repr(np.random.get_state()),
            "python": repr(random.getstate()),
        },
        "identity": identity,
    }
    with whole_file(path) as temporary:
        torch.save(state, temporary)


def load_training(path: Path, identity: str, dted: DTED, step: Step, device: torch.device) -> Resume:
    """Continue from a checkpoint if there is one of this very training; say so and begin anew if it is another's."""
    if not path.exists():
        return Resume()
    try:
        state = read_mapping(path, device)
    except UserError as error:
        print(f"{error}; training begins anew", file=sys.stderr)
        return Resume()
    if state.get("identity") != identity:
        print(f"{path}: is of another configuration, code or data; training begins anew", file=sys.stderr)
        return Resume()
    dted.load_state_dict(state["model"])
    step.load_state_dict(state)
    torch.set_rng_state(state["rng"]["torch"].cpu())
    return Resume(state["step"], state["pairs"], state["log_bytes"])


def is_finished(path: Path, identity: str, pairs: int) -> bool:
    """Whether a checkpoint is the end of this very training (written, say, by the orphan of a killed workflow)."""
    try:
        state = read_mapping(path)
    except UserError:
        return False
    return state.get("identity") == identity and state.get("pairs", 0) >= pairs
