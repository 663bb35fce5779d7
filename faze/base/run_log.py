"""The run log, with one JSON object per line, flushed immediately. It is a run's record, which MLflow only mirrors.

docs/reference/formats.md lists the events and their fields.
"""

import contextlib
import json
import operator
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

SCORE = "val/score"  # the metric that a workload's validation returns


class RunLog(contextlib.AbstractContextManager):
    """A JSON-lines file to which events are appended; if the run is killed, all complete lines are preserved."""

    def __init__(self, path: Path, keep_bytes: int = 0) -> None:
        """Open the log and truncate it to `keep_bytes`, its size at the checkpoint from which the run resumes."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")
        self._file.truncate(keep_bytes)
        self._began = time.monotonic()

    def event(self, event: str, **values: Any) -> None:
        """Write one event; numbers that JSON cannot represent (nan, inf) become null."""
        self._file.write(to_json({"time": time.time(), "event": event} | values) + "\n")
        self._file.flush()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.event("end", seconds=time.monotonic() - self._began)
        self._file.close()


class LoggedValue(NamedTuple):
    """One value of a metric."""

    metric: str
    step: int  # samples seen
    value: float
    time: float  # unix seconds


@dataclass
class LoggedRun:
    """A training run, read from its log."""

    start: Mapping[str, Any]  # the start event
    ended: float | None = None  # unix seconds; None while the run is in progress
    switches: list[Mapping[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    values: list[LoggedValue] = field(default_factory=list)


def read_events(path: Path) -> list[dict[str, Any]]:
    """Return the events in a log, ignoring an incomplete last line."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def read_run(path: Path) -> LoggedRun:
    """Read the log of a run that has ended or is in progress."""
    start, *events = read_events(path)
    run = LoggedRun(start)
    for event in events:
        if event["event"] == "switch":
            run.switches.append({name: event[name] for name in ("switch", "wanted", "acted", "reason")})
        elif event["event"] == "metrics":
            known = ((name, value) for name, value in event["values"].items() if value is not None)
            run.values += [LoggedValue(name, event["step"], value, event["time"]) for name, value in known]
        elif event["event"] == "note":
            run.notes.append(event["text"])
        elif event["event"] == "end":
            run.ended = event["time"]
    return run


def to_json(value: Any) -> str:
    """Return a value, which may contain numpy's scalars, as JSON; numbers that JSON cannot represent become null."""
    text = json.dumps(value, default=operator.methodcaller("item"))
    return json.dumps(json.loads(text, parse_constant=lambda _: None))
