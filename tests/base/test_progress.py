import io
import time

from faze.base.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_in_a_log_is_one_line_each_half_minute(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    progress = Progress("train", 600, "pairs", stream=stream)
    for done in range(10, 601, 10):
        now[0] += 1.0
        progress(done)
    lines = stream.getvalue().splitlines()
    assert lines == [
        "train: 300/600 pairs, 10.0 pairs/s, 30 s left",
        "train: 600/600 pairs, 10.0 pairs/s, 0 s left",
    ]


def test_progress_of_a_resumed_run_counts_only_its_own_work(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    progress = Progress("train", 1200, "pairs", done=600, stream=stream)
    now[0] = 30.0
    progress(660)
    assert stream.getvalue() == "train: 660/1200 pairs, 2.0 pairs/s, 4 min left\n"


def test_progress_on_a_terminal_redraws_its_line(monkeypatch):
    now = [50.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    stream = Terminal()
    progress = Progress("encode", 40, "strips", stream=stream)
    for done, now[0] in ((10, 50.5), (20, 50.6), (30, 51.0), (40, 51.1)):  # the second is less than 0.2 s later
        progress(done, "note")
    assert stream.getvalue() == (
        "\r\x1b[Kencode: 10/40 strips, 20.0 strips/s, 2 s left, note"
        "\r\x1b[Kencode: 30/40 strips, 30.0 strips/s, 0 s left, note"
        "\r\x1b[Kencode: 40/40 strips, 36.4 strips/s, 0 s left, note\n"
    )
