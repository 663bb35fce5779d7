"""Rule `prove_workload`: check a workload, and compare the first steps of every tier with those of the baseline.

Nothing is trained or timed before this rule has ended. A tier whose weights move differently is reported as another
experiment.
"""

import resource
from argparse import Namespace
from functools import partial

from faze.base.cgroup import memory_bytes
from faze.base.command_line import CONFIG, command, needed, threads
from faze.base.errors import UserError
from faze.base.files import whole_file, write_json
from faze.base.locks import machine_shared, output_lock
from faze.benchmark.proof import prove_tiers
from faze.config.stage_config import load
from faze.engine import machine
from faze.engine.machine import lacks_memory
from faze.training.workload_training import build_named, check_workload, load_workload


@command(__doc__, CONFIG, threads("CPU threads for each tier"), needed("--out", "proofs.json to write"))
def main(args: Namespace) -> None:
    """Check the workload and prove its tiers."""
    config = load(args.config, "prove_workload")
    machine.check_torch()
    with machine_shared(), output_lock(args.out):
        check_fitting(config.workload)
        proofs = prove_tiers(config.engines, partial(build_named, config.workload), args.threads)
        with whole_file(args.out) as temporary:
            write_json(temporary, proofs)
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
