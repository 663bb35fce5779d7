"""The tables of docs/ledger.md, from benchmark.json."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from faze.base.benchmark_file import left_out_rows, peaks_differ, rounds_of
from faze.base.run_log import changed_switches
from faze.evaluation.wording import markdown_table, memory_change, peak

TIERS = ("tier", "change", "step ms (quartiles)", "images/s", "speed x", "peak GiB (least to most)", "memory")
LIMITS = ("of matmul roof", "of copy roof", "J/step", "warm-up s", "which pays off after pairs")
LEFT_OUT = ("left out", "step ms", "speed without it x", "peak GiB (least to most)", "memory without it")
WIDE = ("tier", "step ms", "speed x", "peak GiB (least to most)", "memory")


def markdown_tables(benchmark: Mapping[str, Any]) -> str:
    """Write in Markdown the machine, one row per tier, and one per leave-one-out and width where they were measured."""
    about = f"{_machine(benchmark)} {_about_rounds(benchmark)}"
    parts = [about, markdown_table(TIERS + LIMITS, _tier_rows(benchmark["tiers"]))]
    if left_out := benchmark.get("leave_one_out"):
        rows = _compared(left_out_rows(left_out), left_out["full"])
        parts += [_about_left_out(left_out), markdown_table(LEFT_OUT, rows)]
    if wide := benchmark.get("paper_width"):
        first = next(iter(wide["tiers"].values()), {})
        parts += [_about_width(wide), markdown_table(WIDE, _compared(wide["tiers"], first))]
    return "\n\n".join(parts) + "\n"


def _about_rounds(benchmark: Mapping[str, Any]) -> str:
    about = rounds_of(benchmark)
    rounds = "1 round" if about["rounds"] == 1 else f"{about['rounds']} rounds"
    return f"In brackets {100 * about['confidence']:g} % intervals over {about['over']}; {rounds} of fresh processes."


def _machine(benchmark: Mapping[str, Any]) -> str:
    facts = benchmark["machine"]
    device = facts.get("gpus") or f"{facts['cores']} cores {facts['processor']}"
    words = [f"{device}; torch {facts['torch']}, Python {facts['python']}, commit {facts['commit']}"]
    if work := benchmark.get("work"):
        words.append(f"a step of the plain formulation: {work['flop'] / 1e9:.4g} GFLOP, {work['bytes'] / 1e9:.3g} GB")
    if roof := benchmark.get("roof"):
        products = [f"{rate['median']:.3g} TFLOP/s {name}" for name, rate in roof["matmul_tflops"].items()]
        copy = f"copy {roof['copy_gbytes_per_s']['median']:.3g} GB/s"
        words.append(f"roof: {copy}, matrix product {', '.join(products)}")
    return "; ".join(words) + "."


def _tier_rows(tiers: Mapping[str, Mapping[str, Any]]) -> Iterator[list[str]]:
    first = next(iter(tiers.values()), {})
    for (name, tier), before in zip(tiers.items(), (None, *tiers.values()), strict=False):
        low, high = tier["step_ms_quartiles"]
        yield [
            name,
            _change(tier["switches"], before["switches"] if before else ()),
            f"{tier['step_ms']:.4g} ({low:.4g} to {high:.4g})" + _throttled(tier),
            f"{tier['images_per_s']:.4g}",
            _speed(tier["speedup"]) if before else "1",
            _peak(tier),
            _memory(tier, first) if before else "1",
            _share(tier.get("share_of_matmul_roof")),
            _share(tier.get("share_of_copy_roof")),
            _number(tier, "joules_per_step"),
            _number(tier, "warmup_s"),
            _pays_off(tier) if before else "",
        ]


def _throttled(tier: Mapping[str, Any]) -> str:
    """Mark a tier whose GPU was held down by what is named, before or after a block."""
    return f", throttled: {', '.join(tier['throttled'])}" if tier.get("throttled") else ""


def _peak(tier: Mapping[str, Any]) -> str:
    """Write the allocated memory, and where the allocator keeps more than that, the reserved."""
    reserved = tier.get("reserved_gib")
    return peak(tier).replace(" GiB", "") + ("" if reserved is None else f" ({reserved:.3f} reserved)")


def _memory(tier: Mapping[str, Any], full: Mapping[str, Any]) -> str:
    """Write what a tier saves where its rounds' peaks keep apart from the other's; of older files, without asking."""
    return memory_change(tier["memory_ratio"], "peaks_gib" not in tier or peaks_differ(tier, full))


def _number(tier: Mapping[str, Any], name: str) -> str:
    """Write a number; nothing where it was not measured, as in older files."""
    return "" if tier.get(name) is None else f"{tier[name]:.3g}"


def _pays_off(tier: Mapping[str, Any]) -> str:
    """Write the pairs after which a faster step has made up for the warm-up's extra time."""
    if "pays_off_after_pairs" not in tier:  # in older files
        return ""
    pairs = tier["pays_off_after_pairs"]
    return "never" if pairs is None else f"{pairs:,.0f}"


def _change(switches: Sequence[Mapping[str, str]], before: Sequence[Mapping[str, str]]) -> str:
    return "; ".join(
        f"{s['switch']} {s['wanted']} " + (f"inactive: {s['reason']}" if s["reason"] else f"({s['acted']})")
        for s in changed_switches(switches, before)
    )


def _about_left_out(left_out: Mapping[str, Any]) -> str:
    full = left_out["full"]
    return (
        f"Leave-one-out: {left_out['of']} ({full['step_ms']:.4g} ms, {full['peak_gib']:.3f} GiB) without one rung's "
        "change; below 1, the change makes it faster."
    )


def _about_width(wide: Mapping[str, Any]) -> str:
    model = wide["model"]
    return (
        f"At the paper's width: growth {model['growth']}, {model['image_height_px']} x {model['image_width_px']}, "
        f"{wide['global_batch']} pairs. {_about_rounds(wide)}"
    )


def _compared(rows: Mapping[str, Mapping[str, Any]], full: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yield the cells of tiers that are compared with a full one, or why one was not measured."""
    for name, row in rows.items():
        if "same" in row:
            yield [name, "", row["same"], "", ""]
        else:
            speed, memory = ("1", "1") if row is full else (_speed(row["speedup"]), _memory(row, full))
            yield [name, f"{row['step_ms']:.4g}", speed, _peak(row), memory]


def _speed(speedup: Mapping[str, float]) -> str:
    return "{ratio:.2f} ({low:.2f} to {high:.2f})".format(**speedup)


def _share(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"
