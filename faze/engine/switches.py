"""Reports on the effect of each switch, so that no switch is silently inactive on this machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Switch:
    """A switch: its configured value, its effective value, and the reason if they differ."""

    switch: str
    wanted: str
    acted: str
    reason: str = ""

    @classmethod
    def of(cls, switch: str, wanted: bool | float, reason: str = "") -> "Switch":
        """Return the report on a switch; `reason` is ignored if the configured value is off (false, 0)."""
        reason = reason if wanted else ""
        return cls(switch, str(wanted).lower(), str(type(wanted)() if reason else wanted).lower(), reason)

    @property
    def active(self) -> bool:
        """Whether the switch has the configured effect."""
        return not self.reason

    def __str__(self) -> str:
        return f"{self.switch} {self.wanted}" + (f": inactive ({self.reason})" if self.reason else f" ({self.acted})")


def number_format(switches: Sequence[Mapping[str, str]]) -> str:
    """Return the number format of matrix products under a tier's switches: fp32, tf32, fp16 or bf16."""
    active = {switch["switch"]: switch["wanted"] for switch in switches if not switch["reason"]}
    precision = active.get("precision", "fp32")
    return "tf32" if precision == "fp32" and active.get("tf32") == "true" else precision
