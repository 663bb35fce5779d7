"""Results by unit in one JSON file, each with the identity of code, machine and sizes."""

import json
from pathlib import Path

from faze.base.files import whole_file
from faze.engine import machine

# Until one of its kind has been timed: the first compile of an eager process takes longest.
FIRST_GUESS_S = {"switch": 30.0, "check": 60.0, "tier": 120.0, "step": 60.0, "without": 120.0}
MARGIN = 1.3  # on the longest so far


class Records:
    """The finished units, written to disk after each one."""

    def __init__(self, path: Path, identity: str) -> None:
        """Open or create the file.

        Raises:
            SystemExit: the file contains something else.
        """
        self._path, self.identity, self._machine = path, identity, machine.describe()
        try:
            self._all = json.loads(path.read_text(encoding="utf-8"))["units"]
        except FileNotFoundError:
            self._all = {}
        except (ValueError, KeyError, TypeError):
            raise SystemExit(f"{path} holds no results of this script: move it away or name another --out") from None

    def __getitem__(self, unit: str) -> dict | None:
        """Return the result of a unit, if this code measured it on this machine at these sizes."""
        found = self._all.get(unit)
        return found["result"] if found and found["identity"] == self.identity else None

    def failed(self, unit: str) -> bool:
        """Return whether a unit ended with an error or with too large a difference."""
        return "failed" in (self[unit] or {})

    def add(self, unit: str, result: dict, seconds: float) -> None:
        """Store a result, in memory and on disk."""
        self._all[unit] = {"identity": self.identity, "seconds": seconds, "result": result}
        with whole_file(self._path) as temporary:
            whole = {"machine": self._machine, "units": self._all}
            temporary.write_text(json.dumps(whole, indent=1), encoding="utf-8")

    def expected_s(self, kind: str) -> float:
        """Return how many seconds a unit of this kind is expected to take at most."""
        seen = [r["seconds"] for name, r in self._all.items() if name.startswith(f"{kind}/")]
        return MARGIN * max(seen) if seen else FIRST_GUESS_S[kind]
