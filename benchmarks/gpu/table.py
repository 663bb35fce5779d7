"""The results as one Markdown page: rows for docs/ledger.md, and the proofs."""

from collections.abc import Iterator, Sequence

from records import Records
from units import AGAINST, Unit

from faze.benchmark.tier_table import markdown_tables
from faze.engine import machine
from faze.evaluation.wording import markdown_table

PROOF = ("distance of tolerance", "in", "cosine", "length", "terms and gradient")


def page(records: Records, units: Sequence[Unit]) -> str:
    """Format the tiers, leave-one-out runs and proofs that are done so far."""
    exact = [f"float64: {PROOF[0]}", *(f"float32: {words}" for words in PROOF)]
    parts = [
        _measured(records, units),
        "The same experiment: how far the weights' changes lie from the baseline's, as a share of these, in that part "
        "of the network where it is most of what rounding explains.",
        markdown_table(("one switch", *exact, "verdict"), _proofs("switch", records, units)),
        markdown_table(("all up to a tier", *exact, "verdict"), _proofs("check", records, units)),
        "The second step of a batch in parts, against the baseline's in one.",
        markdown_table(("tier", *PROOF, "step s", "peak GiB", "verdict"), _steps(records, units)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _measured(records: Records, units: Sequence[Unit]) -> str:
    """Format the ledger's rows; each tier was interleaved with the tier it is compared with, in a separate run."""
    found = {unit.subject: records[unit.name] for unit in units if unit.kind == "tier"}
    found = {name: result for name, result in found.items() if result and "tiers" in result}
    if not found:
        return ""
    first = next(iter(found.values()))
    tiers = {tier: result["tiers"][tier] for tier, result in found.items()}
    whole = {name: first[name] for name in ("work", "roof", "rounds", "speed_interval")}
    whole |= {"machine": machine.describe(), "tiers": tiers}
    without = {unit.subject: records[unit.name] for unit in units if unit.kind == "without"}
    without = {tier: result for tier, result in without.items() if result and "tiers" in result}
    if without:
        top = [unit.subject for unit in units if unit.kind == "tier"][-1]
        full = next(iter(without.values()))["tiers"][AGAINST]
        left_out = {tier: result["tiers"][tier] for tier, result in without.items()}
        whole["leave_one_out"] = {"of": top, "full": full, "left_out": left_out}
    return markdown_tables(whole).rstrip()


def _done(kind: str, records: Records, units: Sequence[Unit]) -> Iterator[tuple[str, dict, str]]:
    """Yield the name, result and verdict of each finished unit of a kind."""
    for unit in units:
        result = records[unit.name]
        if unit.kind == kind and result is not None:
            yield unit.subject, result, f"failed: {result['failed']}" if "failed" in result else "the same"


def _proofs(kind: str, records: Records, units: Sequence[Unit]) -> Iterator[list[str]]:
    for name, r, verdict in _done(kind, records, units):
        cells = [""] * (1 + len(PROOF))
        if "float32" in r:
            cells = [_distance(r["float64"]), *_proof(r["float32"])]
        yield [name, *cells, verdict]


def _steps(records: Records, units: Sequence[Unit]) -> Iterator[list[str]]:
    for tier, r, verdict in _done("step", records, units):
        cells = [""] * (2 + len(PROOF))
        if "float32" in r:
            cells = [*_proof(r["float32"]), f"{r['float32']['seconds']:.3g}", f"{r['float32']['peak_gib']:.3g}"]
        yield [tier, *cells, verdict]


def _proof(found: dict) -> list[str]:
    scalars = f"{max(found['scalars'].values()):.1e}"
    return [_distance(found), found["part"], f"{found['cosine']:.6f}", f"{found['length']:.6f}", scalars]


def _distance(found: dict) -> str:
    return f"{found['distance']:.1e} of {found['tolerance']:.0e}"
