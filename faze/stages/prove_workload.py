"""Rule `prove_workload`: check a workload, and compare the first steps of every tier with those of the baseline.

Nothing is trained or timed before this rule has ended. A tier whose weights move differently is reported as another
experiment.
"""

from argparse import Namespace
from functools import partial

from faze.base.command_line import CONFIG, command, needed, threads
from faze.base.files import whole_file, write_json
from faze.base.locks import machine_shared, output_lock
from faze.benchmark.proof import prove_tiers
from faze.config.stage_config import load
from faze.engine import machine
from faze.training.workload_training import build_named, check_workload, load_workload


@command(__doc__, CONFIG, threads("CPU threads for each tier"), needed("--out", "proofs.json to write"))
def main(args: Namespace) -> None:
    """Check the workload and prove its tiers."""
    config = load(args.config, "prove_workload")
    machine.check_torch()
    with machine_shared(), output_lock(args.out):
        check_workload(load_workload(config.workload), config.workload)
        proofs = prove_tiers(config.engines, partial(build_named, config.workload), args.threads)
        with whole_file(args.out) as temporary:
            write_json(temporary, proofs)
    for tier, proof in proofs.items():
        print(f"{tier}: {'another experiment: ' + proof['failed'] if 'failed' in proof else 'the same experiment'}")
