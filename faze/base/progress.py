"""Human-readable progress of a stage and of a whole workflow run; no output depends on it.

`RunProgress` is a log handler for Snakemake. It reads the events of Snakemake's logger interface
(snakemake_interface_logger_plugins) and prints jobs done, jobs running and the time left, one plain line at a time, so
that terminals and log files show the same. Standard library only.
"""

import csv
import logging
import statistics
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TextIO


class Progress:
    """A report of rate and time left: redrawn on a terminal, one plain line every half minute in a log."""

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
    """Format a duration for people to read: 40 s, 12 min, 2 h 05 min."""
    if seconds < 59.5:
        return f"{round(seconds)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


EVERY_S = 60.0  # the longest silence while jobs run


class RunProgress(logging.Handler):
    """Print a line when a job ends and every minute, from `begin` on.

    The time left is estimated from the mean time of each remaining job's rule, measured in this run or else in the last
    one. Their sum is divided by the mean number of jobs that have run concurrently so far. If a rule has never run, the
    estimate is "at least" this sum.
    """

    def __init__(self, name: str, results: Path, stream: TextIO | None = None) -> None:
        super().__init__()
        self._name, self._results, self._stream = name, results, stream or sys.stderr
        self._to_come: Counter[str] = Counter()  # rule -> jobs that have not ended
        self._running: dict[int, tuple[str, str, float]] = {}  # job id -> rule, name for people, start
        self._took_s: dict[str, list[float]] = {}  # rule -> seconds of the jobs of this run
        self._last_s: dict[str, list[float]] = {}  # rule -> seconds of the jobs of the last run
        self._done = self._total = 0
        self._began_s: float | None = None
        self._ended = threading.Event()

    def begin(self) -> None:
        """Start to print; call this only if the run is neither a dry run nor a job's own Snakemake."""
        for file in self._results.rglob("benchmarks/*.tsv"):
            if (seconds := read_seconds(file)) is not None:
                self._last_s.setdefault(_rule_of(file, self._to_come), []).append(seconds)
        self._began_s = time.monotonic()
        threading.Thread(target=self._tick, daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Follow the events of a run; other records are ignored."""
        event, now_s = str(getattr(record, "event", None)), time.monotonic()
        if event == "run_info":
            self._to_come = Counter({rule: count for rule, count in record.stats.items() if rule != "total"})
            self._total = record.stats["total"]
        elif event == "job_info":
            of = [value for key, value in (record.wildcards or {}).items() if key != "name"]
            self._running[record.jobid] = record.rule_name, " ".join([record.rule_name, *of]), now_s
        elif event in ("job_finished", "job_error"):
            job = self._running.pop(record.job_id if event == "job_finished" else record.jobid, None)
            if job and event == "job_finished":
                self._to_come[job[0]] -= 1
                self._took_s.setdefault(job[0], []).append(now_s - job[2])
        elif event == "progress":
            self._done, self._total = record.done, record.total
            if self._done < self._total:
                self._print(f"{self._done} of {self._total} jobs{self._left()}{self._now_running()}")

    def close(self) -> None:
        """Print how far the run got; Snakemake closes its handlers however a run ends."""
        if self._began_s is not None and not self._ended.is_set():
            took = duration(time.monotonic() - self._began_s)
            self._print(f"{self._done} of {self._total} jobs done in {took}")
        self._ended.set()
        super().close()

    def _tick(self) -> None:
        while not self._ended.wait(EVERY_S):
            with self.lock:
                self._print(f"{self._done} of {self._total} jobs{self._left()}{self._now_running()}")

    def _left(self) -> str:
        known = {rule: statistics.fmean(times) for rule, times in (self._last_s | self._took_s).items()}
        now_s = time.monotonic()
        spent_s = sum(now_s - began_s for _, _, began_s in self._running.values())
        work_s = sum(count * known.get(rule, 0.0) for rule, count in self._to_come.items()) - spent_s
        at_once = (sum(map(sum, self._took_s.values())) + spent_s) / max(now_s - self._began_s, 1.0)
        unknown = any(count > 0 and rule not in known for rule, count in self._to_come.items())
        return f", {'at least ' if unknown else ''}{duration(max(work_s, 0.0) / max(at_once, 1.0))} left"

    def _now_running(self) -> str:
        now_s = time.monotonic()
        running = [f"{name} ({duration(now_s - began_s)})" for _, name, began_s in self._running.values()]
        return f"; {', '.join(running)}" if running else ""

    def _print(self, text: str) -> None:
        if self._began_s is None:
            return
        try:
            print(f"{self._name}: {text}", file=self._stream, flush=True)
        except (OSError, ValueError):  # the terminal is gone, which must not end the run
            self._ended.set()


def _rule_of(file: Path, rules: Counter[str]) -> str:
    """Return the rule to which a benchmark file belongs; the file's name may end with a data set."""
    return next((rule for rule in rules if file.stem == rule or file.stem.startswith(f"{rule}_")), file.stem)


def read_seconds(file: Path) -> float | None:
    """Return the wall-clock seconds in one of Snakemake's benchmark files; None if it cannot be read."""
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            return float(next(csv.DictReader(lines, delimiter="\t"))["s"])
    except (OSError, StopIteration, KeyError, TypeError, ValueError, csv.Error):
        return None
