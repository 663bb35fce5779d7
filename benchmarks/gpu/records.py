"""Results by unit in one JSON file, for each kind of machine, with the identity of the code and the sizes."""

import json
from collections.abc import Mapping
from pathlib import Path

from faze.base.files import whole_file
from faze.engine import machine

# Until one of its kind has been timed; measured on an H100.
FIRST_GUESS_S = {
    "start": 10.0,
    "check": 20.0,
    "time": 125.0,
    "people": 40.0,
    "train": 65.0,
    "step": 30.0,
    "switch": 10.0,
}
MARGIN = 1.3  # on the longest so far


class Records:
    """The results of this kind of machine, written to disk after each unit."""

    def __init__(self, path: Path, identities: Mapping[str, str]) -> None:
        """Open or create the file.

        Args:
            path: the file.
            identities: unit -> identity of the code and the sizes.

        Raises:
            SystemExit: the file contains something else.
        """
        self._path, self._identities, self.machine = path, identities, machine.describe()
        try:
            self._all = json.loads(path.read_text(encoding="utf-8"))["machines"]
            self._here = self._all.setdefault(kind_of(self.machine), {})
        except FileNotFoundError:
            self._all = {kind_of(self.machine): {}}
            self._here = self._all[kind_of(self.machine)]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise SystemExit(f"{path} holds no results of this script: move it away or name another --out") from None

    def __getitem__(self, unit: str) -> dict | None:
        """Return the result of a unit, if this code measured it on this kind of machine at these sizes."""
        found = self._current(unit)
        return found["result"] if found else None

    def _current(self, unit: str) -> dict | None:
        found = self._here.get(unit)
        return found if found and found["identity"] == self._identities[unit] else None

    def failures(self, unit: str) -> int:
        """Return how often a unit has ended with an error, with too large a difference, or at its time limit."""
        found = self._current(unit)
        return found["failures"] if found else 0

    def failed(self, unit: str) -> bool:
        """Return whether a unit failed the last time."""
        return "failed" in (self[unit] or {})

    def add(self, unit: str, result: dict, seconds: float) -> None:
        """Store a result, in memory and on disk."""
        failures = self.failures(unit) + ("failed" in result)
        facts = {"identity": self._identities[unit], "commit": self.machine["commit"], "seconds": seconds}
        self._here[unit] = facts | {"failures": failures, "result": result}
        with whole_file(self._path) as temporary:
            temporary.write_text(json.dumps({"machines": self._all}, indent=1), encoding="utf-8")

    def expected_s(self, kind: str) -> float:
        """Return how many seconds a unit of this kind is expected to take at most."""
        seen = [record["seconds"] for name, record in self._here.items() if name.startswith(f"{kind}/")]
        return MARGIN * max(seen) if seen else FIRST_GUESS_S[kind]


def kind_of(facts: Mapping[str, str]) -> str:
    """Return what results depend on: the GPUs, or else the processor, and the versions."""
    names = ("gpus" if "gpus" in facts else "processor", "cuda", "torch", "python")
    return ", ".join(f"{name} {facts[name]}" for name in names if name in facts)
