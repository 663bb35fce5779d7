import json
import os
import time
from pathlib import Path

import pytest

from faze.base.errors import UserError
from faze.base.logged_run import read_ended_run
from faze.base.run_log import RunLog, changed_switches, is_whole, read_events, tier_changes


def test_events_come_back_in_order_with_their_time(tmp_path):
    before = time.time()
    with RunLog(tmp_path / "deep" / "run.jsonl") as log:
        log.event("start", name="x", config={"a.b": 1})
        log.metrics(16, {"train/loss": 0.1 + 0.2})
    start, metrics, end = read_events(tmp_path / "deep" / "run.jsonl")
    assert (start["event"], metrics["event"], end["event"]) == ("start", "metrics", "end")
    assert (start["name"], start["config"]) == ("x", {"a.b": 1})
    assert before <= start["time"] <= metrics["time"] <= end["time"] <= time.time()
    assert metrics["step"] == 16 and metrics["values"] == {"train/loss": 0.1 + 0.2}
    assert 0 <= end["seconds"] <= time.time() - before + 1


def test_each_line_is_on_disk_at_once(tmp_path):
    log = RunLog(tmp_path / "run.jsonl")
    log.event("note", text="now")
    assert [e["text"] for e in read_events(tmp_path / "run.jsonl")] == ["now"]
    log._file.close()


def test_what_json_lacks_becomes_null_and_every_line_stays_json(tmp_path):
    with RunLog(tmp_path / "run.jsonl") as log:
        log.metrics(1, {"a": float("nan"), "b": float("inf"), "c": 1.0})
        log.event("note", values=[1.0, float("nan")], nested={"deep": {"x": float("-inf")}})
    lines = (tmp_path / "run.jsonl").read_text().splitlines()
    metrics, note, _ = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert metrics["values"] == {"a": None, "b": None, "c": 1.0}
    assert note["values"] == [1.0, None] and note["nested"] == {"deep": {"x": None}}


def test_a_failed_run_has_no_end(tmp_path):
    with pytest.raises(ZeroDivisionError), RunLog(tmp_path / "run.jsonl") as log:
        log.event("start")
        raise ZeroDivisionError
    assert [e["event"] for e in read_events(tmp_path / "run.jsonl")] == ["start"]


def test_a_torn_last_line_is_left_out(tmp_path):
    path = tmp_path / "run.jsonl"
    with RunLog(path) as log:
        log.event("start")
    path.write_bytes(path.read_bytes()[:-20])
    assert [e["event"] for e in read_events(path)] == ["start"]


def test_a_resumed_run_keeps_what_its_checkpoint_knows_of(tmp_path):
    path = tmp_path / "run.jsonl"
    log = RunLog(path)
    log.event("start")
    known = log.size
    log.metrics(16, {"train/loss": 1.0})
    log._file.write('{"event": "torn')
    log._file.close()
    with RunLog(path, keep_bytes=known) as log:
        log.event("resume", step=0)
    assert [e["event"] for e in read_events(path)] == ["start", "resume", "end"]
    with RunLog(path, keep_bytes=2 * path.stat().st_size) as log:
        log.event("resume", step=0)
    assert [e["event"] for e in read_events(path)] == ["start", "resume", "end", "resume", "end"]
    with RunLog(path) as log:
        log.event("start")
    assert [e["event"] for e in read_events(path)] == ["start", "end"]


def test_a_log_shorter_than_its_checkpoint_says_does_not_fill_up_with_zeros(tmp_path):
    with RunLog(tmp_path / "run.jsonl", keep_bytes=500) as log:
        log.event("resume")
    assert [e["event"] for e in read_events(tmp_path / "run.jsonl")] == ["resume", "end"]


def test_a_switch_has_changed_where_it_wants_or_does_something_else():
    """Regression: only configured values were compared, so a switch disabled by another one was not listed."""

    def switch(name: str, wanted: str, acted: str, reason: str = "") -> dict[str, str]:
        return {"switch": name, "wanted": wanted, "acted": acted, "reason": reason}

    before = [switch("pin", "true", "false", "no GPU"), switch("compile", "default", "inductor")]
    before += [switch("recompute", "false", "false"), switch("processes", "2", "1")]
    after = [
        before[0],
        switch("compile", "default", "eager", "inactive with recompute"),
        switch("recompute", "true", "true"),
        switch("processes", "4", "1"),
    ]
    assert changed_switches(before, ()) == before[:1]
    assert changed_switches(after, before) == after[1:]
    assert changed_switches(before, before) == []


def test_a_tier_builds_on_the_one_with_the_fewest_differences():
    def switches(**acted: str) -> list[dict[str, str]]:
        defaults = {"parallel": "dp", "precision": "fp32", "recompute": "false"}
        return [
            {"switch": name, "wanted": value, "acted": value, "reason": ""}
            for name, value in (defaults | acted).items()
        ]

    tiers = {
        "baseline": switches(),
        "ddp": switches(parallel="ddp"),
        "amp": switches(precision="fp16"),
        "recompute": switches(precision="fp16", recompute="true"),
        "again": switches(precision="fp16", recompute="true"),
        "plain": switches(recompute="true"),
    }
    bases = {"ddp": "baseline", "amp": "baseline", "recompute": "amp", "again": "recompute", "plain": "baseline"}
    found = tier_changes(tiers)
    assert {tier: base for tier, (base, _) in found.items()} == {"baseline": None} | bases
    assert [switch["switch"] for switch in found["plain"][1]] == ["recompute"] and found["again"][1] == []


def test_a_log_that_lost_its_end_or_has_a_flipped_bit_is_not_whole(tmp_path):
    """Regression: a line damaged by a flipped bit was skipped silently, and lines lost to a truncation went
    unnoticed."""
    path = tmp_path / "run.jsonl"
    with RunLog(path) as log:
        log.event("start", tier="baseline")
        log.metrics(16, {"train/loss": 1.25})
    whole = path.read_bytes()
    assert is_whole(path)
    for damaged in (whole.replace(b"1.25", b"1.24"), whole[:-40], whole[: whole.index(b"\n", 100) + 1], b""):
        path.write_bytes(damaged)
        assert not is_whole(path)
        with pytest.raises(UserError, match="run.jsonl .*delete it"):
            read_ended_run(path)
    del (end := json.loads(whole.splitlines()[-1]))["checksum"]
    path.write_bytes(whole.replace(whole.splitlines()[-1], json.dumps(end).encode()))
    assert is_whole(path)  # as older versions wrote it


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_names_the_log(tmp_path):
    """Regression: the message was `[Errno 28] No space left on device`, without a file name."""
    log = RunLog(tmp_path / "run.jsonl")
    log._file = Path("/dev/full").open("w", encoding="utf-8")  # noqa: SIM115
    with pytest.raises(OSError, match="No space left on device") as caught:
        log.event("start")
    assert caught.value.filename == str(tmp_path / "run.jsonl")
