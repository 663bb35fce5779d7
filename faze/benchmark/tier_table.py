"""The tables of the log of `benchmark`, from benchmark.json."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from faze.evaluation.switches import tier_changes
from faze.evaluation.wording import counted, markdown_table, memory_change, peak, peaks_differ

TIERS = ("tier", "change", "step ms (quartiles)", "inputs/s", "speed x", "peak GiB (min to max)", "memory")
LIMITS = ("of matmul peak", "of copy peak", "J/step", "warm-up s", "warm-up pays off after samples")


def markdown_tables(benchmark: Mapping[str, Any]) -> str:
    """Format the machine and the tiers."""
    about = f"{_machine(benchmark)} {_about_rounds(benchmark)}"
    return f"{about}\n\n{markdown_table(TIERS + LIMITS, _tier_rows(benchmark['tiers']))}\n"


def _about_rounds(benchmark: Mapping[str, Any]) -> str:
    interval, rounds = benchmark["speed_interval"], benchmark["rounds"]
    level, counted = f"{100 * interval['confidence']:g} %", "1 round" if rounds == 1 else f"{rounds} rounds"
    return f"Brackets contain {level} intervals over {interval['over']}; {counted} of fresh processes."


def _machine(benchmark: Mapping[str, Any]) -> str:
    facts = benchmark["machine"]
    device = facts.get("gpus") or f"{counted(int(facts['cores']), 'core')} {facts['processor']}"
    parts = [f"{device}; torch {facts['torch']}, Python {facts['python']}, commit {facts['commit']}"]
    if work := benchmark.get("work"):
        parts.append(f"a step of the plain formulation: {work['flop'] / 1e9:.4g} GFLOP, {work['bytes'] / 1e9:.3g} GB")
    if roofline := benchmark.get("roof"):
        products = [f"{rate['median']:.3g} TFLOP/s {name}" for name, rate in roofline["matmul_tflops"].items()]
        copy = f"copy {roofline['copy_gbytes_per_s']['median']:.3g} GB/s"
        parts.append(f"roofline peaks: {copy}, matrix product {', '.join(products)}")
    return "; ".join(parts) + "."


def _tier_rows(tiers: Mapping[str, Mapping[str, Any]]) -> Iterator[list[str]]:
    first = next(iter(tiers.values()), {})
    changes = tier_changes({name: tier["switches"] for name, tier in tiers.items()})
    for name, tier in tiers.items():
        low, high = tier["step_ms_quartiles"]
        before, changed = changes[name]
        yield [
            name,
            f"on {before}: {_change(changed)}" if before else _change(changed),
            f"{tier['step_ms']:.4g} ({low:.4g} to {high:.4g})" + _throttled(tier),
            f"{tier['images_per_s']:.4g}",
            _speed(tier["speedup"]) if before else "1",
            _peak(tier),
            _memory(tier, first) if before else "1",
            _share(tier["share_of_matmul_roof"]),
            _share(tier["share_of_copy_roof"]),
            _number(tier, "joules_per_step"),
            _number(tier, "warmup_s"),
            _pays_off(tier) if before else "",
        ]


def _throttled(tier: Mapping[str, Any]) -> str:
    """Format the reasons why the tier's GPU was throttled before or after a block."""
    return f", throttled: {', '.join(tier['throttled'])}" if tier.get("throttled") else ""


def _peak(tier: Mapping[str, Any]) -> str:
    """Format the allocated memory and, where it is measured, the memory reserved by the allocator."""
    reserved = tier.get("reserved_gib")
    return peak(tier).replace(" GiB", "") + ("" if reserved is None else f" ({reserved:.3f} reserved)")


def _memory(tier: Mapping[str, Any], full: Mapping[str, Any]) -> str:
    """Format the memory saving if the ranges of the peaks do not overlap."""
    return memory_change(tier["memory_ratio"], peaks_differ(tier, full))


def _number(tier: Mapping[str, Any], name: str) -> str:
    """Format a number; return "" if it was not measured."""
    return "" if tier[name] is None else f"{tier[name]:.3g}"


def _pays_off(tier: Mapping[str, Any]) -> str:
    """Format the number of pairs after which a faster step has made up for the longer warm-up."""
    pairs = tier["pays_off_after_pairs"]
    return "never" if pairs is None else f"{pairs:,.0f}"


def _change(switches: Sequence[Mapping[str, str]]) -> str:
    return "; ".join(
        f"{s['switch']} {s['wanted']} " + (f"inactive: {s['reason']}" if s["reason"] else f"({s['acted']})")
        for s in switches
    )


def _speed(speedup: Mapping[str, float]) -> str:
    return "{ratio:.2f} ({low:.2f} to {high:.2f})".format(**speedup)


def _share(share: float) -> str:
    return f"{100 * share:.0f} %"
