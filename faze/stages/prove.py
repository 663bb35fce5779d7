"""Prove that every tier's training is the same experiment as the baseline's, before anything is trained or timed."""

import json
import sys
from pathlib import Path

from faze.base.files import whole_file
from faze.base.machine import machine_lock
from faze.benchmark.processes import identify
from faze.benchmark.proof import prove_tiers, take_part
from faze.config.stage_config import Resolved
from faze.engine.machine import check_torch


def main(*, config: Resolved, data: Path | None = None, threads: int, out: Path, tier: str | None = None) -> None:
    """Prove every tier of run.tiers; a killed proof continues with the next tier.

    Args:
        data: store of normalised strips; workloads other than DT-ED make their own data
        threads: CPU threads for each tier
        out: proofs.json to write
        tier: take only this tier's steps, on behalf of a proof
    """
    check_torch()
    folder = out.with_name(f"proofs-{identify(config, data)}")
    if tier:
        take_part(config, tier, data, threads, folder / "reference.pt")
        return
    with machine_lock(exclusive=False):
        proofs = prove_tiers(config, sys.argv[1:], folder)
    with whole_file(out) as temporary:
        temporary.write_text(json.dumps(proofs, indent=1), encoding="utf-8")
    for name, proof in proofs.items():
        rows = [f"{row['number']:.2g} after {row['steps']} steps in {row['format']}" for row in proof["formats"]]
        print(f"{name}: {'another' if 'failed' in proof else 'the same'} experiment: {'; '.join(rows)}")
