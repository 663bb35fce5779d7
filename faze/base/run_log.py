"""The run log: one JSON object per line, flushed at once. The truth about a run; MLflow only mirrors it.

Events, each with `time` (unix seconds) and `event`:
    start     stage, name, tier, seed, config (flat dict), config_hash, fingerprint, machine (dict)
    switch    switch, wanted, acted, reason ("" = active)
    metrics   pairs (or step), values {name: number}
    resume    step, in pairs; moved: what is another than where the training began, "" if nothing is
    reused_from  tier: whose training this is; its metrics follow, with their times
    note      text
    end       seconds, checksum (of all before)

Standard library only.
"""

import contextlib
import json
import os
import time
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from faze.base.files import full_disk_named, parse_json


class RunLog:
    """Appends events to a JSON-lines file; a killed run's log keeps every whole line."""

    def __init__(self, path: Path | str, keep_bytes: int = 0) -> None:
        """Open the log; of an earlier run's only the first `keep_bytes` stay: what its checkpoint knows of."""
        self._path = path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")
        self._file.truncate(min(keep_bytes, self.size))  # a longer cut would fill up with zeros
        self._began = time.time()

    @property
    def size(self) -> int:
        """Bytes in the log."""
        return os.fstat(self._file.fileno()).st_size

    def event(self, event: str, **values: Any) -> None:
        """Write one event; numbers that JSON lacks (nan, inf) become null."""
        line = {"time": time.time(), "event": event, **finite(values)}
        with full_disk_named(self._path):
            self._file.write(json.dumps(line, allow_nan=False) + "\n")
            self._file.flush()

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Write metrics at a step (pairs seen, in training)."""
        self.event("metrics", step=step, values=dict(values))

    def __enter__(self) -> "RunLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.event("end", seconds=time.time() - self._began, checksum=zlib.crc32(self._path.read_bytes()))
        self._file.close()


def read_events(path: Path | str, first_bytes: int | None = None) -> list[dict[str, Any]]:
    """All whole events of a run log, or of its first bytes, in order; a last line torn by a kill is left out."""
    events = []
    for line in Path(path).read_bytes()[:first_bytes].decode(errors="replace").splitlines():
        with contextlib.suppress(ValueError):
            events.append(parse_json(line))
    return [event for event in events if isinstance(event, dict) and "event" in event]


def is_whole(path: Path | str) -> bool:
    """Whether a log has its end, and all before is what was written; logs of older versions state no checksum."""
    before, _, end = Path(path).read_bytes().rstrip(b"\n").rpartition(b"\n")
    try:
        event = json.loads(end)
        return event["event"] == "end" and event.get("checksum") in (None, zlib.crc32(before + b"\n"))
    except (ValueError, TypeError, KeyError):
        return False


def finite(value: Any) -> Any:
    """Make null of every number in a value that JSON lacks (nan, inf)."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return value


def acting(switches: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Gather how each switch acts: two engines that differ in no other setting and act alike do the same step."""
    return {switch["switch"]: switch["acted"] for switch in switches}


def changed_switches(
    switches: Iterable[Mapping[str, str]], before: Iterable[Mapping[str, str]]
) -> list[Mapping[str, str]]:
    """`switch` events that want or do something else than another run's; of the first run, those that cannot act.

    A switch of which the other run, by an older version, says nothing is passed over where it is off.
    """
    old = {switch["switch"]: (switch["wanted"], switch["acted"]) for switch in before}
    if not old:
        return [switch for switch in switches if switch["reason"]]
    return [
        switch
        for switch in switches
        if old.get(switch["switch"]) != (switch["wanted"], switch["acted"])
        and (switch["switch"] in old or switch["wanted"] not in ("false", "0", "none"))
    ]
