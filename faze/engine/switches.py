"""What became of a switch on the device at hand: never silently skipped."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Switch:
    """One switch as wanted by the config, as it acts, and why not if it does not."""

    switch: str
    wanted: str
    acted: str
    reason: str = ""

    @classmethod
    def of(cls, switch: str, wanted: bool | float | Sequence[str], reason: str = "") -> "Switch":
        """Make a switch from a value that is off (false, 0, an empty list) or on; a reason counts only if it is on."""
        reason = reason if wanted else ""
        return cls(switch, _words(wanted), _words(type(wanted)() if reason else wanted), reason)

    @property
    def active(self) -> bool:
        """Whether the switch acts as wanted."""
        return not self.reason

    def __str__(self) -> str:
        return f"{self.switch} {self.wanted}" + (f": inactive ({self.reason})" if self.reason else f" ({self.acted})")


def _words(value: bool | float | Sequence[str]) -> str:
    return (", ".join(value) or "none") if isinstance(value, list | tuple) else str(value).lower()
