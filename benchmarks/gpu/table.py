"""The results as one Markdown page: rows for docs/ledger.md."""

from collections.abc import Callable, Iterable, Sequence

from records import Records
from units import Unit

from faze import machine

NOTHING = ""


def table(records: Records, units: Sequence[Unit]) -> str:
    """Machine, ladder, leave-one-outs and proofs; what is not yet done stays empty."""
    facts = machine.describe()
    parts = [
        f"{facts.get('gpus') or facts['processor']}; torch {facts['torch']}, CUDA {facts.get('cuda', 'none')}, "
        f"Python {facts['python']}; commit {facts['commit']}",
        "## Ladder: one chunk of pairs a step, against the first rung",
        _grid(
            ["tier", "step ms (quartiles)", "images/s", "speed x (95 % interval)", "peak GiB", "memory x less", "roof"],
            (_ladder_row(unit, records) for unit in units if unit.kind == "tier"),
        ),
        "## Leave one out: the top rung without a rung's change",
        _grid(
            ["without", "speed x (95 % interval)", "memory x less"],
            (_without_row(unit, records) for unit in units if unit.kind == "without"),
        ),
        "## The same experiment: largest relative difference of the losses",
        _grid(
            ["unit", "float64", "float32", "verdict"],
            (_check_row(unit, records) for unit in units if unit.kind == "check"),
        ),
        "## One step of the talk's global batch, in parts",
        _grid(
            ["tier", "difference of the loss terms", "step s", "peak GiB", "verdict"],
            (_step_row(unit, records) for unit in units if unit.kind == "step"),
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _row(unit: Unit, records: Records, cells: int, fill: Callable[[dict], list[str]]) -> list[str]:
    result = records[unit.name]
    if result is None:
        return [unit.rung, *[NOTHING] * (cells - 1), "not yet"]
    if "failed" in result and len(result) == 1:
        return [unit.rung, *[NOTHING] * (cells - 1), f"failed: {result['failed']}"]
    return [unit.rung, *fill(result)]


def _ladder_row(unit: Unit, records: Records) -> list[str]:
    def fill(result: dict) -> list[str]:
        tier = result["tiers"][unit.rung]
        first, third = tier["step_ms_quartiles"]
        roof = max(tier.get("share_of_matmul_roof") or 0.0, tier.get("share_of_copy_roof") or 0.0)
        return [
            f"{tier['step_ms']:.4g} ({first:.4g} to {third:.4g})",
            f"{tier['images_per_s']:.4g}",
            _ratio(tier["speedup"]),
            f"{tier['peak_gib']:.3g}",
            f"{tier['memory_ratio']:.2f}",
            f"{roof:.0%}" if roof else NOTHING,
        ]

    return _row(unit, records, 6, fill)


def _without_row(unit: Unit, records: Records) -> list[str]:
    def fill(result: dict) -> list[str]:
        tier = result["tiers"][unit.rung]
        return [_ratio(tier["speedup"]), f"{tier['memory_ratio']:.2f}"]

    return _row(unit, records, 2, fill)


def _check_row(unit: Unit, records: Records) -> list[str]:
    def fill(result: dict) -> list[str]:
        return [
            f"{result['float64']:.1e} of {result['float64_tolerance']:.0e}",
            f"{result['float32']:.1e} of {result['float32_tolerance']:.0e}",
            result.get("failed", "the same"),
        ]

    return _row(unit, records, 3, fill)


def _step_row(unit: Unit, records: Records) -> list[str]:
    def fill(result: dict) -> list[str]:
        return [
            f"{result['difference']:.1e} of {result['tolerance']:.0e}",
            f"{result['seconds']:.3g}",
            f"{result['peak_gib']:.3g}",
            result.get("failed", "the same"),
        ]

    return _row(unit, records, 4, fill)


def _ratio(interval: dict) -> str:
    return f"{interval['ratio']:.2f} ({interval['low']:.2f} to {interval['high']:.2f})"
