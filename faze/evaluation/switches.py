"""Compare the switches of tiers, as run logs and the benchmark record them."""

from collections.abc import Iterable, Mapping, Sequence

Switches = Sequence[Mapping[str, str]]  # `switch` events of a run log


def acting(switches: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Map each switch to its effective value: engines with equal values and equal settings run the same step."""
    return {switch["switch"]: switch["acted"] for switch in switches}


def tier_changes(tiers: Mapping[str, Switches]) -> dict[str, tuple[str | None, list[Mapping[str, str]]]]:
    """Return, for each tier, the tier that it builds on and the `switch` events that differ from that tier's.

    That is the first of those before it with the fewest differences. The first tier builds on none; its events are
    those of ineffective switches.
    """
    found = {}
    for tier, switches in tiers.items():
        known = [(before, [each for each in switches if each not in tiers[before]]) for before in found]
        ineffective = [each for each in switches if each["reason"]]
        found[tier] = min(known, key=lambda each: len(each[1]), default=(None, ineffective))
    return found
