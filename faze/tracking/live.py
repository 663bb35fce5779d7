"""Runs under way, mirrored while they train."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from faze.layout import Layout
from faze.tracking.mirror import mirror
from faze.tracking.record import read_training, run_name
from faze.tracking.store import Store

EVERY_SECONDS = 10.0


class Follower:
    """Mirrors those run logs of an ablation that have grown since it last looked."""

    def __init__(self, store: Store, layout: Layout, tiers: Sequence[str], seeds: Sequence[int]) -> None:
        self._store, self._layout = store, layout
        self._names = {(t, s): run_name(tiers, seeds, t, s) for t in tiers for s in seeds}
        self._seen: Mapping[Path, int] = {}

    def look(self) -> list[str]:
        """Mirror what is new; give the names of those runs. A failing store is reported and tried again next time."""
        mirrored, seen = [], {}
        for name, log, size in self._logs():
            if self._seen.get(log) != size:
                try:
                    mirror(self._store, read_training(log, name))
                except FileNotFoundError:  # the training ended at this moment and moved its log: next time
                    continue
                except ValueError as error:
                    print(f"faze ui: {error}", file=sys.stderr)
                    continue
                mirrored.append(name)
            seen[log] = size
        self._seen = seen
        return mirrored

    def _logs(self) -> Iterator[tuple[str, Path, int]]:
        """A run's live log while it trains, else its final one."""
        for (tier, seed), name in self._names.items():
            live = self._layout.run(tier, seed) / "train.work" / "run.jsonl"
            for log in (live, self._layout.run_log(tier, seed)):
                if log.exists() and (size := log.stat().st_size):
                    yield name, log, size
                    break
