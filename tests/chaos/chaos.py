"""make chaos MINUTES=30 SEED=1: the smoke ablation, damaged at random moments, must give the undisturbed results.

    python tests/chaos/chaos.py --minutes 30 --seed 1

The first, undisturbed run is the reference, which is stored in .chaos/ and reused for the same code. Then each seed
determines a run in a separate checkout: about forty faults occur, and the same command is repeated until it succeeds.
faults.py contains the faults, facts.py the results that must be equal, tests/README.md the requirements.
"""

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/shared")]  # the checkout's own code, wherever another is installed

from facts import differences, facts_of  # noqa: E402
from play import Play, Tally  # noqa: E402
from world import World  # noqa: E402

from faze.base.compiled import processor_features  # noqa: E402

REFERENCES = ROOT / ".chaos"
FAULTS = 40  # of a run
LONG_S = 1200.0  # an undisturbed run takes a few minutes


def say(words: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {words}", flush=True)


def key_of_code() -> str:
    """Hash everything that determines the results: code, configuration, processor."""
    files = [path for folder in ("faze", "workflow", "config") for path in (ROOT / folder).rglob("*") if path.is_file()]
    parts = [path.read_bytes() for path in sorted(files) if "__pycache__" not in path.parts and path.suffix != ".mjs"]
    return hashlib.sha256(b"\0".join([processor_features().encode(), *parts])).hexdigest()[:16]


def reference(scratch: Path) -> dict[str, str]:
    """Return the facts of an undisturbed run."""
    kept = REFERENCES / f"{key_of_code()}.json"
    if kept.exists():
        say(f"the reference is that of {kept}")
        return json.loads(kept.read_text(encoding="utf-8"))
    say("an undisturbed run, for the reference")
    began = time.monotonic()
    world = World(scratch / "reference", disk=False)
    try:
        command = world.start()
        code = command.process.wait(LONG_S)
        if code:
            sys.exit(f"the undisturbed run fails:\n{command.text()[-4000:]}")
        facts = facts_of(world.results, world.root / "mlflow.db")
        left = list(world.left())
    finally:
        world.end()
    if left:
        sys.exit(f"the undisturbed run leaves: {left}")
    say(f"it took {time.monotonic() - began:.0f} s; {len(facts)} facts")
    REFERENCES.mkdir(exist_ok=True)
    kept.write_text(json.dumps(facts, indent=1), encoding="utf-8")
    return facts


def play(seed: int, wanted: dict[str, str], tally: Tally, until_s: float, keep: bool) -> None:
    """Run this seed, and compare the results with the reference."""
    began, faults = time.monotonic(), tally.count
    folder = Path(tempfile.mkdtemp(prefix=f"chaos{seed}-"))
    world = World(folder / "world")
    failures = len(tally.failures)
    try:
        run = Play(world, seed, tally, say)
        run.run(FAULTS, until_s)
        for left in world.left():
            run.fail(left)
        run.settle()
        for difference in differences(facts_of(world.results, world.root / "mlflow.db"), wanted)[:8]:
            run.fail(difference)
    finally:
        if keep and len(tally.failures) > failures:
            unwanted = shutil.ignore_patterns("tmp", "raw")
            shutil.copytree(world.folder, folder / "kept", symlinks=True, ignore=unwanted)
            say(f"the failed run is kept in {folder / 'kept'}")
        world.end()
        with contextlib.suppress(OSError):
            folder.rmdir()
    say(f"seed {seed}: {tally.count - faults} faults in {time.monotonic() - began:.0f} s")


def main() -> int:
    """Run seeds until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1, help="of the first run; each further one has the next")
    parser.add_argument("--keep", action="store_true", help="keep the folder of a run that fails")
    args = parser.parse_args()
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    say(f"seed {args.seed}")
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="chaos-reference-") as scratch:
        wanted = reference(Path(scratch))
    until_s, seed = time.monotonic() + 60 * args.minutes, args.seed
    while time.monotonic() < until_s:
        play(seed, wanted, tally, until_s, args.keep)
        seed += 1
    tally.print(say)
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
