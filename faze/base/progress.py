"""Progress of a stage's work, for people to read; no output depends on it. Standard library only."""

import sys
import time
from typing import TextIO


class Progress:
    """Report rate and time left: redrawn on a terminal, one plain line every half minute in a log."""

    def __init__(self, what: str, total: int, unit: str, done: int = 0, stream: TextIO | None = None) -> None:
        self._what, self._total, self._unit = what, total, unit
        self._first, self._began = done, time.monotonic()
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream.isatty()
        self._shown = self._began if not self._live else 0.0

    def __call__(self, done: int, note: str = "") -> None:
        """Report that `done` of the total are done, unless the last report is too recent."""
        now = time.monotonic()
        if now - self._shown < (0.2 if self._live else 30.0) and done < self._total:
            return
        self._shown = now
        rate = (done - self._first) / max(now - self._began, 1e-9)
        left = duration((self._total - done) / rate) if rate > 0 else "unknown time"
        line = f"{self._what}: {done}/{self._total} {self._unit}, {rate:.1f} {self._unit}/s, {left} left"
        end = "\n" if not self._live or done >= self._total else ""
        self._stream.write(("\r\x1b[K" if self._live else "") + line + (f", {note}" if note else "") + end)
        self._stream.flush()


def duration(seconds: float) -> str:
    """Return a time for people: 40 s, 12 min, 2 h 05 min."""
    if seconds < 59.5:
        return f"{round(seconds)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
