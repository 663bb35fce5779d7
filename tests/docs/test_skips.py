"""tests/README.md names everything that may be skipped."""

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
# What skips a test: a call, a mark, or a fixture that needs the larger golden files or a browser.
SKIPS = re.compile(r"pytest\.skip\(|skipif\(|importorskip\(|mark\.gpu|[(,] ?(?:golden(?:_dir)?|chromium)[,:)]")


def test_every_file_that_skips_is_named_with_what_that_leaves_unproved() -> None:
    """Regression: the page did not name a file with a skip, or named a file that skips nothing."""
    text = (TESTS / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`tests/(\w+/test_\w+\.py)`", text)) - {"model/test_parity.py"}
    files = {path.relative_to(TESTS).as_posix(): path.read_text() for path in TESTS.glob("*/test_*.py")}
    skipping = {name for name, code in files.items() if SKIPS.search(code)} - {"docs/test_skips.py"}
    assert named == skipping
    assert not SKIPS.search(files["model/test_parity.py"])  # the page says that parity is never skipped
