"""Progress of a whole run of the workflow: one line at the foot of a terminal, or a plain line a minute in a log.

The Snakefile calls `follow` when a run starts, so neither a dry run nor a job's own Snakemake shows anything. What is
shown comes from the events of Snakemake's log. Nothing here can end a run. Standard library only.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from faze.base.job_times import Forecast, Job, first_guess_s, read_seconds

PLAIN_EVERY_S = 60.0
THINK_EVERY_S = 10.0  # the estimate is made anew after each event, and so often


def follow(workflow: Any, logger: logging.Logger, config: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Show the progress of a run that starts, unless it is to be quiet.

    Args:
        workflow: Snakemake's, whose jobs are known; its inner names may change, and then a warning stands for the line.
        logger: Snakemake's.
        config: the configuration of the run.
        defaults: the default configuration, to which first guesses of times belong.
    """
    try:
        if not {"PROGRESS", "ALL"} & {part.name for part in workflow.output_settings.quiet or ()}:
            jobs = {job.jobid: _job(job, workflow, config, defaults) for job in workflow.dag.needrun_jobs()}
            forecast = Forecast(jobs, workflow.cores if workflow.local_exec else workflow.nodes)
            logger.addHandler(RunProgress(config["name"], forecast, len(workflow.dag)))
    except Exception as error:
        logger.warning(f"the progress of the run cannot be shown: {error!r}")


def _job(job: Any, workflow: Any, config: Mapping[str, Any], defaults: Mapping[str, Any]) -> Job:
    """Describe a job that is to run, before it overwrites the benchmark file of its last run."""
    told = {key: value for key, value in job.wildcards_dict.items() if key != "name"}
    if "seed" in told:
        told["seed"] = f"seed {told['seed']}" if len(config["run"]["seeds"]) > 1 else ""
    return Job(
        rule=job.rule.name,
        name=" ".join(filter(None, [job.rule.name, *told.values()])),
        # On a cluster a job takes one of the places in the queue, however many threads it has.
        cores=job.threads if workflow.local_exec else 1,
        after=frozenset(other.jobid for other in workflow.dag.dependencies[job]),
        last_s=read_seconds(Path(str(job.benchmark))) if job.benchmark else None,
        guess_s=first_guess_s(job.rule.name, config, defaults),
    )


class RunProgress(logging.Handler):
    """Which job of how many is done, what runs, and the time left, of a run that Snakemake logs."""

    def __init__(self, name: str, forecast: Forecast, total: int, stream: TextIO | None = None) -> None:
        super().__init__()
        self._name, self._forecast, self._total, self._done = name, forecast, total, 0
        stream = sys.stderr if stream is None else stream
        live = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._shown: Foot | PlainLines = Foot(stream) if live else PlainLines(stream)
        self._began_s = self._thought_s = time.monotonic()
        self._left = forecast.left(self._began_s)
        self._ended = threading.Event()
        threading.Thread(target=self._tick, daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Take a job's start, end or failure from Snakemake's log; other records are not looked at."""
        try:
            event, now_s = str(getattr(record, "event", None)), time.monotonic()
            if event == "job_info":
                self._forecast.start(record.jobid, now_s)
            elif event in ("job_finished", "job_error"):
                number = record.job_id if event == "job_finished" else record.jobid
                self._forecast.stop(number, now_s, finished=event == "job_finished")
            elif event == "progress":
                self._done, self._total = record.done, record.total
            else:
                return
            self._show(now_s, anew=event != "job_info")
        except Exception:
            self._end()

    def close(self) -> None:
        """Say how far the run came, and give the terminal back; Snakemake closes its handlers however a run ends."""
        with self.lock:
            if not self._ended.is_set():
                self._end()
        super().close()

    def _end(self) -> None:
        self._ended.set()
        try:
            took = duration(time.monotonic() - self._began_s)
            self._shown.end(f"{self._name}: {self._done} of {self._total} jobs done in {took}")
        except Exception:
            return  # the terminal is gone

    def _tick(self) -> None:
        while not self._ended.wait(1.0):
            with self.lock:
                if not self._ended.is_set():
                    self._show(time.monotonic())

    def _show(self, now_s: float, anew: bool = False) -> None:
        if self._ended.is_set():
            return
        try:
            if anew or now_s - self._thought_s > THINK_EVERY_S:
                self._left, self._thought_s = self._forecast.left(now_s), now_s
            self._shown.line(self._line(now_s), now_s)
        except Exception:
            self._end()

    def _line(self, now_s: float) -> str:
        seconds, guessed = self._left
        left = duration(max(seconds - (now_s - self._thought_s), 0.0))
        running = [
            f"{self._forecast.name(number)} ({duration(now_s - began_s)})"
            for number, began_s in sorted(self._forecast.running.items(), key=lambda item: item[1])
        ]
        source = "a guess" if guessed else "by the last run"
        return f"{self._name}: {self._done} of {self._total} jobs, {left} left ({source})" + (
            f"; {', '.join(running)}" if running else ""
        )


class PlainLines:
    """A line now and then, where there is no terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._last_s = stream, time.monotonic()

    def line(self, text: str, now_s: float) -> None:
        """Write the line, if the last one is a minute old."""
        if now_s - self._last_s >= PLAIN_EVERY_S:
            self._last_s = now_s
            self._write(text)

    def end(self, text: str) -> None:
        """Write the last line."""
        self._write(text)

    def _write(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()


class Foot:
    """The last row of a terminal; whatever any process writes scrolls above it, in the region of the other rows."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._size = stream, (0, 0)

    def line(self, text: str, now_s: float) -> None:
        """Write the line anew, and keep its row free of what scrolls; a terminal that was resized gets a new region."""
        size = os.get_terminal_size(self._stream.fileno())
        keep = ""
        if size != self._size:
            # A newline and a step up, as the cursor may stand in the last row; kept, as setting a region moves it.
            keep = f"\n\x1b[1A\x1b7\x1b[1;{size.lines - 1}r\x1b8"
            self._size = size
        self._write(f"{keep}\x1b7\x1b[{size.lines};1H\x1b[2K\x1b[7m{text[: size.columns - 1]}\x1b[0m\x1b8")

    def end(self, text: str) -> None:
        """Give all rows back, and leave the last line where the cursor is."""
        if self._size != (0, 0):
            self._write(f"\x1b7\x1b[r\x1b[{self._size.lines};1H\x1b[2K\x1b8")
        self._write(f"{text}\n")

    def _write(self, text: str) -> None:
        # One write, so that what other processes write does not come between keeping the cursor and bringing it back.
        self._stream.write(text)
        self._stream.flush()


def duration(seconds: float) -> str:
    """Say a time as a person would: 40 s, 12 min, 2 h 05 min."""
    if seconds < 59.5:
        return f"{round(seconds)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
