import io
import logging
import time

import pytest

from faze.base.job_times import Forecast, Job
from faze.base.run_progress import RunProgress, duration

JOBS = {number: Job("train", f"train {number}", 1, frozenset(), 100.0, 0.0) for number in range(4)}


@pytest.fixture
def now(monkeypatch):
    at = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: at[0])
    return at


def tell(progress, event, **told):
    progress.handle(logging.makeLogRecord({"event": event, **told}))


def test_a_log_has_a_line_a_minute_at_most_and_one_at_the_end(now):
    stream = io.StringIO()
    progress = RunProgress("default", Forecast(JOBS, 2), 5, stream=stream)
    for number in JOBS:
        tell(progress, "job_info", jobid=number)
        now[0] += 25.0
        tell(progress, "job_finished", job_id=number)
        tell(progress, "progress", done=number + 1, total=5)
    progress.close()
    progress.close()
    lines = stream.getvalue().splitlines()
    # Three of four took 25 s instead of 100: at that pace, (75 + 60) / (300 + 60), the last takes 38 s.
    assert lines == ["default: 2 of 5 jobs, 38 s left (by the last run)", "default: 4 of 5 jobs done in 2 min"]


def test_a_stream_that_is_gone_ends_the_line_and_not_the_run(now):
    stream = io.StringIO()
    progress = RunProgress("default", Forecast(JOBS, 2), 5, stream=stream)
    stream.close()
    now[0] += 100.0
    tell(progress, "progress", done=1, total=5)
    tell(progress, "job_finished", job_id=0)
    progress.close()


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min"), (150.1, "3 min"), (3599, "1 h 00 min"), (7500, "2 h 05 min")],
)
def test_times_as_a_person_would_say_them(seconds, said):
    assert duration(seconds) == said
