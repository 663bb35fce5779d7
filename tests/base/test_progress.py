"""The progress of a stage in a log."""

import time

import pytest

from faze.base.progress import Progress


def test_a_log_gets_a_line_each_half_minute(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    progress = Progress("train", 2000, "pairs", done=1000)  # a resumed run
    for done in range(1010, 2001, 10):
        now[0] += 1.0
        progress(done)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("train") and "1300/2000" in lines[0] and "10.00 pairs/s" in lines[0]
