"""Text files that anyone can write: reading always ends, with a value or a one-sentence error.

Regression for each case: reading never ended, or ended with a traceback.
"""

import errno
import json
import os
import socket
from pathlib import Path

import pytest

from faze.base.command_line import printable
from faze.base.errors import UserError
from faze.base.files import as_written, open_plain, parse_json, read_json, read_plain, reason_of
from faze.base.logged_run import read_logged_run
from faze.base.output_cache import output_cache
from faze.base.progress import read_seconds
from faze.base.run_log import read_events

DEEP = "[" * 100_000


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "pipe", "socket"])
def test_only_files_are_opened(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
        with pytest.raises(OSError) as told:  # before anybody writes into the pipe
            open_plain(path)
    refused = (
        (errno.ENXIO, os.strerror(errno.ENXIO)) if path == "socket" else (errno.EPERM, "a pipe or a device, not a file")
    )
    assert (told.value.errno, reason_of(told.value)) == refused


def test_files_are_read_whole_up_to_a_size(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc" * 100_000)
    assert read_plain(tmp_path / "x") == b"abc" * 100_000
    with (tmp_path / "y").open("wb") as file:
        file.truncate(2**28)
    open_plain(tmp_path / "y").close()
    os.truncate(tmp_path / "y", 2**28 + 1)
    with pytest.raises(OSError, match="256 MiB is too large"):
        read_plain(tmp_path / "y")


def test_json_that_is_nested_too_deeply_is_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(DEEP)
    (tmp_path / "x.json").write_text(DEEP)
    with pytest.raises(UserError, match="x.json"):
        read_json(tmp_path / "x.json", (), "make it again")


def test_what_somebody_changed_is_told_with_its_cause(tmp_path: Path) -> None:
    sentence = r"x.json .*\(KeyError: 'b'\): make it again"
    with pytest.raises(UserError, match=sentence) as told, as_written(tmp_path / "x.json", "make it again"):
        {"a": 1}["b"]
    assert isinstance(told.value.__cause__, KeyError)
    with pytest.raises(MemoryError), as_written(tmp_path / "x.json", ""):
        raise MemoryError


START = {"event": "start", "time": 1.0, "name": "x", "tier": "a", "seed": 0, "config": {}, "machine": {}}
END = {"event": "end", "time": 2.0}


@pytest.mark.parametrize(
    "event",
    [
        {"event": "metrics", "time": 1.0, "step": 1},
        {"event": "metrics", "time": 1.0, "step": "1", "values": {"a": 1}},
        {"event": "metrics", "time": 1.0, "step": 1, "values": [1]},
        {"event": "metrics", "time": 1.0, "step": 1, "values": {"a": "x"}},
        {"event": "metrics", "time": 1.0, "step": 1, "values": {"a": int("9" * 400)}},
        {"event": "metrics", "step": 1, "values": {}},
        {"event": "end", "time": "yesterday"},
        {"event": "end", "time": 1e300},
        {"event": "end", "time": float("nan")},
        {"event": "switch", "time": 1.0, "switch": "x"},
    ],
)
def test_a_log_that_somebody_changed_is_one_sentence(event: dict, tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_text("\n".join(map(json.dumps, (START, event, END))))
    with pytest.raises(UserError, match="run.jsonl .*: delete it and train that run again"):
        read_logged_run(tmp_path / "run.jsonl")


@pytest.mark.parametrize("key", ["name", "seed", "config"])
def test_a_start_of_another_kind_is_one_sentence(key: str, tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_text(json.dumps(START | {key: [1]}))
    with pytest.raises(UserError, match=f"invalid {key} in the start event"):
        read_logged_run(tmp_path / "run.jsonl")


def test_numbers_that_are_none_and_lines_without_end_are_left_out(tmp_path: Path) -> None:
    metrics = '{"event": "metrics", "time": 1.0, "step": 5, "values": {"a": NaN, "b": 1e999, "c": 2.5}}'
    lines = [json.dumps(START), DEEP, metrics]
    (tmp_path / "run.jsonl").write_text("\n".join(lines))
    assert len(read_events(tmp_path / "run.jsonl")) == 2
    assert read_logged_run(tmp_path / "run.jsonl").values == [("c", 5, 2.5, 1.0)]


def test_a_time_without_end_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "job.tsv").write_text('s\th:m:s\n"' + "9" * 200_000)
    assert read_seconds(tmp_path / "job.tsv") is None


@pytest.mark.parametrize("donor", ["../..", "/", "x" * 300, "a\0b", "."])
def test_a_record_of_what_cannot_be_copied_is_made_anew(donor: str, tmp_path: Path) -> None:
    """Regression: a folder that contains the target was copied into itself."""
    records, made = tmp_path / "results/output_cache", tmp_path / "results/made"
    records.mkdir(parents=True)
    (records / "x.json").write_text(json.dumps([{donor: "0" * 64}]))
    with output_cache(records, "x", [made]) as taken:
        assert not taken
        made.write_text("new")
    assert made.read_text() == "new"


def test_names_of_others_command_no_terminal() -> None:
    assert printable("a\x1b[2Jb\x07\u202ec\udcff\r\nd é") == r"a\x1b[2Jb\x07\u202ec\udcff\r" + "\nd é"
