"""What became of a switch on the device at hand: never silently skipped."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Switch:
    """One switch as wanted by the config, as it acts, and why not if it does not."""

    switch: str
    wanted: str
    acted: str
    reason: str = ""

    @property
    def active(self) -> bool:
        """Whether the switch acts as wanted."""
        return not self.reason

    def __str__(self) -> str:
        return f"{self.switch} {self.wanted}" + (f": inactive ({self.reason})" if self.reason else f" ({self.acted})")
