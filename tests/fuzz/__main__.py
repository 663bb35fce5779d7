"""Fuzz every reader of untrusted files: python tests/fuzz [--cases N] [--seed S] [TARGET ...].

Each target runs in child processes with limited memory and time. The table shows how many files were read and how many
were refused; each finding names the place in the code and the file that causes it.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "shared"), str(Path(__file__).resolve().parents[2])]

from cases import BATCH, Tally, Target, run_batch  # noqa: E402
from targets import TARGETS  # noqa: E402


def fuzz(target: Target, cases: int, seed: int, home: Path) -> Tally:
    """Run the cases of a target, batch by batch."""
    total, began = Tally(), time.monotonic()
    for first in range(0, cases, BATCH):
        total.add(run_batch(target, range(first, min(first + BATCH, cases)), seed, home / target.name))
        if total.findings:
            break
    total.seconds = time.monotonic() - began
    return total


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the named targets, or all targets if none are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--cases", type=int, default=1000, help="files for each target")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    if unknown := set(args.target) - set(TARGETS):
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    # In memory if possible: a case is written, read and removed in a millisecond.
    home = Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    findings = report([TARGETS[name] for name in args.target or TARGETS], args.cases, args.seed, home)
    if not findings:
        shutil.rmtree(home)
    return 1 if findings else 0


def report(targets: Sequence[Target], cases: int, seed: int, home: Path) -> int:
    """Run targets, print the table, and return the number of findings."""
    print("| target | files | read | refused | crashed a library | findings | s | MiB more |", flush=True)
    print("|---|---|---|---|---|---|---|---|", flush=True)
    findings = 0
    for target in targets:
        found = fuzz(target, cases, seed, home)
        findings += len(found.findings)
        counts = (found.cases, found.values, found.refused, found.isolated, len(found.findings))
        row = (target.name, *counts, f"{found.seconds:.0f}", f"{found.extra_mib:.0f}")
        print(f"| {' | '.join(map(str, row))} |", flush=True)
        for finding in found.findings:
            print(f"  {finding}", file=sys.stderr, flush=True)
    return findings


if __name__ == "__main__":
    sys.exit(main())
