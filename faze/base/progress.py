"""Progress of long work, for people to read: no output depends on it. Standard library only."""

import sys
import time
from typing import TextIO


class Progress:
    """Rate and time left of long work: redrawn on a terminal, one plain line every half minute in a log."""

    def __init__(self, what: str, total: int, unit: str, done: int = 0, stream: TextIO | None = None) -> None:
        self._what, self._total, self._unit = what, total, unit
        self._first, self._began = done, time.monotonic()
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream.isatty()
        self._shown = self._began if not self._live else 0.0

    def __call__(self, done: int, note: str = "") -> None:
        """Show that `done` of the total are done, if it is time to."""
        now = time.monotonic()
        if now - self._shown < (0.2 if self._live else 30.0) and done < self._total:
            return
        self._shown = now
        rate = (done - self._first) / max(now - self._began, 1e-9)
        left = _duration((self._total - done) / rate) if rate > 0 else "unknown time"
        line = f"{self._what}: {done}/{self._total} {self._unit}, {rate:.1f} {self._unit}/s, {left} left"
        end = "\n" if not self._live or done >= self._total else ""
        self._stream.write(("\r\x1b[K" if self._live else "") + line + (f", {note}" if note else "") + end)
        self._stream.flush()


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"
