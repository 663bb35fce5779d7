"""Read a training run from its log, for the evaluation and for MLflow. Standard library only."""

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from faze.base.errors import UserError
from faze.base.files import as_written
from faze.base.run_log import is_whole, read_events

_AGAIN = "delete it and train that run again"
_START = {"name": str, "tier": str, "seed": int, "stage": str, "config": dict, "machine": dict}  # types in that event
_LATEST_S = 2.0**36  # unix seconds that a calendar can still show


class LoggedValue(NamedTuple):
    """One value of a metric."""

    metric: str
    step: int  # pairs seen
    value: float
    time: float  # unix seconds


@dataclass(frozen=True)
class LoggedRun:
    """The run log of one training run."""

    start: Mapping[str, Any]  # the start event
    ended: float | None  # unix seconds; None while it trains
    switches: Sequence[Mapping[str, Any]]  # the last event of each: switch, wanted, acted, reason ("" = active)
    notes: Sequence[str]
    values: Sequence[LoggedValue]  # one per metric and step: of a repeated step, the last
    reused_from: str = ""  # the tier whose run did the training, if it was another one


def read_ended_run(path: Path) -> LoggedRun:
    """Read the log of a run that has ended.

    Raises:
        UserError: the log is incomplete or corrupt.
    """
    if not is_whole(path):
        raise UserError(f"{path} is incomplete or corrupt: {_AGAIN}")
    return read_logged_run(path)


def read_logged_run(path: Path) -> LoggedRun:
    """Read a run log, which does not contain steps that a killed run took after its last checkpoint.

    Raises:
        UserError: the log does not begin with a start event.
    """
    events = read_events(path)
    if not events or events[0]["event"] != "start":
        raise UserError(f"{path}: has no start event, so its run is unknown: {_AGAIN}")
    with as_written(path, _AGAIN):
        return _read(events)


def _read(events: Sequence[Mapping[str, Any]]) -> LoggedRun:
    if wrong := [name for name, kind in _START.items() if not isinstance(events[0].get(name, kind()), kind)]:
        raise TypeError(f"invalid {', '.join(wrong)} in the start event")
    switches: dict[str, Mapping[str, Any]] = {}
    values: dict[tuple[str, int], LoggedValue] = {}
    notes, ended, reused_from = [], None, ""
    for event in events:
        kind, time = event["event"], event["time"]
        if not isinstance(time, int | float) or not abs(time) < _LATEST_S:
            raise ValueError(f"{time!r} is not a time")
        if kind == "switch":
            switches[str(event["switch"])] = {name: event[name] for name in ("switch", "wanted", "acted")}
            switches[str(event["switch"])] |= {"reason": str(event["reason"])}
        elif kind == "metrics":
            for name, value in event["values"].items():
                if value is not None and math.isfinite(value):  # nan and infinity are null in the log
                    key = (name, operator.index(event["step"]))
                    values[key] = LoggedValue(*key, float(value), time)
        elif kind == "reused_from":
            reused_from = str(event["tier"])
        elif kind == "note":
            notes.append(str(event["text"]))
        elif kind == "end":
            ended = time
    return LoggedRun(events[0], ended, list(switches.values()), notes, list(values.values()), reused_from)
