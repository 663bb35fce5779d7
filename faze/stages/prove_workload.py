"""Rule `prove_workload`: check a workload, and compare the first steps of every tier with those of the baseline.

Nothing is trained or timed before this rule has ended. A tier whose weights move differently is reported as another
experiment.
"""

import json
import resource
from functools import partial
from pathlib import Path

from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.base.machine import machine_lock, memory_bytes
from faze.benchmark.proof import prove_tiers
from faze.config.stage_config import Resolved
from faze.engine import machine
from faze.engine.machine import lacks_memory
from faze.training.workload_training import build_named, check_workload, load_workload


def main(*, config: Resolved, threads: int, out: Path) -> None:
    """Check the workload and prove its tiers."""
    machine.check_torch()
    with machine_lock(exclusive=False):
        check_fitting(config.workload)
        proofs = prove_tiers(config.engines, partial(build_named, config.workload), threads)
    with whole_file(out) as temporary:
        temporary.write_text(json.dumps(proofs), encoding="utf-8")
    for tier, proof in proofs.items():
        print(f"{tier}: {'another experiment: ' + proof['failed'] if 'failed' in proof else 'the same experiment'}")


def check_fitting(name: str) -> None:
    """Check a workload in this machine's memory, so that a network that is too large is not killed without a reason.

    Raises:
        UserError: a fault of the workload, or too little memory.
    """
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes(), before[1]))
    try:
        check_workload(load_workload(name), name)
    except (RuntimeError, MemoryError) as error:
        if not lacks_memory(error):
            raise
        raise UserError(
            f"workload {name}: one step does not fit into the {memory_bytes() / 2**30:.1f} GiB of this machine; "
            "lower batch_size or the sizes of the network"
        ) from None
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
