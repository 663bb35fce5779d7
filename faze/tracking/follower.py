"""Runs under way, mirrored while they train."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from faze.base.errors import UserError
from faze.base.result_paths import ResultPaths
from faze.tracking.mirror import mirror_run
from faze.tracking.run_record import RunPlace, read_training
from faze.tracking.store import Store

EVERY_SECONDS = 10.0


class Follower:
    """Mirrors those run logs of an ablation that have grown since it last looked."""

    def __init__(self, store: Store, paths: ResultPaths, places: Sequence[RunPlace]) -> None:
        self._store, self._paths, self._places = store, paths, places
        self._seen: Mapping[Path, int] = {}

    def look(self) -> list[str]:
        """Mirror what is new and name those runs; a failing store is reported and tried again next time."""
        mirrored, seen = [], {}
        for place, log, size in self._logs():
            if self._seen.get(log) != size:
                try:
                    mirror_run(self._store, read_training(log, place))
                except FileNotFoundError:  # the training ended at this moment and moved its log: next time
                    continue
                except UserError as error:
                    print(f"faze ui: {error}", file=sys.stderr)
                    continue
                mirrored.append(place.name)
            seen[log] = size
        self._seen = seen
        return mirrored

    def _logs(self) -> Iterator[tuple[RunPlace, Path, int]]:
        """Yield each run's live log while it trains, else its final one, with its size."""
        for place in self._places:
            run = (place.tier, place.seed)
            for log in (self._paths.live_log(*run), self._paths.run_log(*run)):
                if log.exists() and (size := log.stat().st_size):
                    yield place, log, size
                    break
