"""The run log, one JSON object per line, flushed at once: the record of a run, which MLflow only mirrors.

Events, each with `time` (unix seconds) and `event`:
    start     stage, name, tier, seed, config (flat dict), config_hash, fingerprint, machine (dict)
    switch    switch, wanted, acted, reason ("" = active)
    metrics   pairs (or step), values {name: number}
    resume    step, in pairs; moved: how this machine differs from the one on which training began, or ""
    reused_from  tier: the run that is reused; its metrics follow, with their times
    note      text
    end       seconds, checksum (of all before)

Standard library only.
"""

import contextlib
import json
import os
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from faze.base.files import FULL, named, parse_json


class RunLog:
    """Append events to a JSON-lines file; the log of a killed run contains every complete line."""

    def __init__(self, path: Path | str, keep_bytes: int = 0) -> None:
        """Open the log and truncate it to `keep_bytes`, the part that the checkpoint to resume from covers."""
        self._path = path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")
        self._file.truncate(min(keep_bytes, self.size))  # a larger size would append zeros
        self._began = time.monotonic()

    @property
    def size(self) -> int:
        """Return the number of bytes in the log."""
        return os.fstat(self._file.fileno()).st_size

    def event(self, event: str, **values: Any) -> None:
        """Write one event; numbers that JSON cannot represent (nan, inf) become null."""
        line = {"time": time.time(), "event": event, **finite(values)}
        with named(self._path, FULL):
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
            self.event("end", seconds=time.monotonic() - self._began, checksum=zlib.crc32(self._path.read_bytes()))
        self._file.close()


def read_events(path: Path | str, first_bytes: int | None = None) -> list[dict[str, Any]]:
    """Return all complete events of a run log, or of its first bytes, in order; skip a line cut off by a kill."""
    events = []
    for line in Path(path).read_bytes()[:first_bytes].decode(errors="replace").splitlines():
        with contextlib.suppress(ValueError):
            events.append(parse_json(line))
    return [event for event in events if isinstance(event, dict) and "event" in event]


def is_whole(path: Path | str) -> bool:
    """Return whether a log ends with an end event whose checksum, if present, is correct."""
    before, _, end = Path(path).read_bytes().rstrip(b"\n").rpartition(b"\n")
    try:
        event = json.loads(end)
        return event["event"] == "end" and event.get("checksum") in (None, zlib.crc32(before + b"\n"))
    except (ValueError, TypeError, KeyError):
        return False


def finite(value: Any) -> Any:
    """Replace numbers that JSON cannot represent (nan, inf) with null."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return value


def acting(switches: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Map each switch to its effective value: engines with equal values and equal settings run the same step."""
    return {switch["switch"]: switch["acted"] for switch in switches}


def changed_switches(
    switches: Iterable[Mapping[str, str]], before: Iterable[Mapping[str, str]]
) -> list[Mapping[str, str]]:
    """Return the `switch` events that differ from another run's; without another run, those of ineffective switches."""
    old = {switch["switch"]: (switch["wanted"], switch["acted"]) for switch in before}
    if not old:
        return [switch for switch in switches if switch["reason"]]
    return [switch for switch in switches if old.get(switch["switch"]) != (switch["wanted"], switch["acted"])]


def tier_changes(
    tiers: Mapping[str, Sequence[Mapping[str, str]]],
) -> dict[str, tuple[str | None, list[Mapping[str, str]]]]:
    """Return, for each tier, the tier that it builds on and the `switch` events that differ from that tier's.

    That tier is the one with the fewest differences among those before it, and the first of several. The first tier
    builds on none; its events are those of ineffective switches.
    """
    found: dict[str, tuple[str | None, list[Mapping[str, str]]]] = {}
    for tier, switches in tiers.items():
        known = [(base, changed_switches(switches, tiers[base])) for base in found]
        found[tier] = min(known, key=lambda each: len(each[1]), default=(None, changed_switches(switches, ())))
    return found
