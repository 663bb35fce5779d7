"""The run log: what is written is read, and a kill costs only the events after the last checkpoint."""

import json
import math
from pathlib import Path

import pytest

from faze.base.run_log import RunLog, read_events, read_run

SWITCH = {"switch": "precision", "wanted": "fp16", "acted": "fp32", "reason": "this CPU has no fp16 kernels"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "baseline" / "run.jsonl"


def write(path: Path, keep_bytes: int = 0, first_step: int = 8) -> RunLog:
    with RunLog(path, keep_bytes) as log:
        if keep_bytes:
            log.event("resume", step=first_step, moved="")
        else:
            log.event("start", tier="baseline", seed=0)
            log.event("switch", **SWITCH)
        log.event("metrics", step=first_step, values={"train/loss": 2.5, "train/lr": math.nan})
        log.event("note", text="left out: p07")
    return log


def test_a_run_is_read_as_it_was_written(path: Path) -> None:
    write(path)
    run = read_run(path)
    assert (run.start["tier"], run.start["seed"], run.notes) == ("baseline", 0, ["left out: p07"])
    assert run.switches == [SWITCH]
    [value] = run.values  # nan is null in the log
    assert (value.metric, value.step, value.value) == ("train/loss", 8, 2.5)
    assert run.start["time"] <= value.time <= run.ended


def test_every_line_is_json_that_other_programs_read(path: Path) -> None:
    write(path)
    events = [json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines()]
    assert [event["event"] for event in events] == ["start", "switch", "metrics", "note", "end"]
    assert events[2]["values"]["train/lr"] is None and events[-1]["seconds"] >= 0


def test_a_resumed_log_keeps_what_the_checkpoint_covers(path: Path) -> None:
    write(path)
    covered = len(b"".join(path.read_bytes().splitlines(keepends=True)[:3]))
    write(path, keep_bytes=covered, first_step=16)
    assert [event["event"] for event in read_events(path)] == [
        *("start", "switch", "metrics"),
        *("resume", "metrics", "note", "end"),
    ]
    assert [value.step for value in read_run(path).values] == [8, 16]


def test_a_killed_run_has_no_end_and_may_lack_the_last_line(path: Path) -> None:
    write(path)
    path.write_bytes(path.read_bytes()[:-9])
    assert [event["event"] for event in read_events(path)] == ["start", "switch", "metrics", "note"]
    assert read_run(path).ended is None
