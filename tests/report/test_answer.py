"""The comparisons on a tier's own page: what is called faster, less or not shown."""

import pytest

from faze.evaluation.records import list_changes
from faze.report.answer import compare_records, error_rows, measured_rows

ERRORS = {"metric": ["error/phone_k9_deg"] * 4, "person": [*"abcd"], "seed": [0] * 4, "error": [3.0, 4.0, 5.0, 6.0]}
MACHINE = {"commit": "1a2b+", "torch": "2.13.0"}


def measured(step_ms: float = 100.0, peaks: tuple[float, ...] = (1.0, 1.1, 1.2), ratio: float = 1.0) -> dict:
    speedup = {"ratio": ratio, "low": ratio / 1.1, "high": ratio * 1.1}
    return {"step_ms": step_ms, "peaks_gib": peaks, "memory_ratio": 1.1 / peaks[1], "speedup": speedup}


def record(of: dict, change: float = 0.0, **fields: object) -> dict:
    errors = ERRORS | {"error": [error + change for error in ERRORS["error"]]}
    about = {"sources": ["a.py@1", "b.py@2"], "config": {"train.pairs": 8}, "machine": MACHINE, "config_hash": "1"}
    return about | {"speed": of, "errors": errors} | fields


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (measured(), ["not shown", "not shown"]),
        (measured(125.0, ratio=0.8), ["slower", "not shown"]),
        (measured(80.0, (0.8, 0.9, 0.99), ratio=1.25), ["faster", "less"]),
        (measured(80.0, (1.3, 1.4, 1.5), ratio=1.25), ["faster", "more"]),
    ],
)
def test_a_change_is_shown_only_beyond_the_variation_of_rounds(after: dict, words: list[str]) -> None:
    assert [row.verdict for row in measured_rows(measured(), after)] == words


def test_errors_are_compared_by_person() -> None:
    for changes, verdict in (([0.0] * 4, "identical"), ([0.1] * 4, "higher"), ([0.1, -0.1, 0.2, -0.1], "not shown")):
        after = ERRORS | {"error": [error + change for error, change in zip(ERRORS["error"], changes, strict=True)]}
        [row] = error_rows(ERRORS, after)
        assert row[:2] == ("Error on phone, k = 9, °", "4.500") and row.verdict == verdict
    assert error_rows(ERRORS, ERRORS | {"person": [*"efgh"]}) == []  # other people


def test_records_of_two_days_are_compared_through_the_baseline() -> None:
    before, after = record(measured(ratio=1.0)), record(measured(200.0, ratio=1.5), 0.5, config_hash="2")
    speed, _, error = compare_records(before, after)
    assert speed[1:] == ("1.00×", "1.50×", "1.50× (1.31 to 1.72)", "faster") and error.verdict == "higher"
    assert "are the same" in compare_records(before, before)[0].change


def test_everything_that_differs_is_listed() -> None:
    new = record(
        measured(), sources=["a.py@3", "c.py@2"], machine=MACHINE | {"torch": "2.12.0"}, config={"train.pairs": 9}
    )
    changed = ["code: a.py: not committed", "code: b.py: not committed", "code: c.py: not committed"]
    changed += ["config: train.pairs: 8 → 9", "machine: torch: 2.13.0 → 2.12.0"]
    assert list_changes(record(measured()), new) == changed
