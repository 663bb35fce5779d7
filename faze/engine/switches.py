"""Report the effect of each switch, so that no switch is silently without effect on this machine."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Switch:
    """A switch: its configured value, its effective value, and the reason if they differ."""

    switch: str
    wanted: str
    acted: str
    reason: str = ""

    @classmethod
    def of(cls, switch: str, wanted: bool | float | Sequence[str], reason: str = "") -> "Switch":
        """Return the report on a switch; `reason` is ignored if the configured value is off (false, 0, [])."""
        reason = reason if wanted else ""
        return cls(switch, _text(wanted), _text(type(wanted)() if reason else wanted), reason)

    @property
    def active(self) -> bool:
        """Whether the switch has the configured effect."""
        return not self.reason

    def __str__(self) -> str:
        return f"{self.switch} {self.wanted}" + (f": inactive ({self.reason})" if self.reason else f" ({self.acted})")


def _text(value: bool | float | Sequence[str]) -> str:
    return (", ".join(value) or "none") if isinstance(value, list | tuple) else str(value).lower()
