"""The results as one Markdown page: the tiers of each group, then the proofs."""

import re
from collections.abc import Iterator, Mapping, Sequence

from records import Records
from units import AGAIN, BASELINE, Unit

from faze.base.run_log import tier_changes
from faze.benchmark.rounds import TierRound, WarmUp
from faze.benchmark.rows import compare
from faze.config.parameters import DTED
from faze.evaluation.wording import ENOUGH_ROUNDS, counted, markdown_table, memory_change, peak, peaks_differ
from faze.training.workload_training import load_workload

PROOF = ("distance of tolerance", "in", "cosine", "length", "terms and gradient")
TIMES = ("tier", "change", "step ms", "speed", "peak GiB", "memory", "proof")
STAND_INS = "the loss scale of fp16 makes the CPU wait for the GPU in each step of an optimiser that is not fused"


def page(records: Records, units: Sequence[Unit], workload: str) -> str:
    """Format the times, the proofs and the failures so far."""
    gaze = workload == DTED
    score = "error on validation people, degrees" if gaze else load_workload(workload).score
    size = "the default's size, on rendered people" if gaze else workload
    exact = [f"float64: {PROOF[0]}", *(f"float32: {words}" for words in PROOF), "operations: largest error"]
    facts = records.machine
    device = facts.get("gpus") or f"{facts['cores']} cores {facts['processor']}"
    parts = [
        f"{device}; torch {facts['torch']}, Python {facts['python']}, commit {facts['commit']}.",
        *_times(records, units),
        f"Trainings to the end: {size}; baseline_again has another seed.",
        markdown_table(("tier", score, "seconds"), _trainings(records, units)),
        "The same experiment: how far the change of the weights is from the baseline's, as a share of its length, in "
        "the part of the network where the share is largest compared with the tolerance.",
        markdown_table(("tier", *exact, "verdict"), _proofs("check", records, units)),
    ]
    if gaze:
        parts += [
            markdown_table(("switch", *exact, "verdict"), _proofs("switch", records, units)),
            "The second step of a batch in parts, compared with the baseline's in one part.",
            markdown_table(("tier", *PROOF, "step s", "peak GiB", "verdict"), _steps(records, units)),
        ]
    parts += [
        "Failures:",
        markdown_table(("unit", "attempts", "reason"), _failures(records, units)),
    ]
    return "\n\n".join(parts) + "\n"


def unproved(records: Records, units: Sequence[Unit]) -> dict[str, str]:
    """Return each tier whose proof failed or is missing on this kind of machine, with the reason."""
    checks = {unit.subject: records[unit.name] for unit in units if unit.kind == "check"}
    found = {
        tier: "its proof has not run" if result is None else result.get("failed") for tier, result in checks.items()
    }
    return {tier: reason for tier, reason in found.items() if reason}


def _times(records: Records, units: Sequence[Unit]) -> Iterator[str]:
    """Yield a text and a table for each group; a tier without a passed proof has no time."""
    groups: dict[str, list[Unit]] = {}
    for unit in units:
        if unit.kind == "time":
            groups.setdefault(re.sub(r"-\d+$", "", unit.subject), []).append(unit)
    wrong = unproved(records, units)
    for group, of_group in groups.items():
        results = [result for unit in of_group if "tiers" in (result := records[unit.name] or {})]
        tiers = {tier: [r["tiers"][tier] for r in results if tier in r["tiers"]] for tier in of_group[0].engines}
        rounds = len(tiers[BASELINE])
        if not rounds:
            yield f"{group}: no round has been measured."
            continue
        over = f"{rounds} rounds"
        if rounds < ENOUGH_ROUNDS:
            over = "blocks, which are too narrow: they exclude differences between processes"
        scale = f" In amp and ddp, {STAND_INS}." if group == "talk" else ""
        yield f"{group}: {counted(rounds, 'round')} of fresh processes. Brackets are 95 % intervals over {over}.{scale}"
        yield markdown_table(TIMES, _rows(tiers, wrong))


def _rows(tiers: Mapping[str, Sequence[dict]], wrong: Mapping[str, str]) -> Iterator[list[str]]:
    """Yield the cells of each tier, whose rounds are compared with the baseline's in the same rounds."""
    changes = tier_changes({tier: rows[0]["switches"] for tier, rows in tiers.items() if rows and tier != AGAIN})
    reference = [round_of(row) for row in tiers[BASELINE]]
    first = compare(reference, reference)
    for tier, rows in tiers.items():
        proof = "reference" if tier in (BASELINE, AGAIN) else wrong.get(tier, "passed")
        if tier in wrong or len(rows) < len(reference):
            yield [tier, "", "", "", "", "", proof if tier in wrong else "not in every round"]
            continue
        row = compare([round_of(each) for each in rows], reference)
        throttled = sorted({reason for each in rows for reason in each.get("throttled", ())})
        speed = "{ratio:.2f} ({low:.2f} to {high:.2f})".format(**row["speedup"])
        yield [
            tier,
            _change(*changes[tier]) if tier != AGAIN else "shows the noise",
            f"{row['step_ms']:.4g}" + (f", throttled: {', '.join(throttled)}" if throttled else ""),
            speed if tier != BASELINE else "1",
            peak(row).replace(" GiB", ""),
            memory_change(row["memory_ratio"], peaks_differ(row, first)) if tier != BASELINE else "1",
            proof,
        ]


def round_of(row: Mapping) -> TierRound:
    """Return the round that a row of benchmark.json was computed from."""
    memory = {name: value for name, value in row.items() if name in ("peak_gib", "reserved_gib", "warmup_peak_gib")}
    (blocks,) = row["blocks_ms"]
    return TierRound({"switches": row["switches"]}, WarmUp(0.0, 0, True, 0.0), blocks, None, memory, {}, [])


def _change(base: str | None, switches: Sequence[Mapping[str, str]]) -> str:
    words = [f"{s['switch']} {s['wanted']}" + (f" inactive: {s['reason']}" if s["reason"] else "") for s in switches]
    return (f"on {base}: " if base else "") + ("; ".join(words) or "nothing")


def _verdict(result: Mapping) -> str:
    if "failed" in result:
        return f"failed: {result['failed']}"
    inactive = "; ".join(f"{switch} is inactive: {reason}" for switch, reason in result.get("inactive", {}).items())
    return "; ".join(filter(None, ["the same", inactive, result.get("not_compared", ""), result.get("note", "")]))


def _proofs(kind: str, records: Records, units: Sequence[Unit]) -> Iterator[list[str]]:
    for unit in units:
        r = records[unit.name]
        if unit.kind == kind and r is not None:
            exact = _distance(r["float64"]) if "float64" in r else ""
            coarse = _proof(r["float32"]) if "float32" in r else [""] * len(PROOF)
            cells = [exact, *coarse, _operations(r.get("operations"))]
            yield [unit.subject, *cells, _verdict(r)]


def _operations(found: Mapping | None) -> str:
    return f"{found['error']:.2f} roundings ({found['worst']})" if found and found["operations"] else ""


def _trainings(records: Records, units: Sequence[Unit]) -> Iterator[list[str]]:
    for unit in units:
        r = records[unit.name]
        if unit.kind == "train" and r is not None:
            failed = ["failed", ""]
            yield [unit.subject, *([f"{r['score']:.2f}", f"{r['seconds']:.0f}"] if "score" in r else failed)]


def _steps(records: Records, units: Sequence[Unit]) -> Iterator[list[str]]:
    for unit in units:
        r = records[unit.name]
        if unit.kind == "step" and r is not None:
            cells = [""] * (2 + len(PROOF))
            if "float32" in r:
                cells = [*_proof(r["float32"]), f"{r['float32']['seconds']:.3g}", f"{r['float32']['peak_gib']:.3g}"]
            yield [unit.subject, *cells, _verdict(r)]


def _failures(records: Records, units: Sequence[Unit]) -> Iterator[list[str]]:
    for unit in units:
        if records.failed(unit.name):
            yield [unit.name, str(records.failures(unit.name)), records[unit.name]["failed"]]


def _proof(found: dict) -> list[str]:
    scalars = f"{max(found['scalars'].values()):.1e}"
    return [_distance(found), found["part"], f"{found['cosine']:.6f}", f"{found['length']:.6f}", scalars]


def _distance(found: dict) -> str:
    return f"{found['distance']:.1e} of {found['tolerance']:.0e}"
