"""The results as one Markdown page: rows for docs/ledger.md, and the proofs."""

from collections.abc import Iterator, Sequence

from records import Records
from units import AGAINST, Unit

from faze.benchmark.tier_table import markdown_table, markdown_tables
from faze.engine import machine


def page(records: Records, units: Sequence[Unit]) -> str:
    """Write ladder, leave-one-outs and proofs, as far as they are done."""
    checks, steps = list(_checks(records, units)), list(_steps(records, units))
    parts = [
        _measured(records, units),
        "The same experiment: largest relative difference of the small training's losses.",
        markdown_table(("rung", "alone, float64", "float32", "cumulative, float64", "float32", "verdict"), checks),
        "One step of the talk's global batch, in parts: largest relative difference of the loss terms.",
        markdown_table(("tier", "difference", "step s", "peak GiB", "verdict"), steps),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _measured(records: Records, units: Sequence[Unit]) -> str:
    """Write the ledger's rows; each tier was interleaved with the one that it is compared to, in a run of its own."""
    rungs = {unit.rung: records[unit.name] for unit in units if unit.kind == "tier"}
    rungs = {rung: result for rung, result in rungs.items() if result and "tiers" in result}
    if not rungs:
        return ""
    first = next(iter(rungs.values()))
    tiers = {rung: result["tiers"][rung] for rung, result in rungs.items()}
    whole = {"machine": machine.describe(), "work": first["work"], "roof": first["roof"], "tiers": tiers}
    without = {unit.rung: records[unit.name] for unit in units if unit.kind == "without"}
    without = {rung: result for rung, result in without.items() if result and "tiers" in result}
    if without:
        top = [unit.rung for unit in units if unit.kind == "tier"][-1]
        full = next(iter(without.values()))["tiers"][AGAINST]
        left_out = {rung: result["tiers"][rung] for rung, result in without.items()}
        whole["leave_one_out"] = {"of": top, "full": full, "left_out": left_out}
    return markdown_tables(whole).rstrip()


def _done(kind: str, records: Records, units: Sequence[Unit]) -> Iterator[tuple[str, dict, str]]:
    """Yield rung, result and verdict of the units of a kind that are done."""
    for unit in units:
        result = records[unit.name]
        if unit.kind == kind and result is not None:
            yield unit.rung, result, f"failed: {result['failed']}" if "failed" in result else "the same"


def _checks(records: Records, units: Sequence[Unit]) -> Iterator[list[str]]:
    for rung, result, verdict in _done("check", records, units):
        cells = []
        for name in ("alone", "cumulative"):
            gaps = result.get(name)
            both = zip((gaps["float64"], gaps["float32"]), gaps["tolerances"], strict=True) if gaps else ()
            cells += [f"{gap:.1e} of {tolerance:.0e}" for gap, tolerance in both] or ["", ""]
        yield [rung, *cells, verdict]


def _steps(records: Records, units: Sequence[Unit]) -> Iterator[list[str]]:
    for rung, r, verdict in _done("step", records, units):
        cells = ["", "", ""]
        if "difference" in r:
            cells = [f"{r['difference']:.1e} of {r['tolerance']:.0e}", f"{r['seconds']:.3g}", f"{r['peak_gib']:.3g}"]
        yield [rung, *cells, verdict]
