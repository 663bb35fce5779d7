"""The progress of a stage: a bar on a terminal, or a line every half minute in a log."""

import sys
import time

from tqdm import tqdm


class Progress:
    """A progress display for `total` items, `done` of which were finished earlier."""

    def __init__(self, what: str, total: int, unit: str, done: int = 0) -> None:
        self._about = {"total": total, "prefix": what, "unit": f" {unit}", "initial": done, "ncols": 100}
        self._end, self._every_s = ("\r", 0.2) if sys.stderr.isatty() else ("\n", 30.0)
        self._began = self._shown = time.monotonic()

    def __call__(self, done: int) -> None:
        """Report that `done` items are finished."""
        now = time.monotonic()
        if now - self._shown >= self._every_s:
            self._shown = now
            line = tqdm.format_meter(done, elapsed=now - self._began, **self._about)
            print(line, end=self._end, file=sys.stderr, flush=True)
