"""Compare the switches of tiers, as their run logs or the benchmark record them."""

from collections.abc import Iterable, Mapping, Sequence

Switches = Sequence[Mapping[str, str]]  # `switch` events of a run log


def acting(switches: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Map each switch to its effective value: engines with equal values and equal settings run the same step."""
    return {switch["switch"]: switch["acted"] for switch in switches}


def changed_switches(switches: Switches, before: Switches) -> list[Mapping[str, str]]:
    """Return the `switch` events that differ from another run's; without another run, those of ineffective switches."""
    old = {switch["switch"]: (switch["wanted"], switch["acted"]) for switch in before}
    if not old:
        return [switch for switch in switches if switch["reason"]]
    return [switch for switch in switches if old.get(switch["switch"]) != (switch["wanted"], switch["acted"])]


def tier_changes(tiers: Mapping[str, Switches]) -> dict[str, tuple[str | None, list[Mapping[str, str]]]]:
    """Return, for each tier, the tier that it builds on and the `switch` events that differ from that tier's.

    That tier is the one with the fewest differences among those before it, and the first of several. The first tier
    builds on none; its events are those of ineffective switches.
    """
    found: dict[str, tuple[str | None, list[Mapping[str, str]]]] = {}
    for tier, switches in tiers.items():
        known = [(base, changed_switches(switches, tiers[base])) for base in found]
        found[tier] = min(known, key=lambda each: len(each[1]), default=(None, changed_switches(switches, ())))
    return found
