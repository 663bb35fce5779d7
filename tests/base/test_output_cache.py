"""Outputs made from the same inputs are copied or kept, unless they are changed or incomplete.

Checked by breaking the code: no comparison of hashes (incomplete), no lock (two at once), the record written before
the outputs (killed), incomplete outputs kept, and outputs kept with their old time.
"""

import hashlib
import importlib.metadata
import json
import multiprocessing
import os
import shutil
from pathlib import Path

import pytest

from faze.base import output_cache as module
from faze.base.output_cache import (
    content,
    content_within,
    existing_output,
    key_of,
    output_cache,
    shared_folder,
)

KEY = "stage-0123456789abcdef"
FORK = multiprocessing.get_context("fork")


def make(root: Path, tier: str, key: str = KEY, text: str = "") -> bool:
    """Make a file and a folder, as a stage does; return whether they were copied instead."""
    out = [root / tier / "file.pt", root / tier / "folder"]
    with output_cache(root / "output_cache", key, out) as copied:
        if not copied:
            out[1].mkdir(parents=True, exist_ok=True)
            out[0].write_text(text or tier)
            (out[1] / "a.txt").write_text(text or tier)
            (out[1] / ".mark").write_text("of the workflow")
    return copied


def read(root: Path, tier: str) -> tuple[str, list[str]]:
    folder = root / tier / "folder"
    return (root / tier / "file.pt").read_text(), sorted(path.name for path in folder.iterdir())


def test_the_second_takes_over_what_the_first_made(tmp_path, capsys):
    assert not make(tmp_path, "baseline")
    assert make(tmp_path, "amp") and make(tmp_path, "bf16")
    assert "baseline/folder" in capsys.readouterr().err
    assert read(tmp_path, "amp") == ("baseline", ["a.txt"])
    assert (tmp_path / "amp/file.pt").stat().st_nlink == 1  # its time of writing is its own


def test_another_key_is_another_output(tmp_path):
    assert not make(tmp_path, "baseline")
    assert not make(tmp_path, "amp", "stage-another")


@pytest.mark.parametrize("package", ["torch", "numpy"])
def test_a_key_depends_on_parts_stage_code_and_versions(package, monkeypatch):
    """Regression: codes made by another version of torch were reused."""
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.0")
    keys = [key_of("encode", 1), key_of("encode", 2), key_of("adapt", 2)]
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.0" if name == package else "1.0")
    keys += [key_of("encode", 1)]
    monkeypatch.setattr("faze.base.code_hash.fingerprint", lambda module: "another")
    keys += [key_of("encode", 1)]
    assert len(set(keys)) == 5 and key_of("encode", 1) == keys[-1]


def test_without_a_folder_of_records_nothing_is_copied(tmp_path, monkeypatch):
    """Also not from the folder that all ablations share."""
    monkeypatch.setenv(module.FOLDER_VARIABLE, str(tmp_path / "output_cache"))
    make(tmp_path, "baseline")
    with output_cache(None, KEY, [tmp_path / "amp/file.pt", tmp_path / "amp/folder"]) as copied:
        assert not copied and not (tmp_path / "amp").exists()
        (tmp_path / "amp/folder").mkdir(parents=True)
        (tmp_path / "amp/file.pt").touch()


def break_file(root: Path) -> None:
    (root / "baseline/file.pt").write_text("base")


def break_folder(root: Path) -> None:
    (root / "baseline/folder/a.txt").write_text("base")


def remove_file(root: Path) -> None:
    (root / "baseline/file.pt").unlink()


def remove_folder(root: Path) -> None:
    shutil.rmtree(root / "baseline/folder")


def break_record(root: Path) -> None:
    (root / f"output_cache/{KEY}.json").write_text('{"baseline/fi')


HARM = [break_file, break_folder, remove_file, remove_folder]


@pytest.mark.parametrize("harm", [*HARM, break_record], ids=lambda f: f.__name__)
def test_what_is_gone_or_torn_is_not_taken(harm, tmp_path):
    make(tmp_path, "baseline")
    harm(tmp_path)
    assert not make(tmp_path, "amp")
    assert read(tmp_path, "amp") == ("amp", [".mark", "a.txt"])
    assert make(tmp_path, "bf16") and read(tmp_path, "bf16")[0] == "amp"  # the record names who made it now


def test_a_run_makes_its_own_output_again(tmp_path):
    """`snakemake -F` must recreate the output even if another run could provide it."""
    make(tmp_path, "baseline")
    assert make(tmp_path, "amp")
    assert not make(tmp_path, "baseline", text="again") and read(tmp_path, "baseline")[0] == "again"


@pytest.fixture
def existing(tmp_path):
    """Create two outputs of a stage, and record what they were made from."""
    outputs = [tmp_path / "errors.parquet", tmp_path / "trace.parquet"]
    with existing_output(KEY, outputs, keep=True) as kept:
        assert not kept
        for path in outputs:
            path.write_text("made")
            os.utime(path, (1, 1))
    return outputs


def test_an_existing_output_is_kept_and_its_time_is_new(existing, capsys):
    with existing_output(KEY, existing, keep=True) as kept:
        assert kept
    assert all(path.stat().st_mtime > 1 for path in existing)
    assert str(existing[0]) in capsys.readouterr().err


@pytest.mark.parametrize("harm", ["unwanted", "key", "changed", "gone", "note", "fewer", "more"])
def test_an_output_is_kept_only_if_all_is_as_it_was(harm, existing, tmp_path):
    outputs = {"fewer": existing[:1], "more": [*existing, tmp_path / "predictions.parquet"]}.get(harm, existing)
    if harm == "changed":
        existing[1].write_text("mode")
    elif harm == "gone":
        existing[1].unlink()
    elif harm == "note":
        (tmp_path / ".errors.parquet.inputs").write_text('{"key": "sta')
    note = tmp_path / ".errors.parquet.inputs"
    before = note.read_text()
    with existing_output("stage-another" if harm == "key" else KEY, outputs, keep=harm != "unwanted") as kept:
        assert not kept
        for path in outputs:
            path.write_text("again")
    assert (note.read_text() == before) == (harm == "unwanted")


def test_results_may_move(tmp_path):
    make(tmp_path / "here", "baseline")
    (tmp_path / "here").rename(tmp_path / "there")
    assert make(tmp_path / "there", "amp")


def test_an_error_records_nothing(tmp_path):
    with (
        pytest.raises(ZeroDivisionError),
        output_cache(tmp_path / "output_cache", KEY, [tmp_path / "baseline/file.pt"]),
    ):
        raise ZeroDivisionError
    assert not make(tmp_path, "amp")


def killed_while_making(root: Path) -> None:
    with output_cache(root / "output_cache", KEY, [root / "baseline/file.pt", root / "baseline/folder"]):
        (root / "baseline/folder").mkdir(parents=True)
        (root / "baseline/file.pt").write_text("half")
        os._exit(137)


def killed_while_taking(root: Path, which: int) -> None:
    """Copy the cached outputs, and kill the process at the rename with this number."""
    count, rename = 0, Path.replace

    def replace(path: Path, target: Path) -> Path:
        nonlocal count
        count += 1
        if count == which:
            os._exit(137)
        return rename(path, target)

    Path.replace = replace
    make(root, "amp")


def in_a_process(work, *arguments) -> int:
    process = FORK.Process(target=work, args=arguments)
    process.start()
    process.join(60)
    return process.exitcode


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_killed_maker_leaves_nothing_that_looks_whole(tmp_path):
    assert in_a_process(killed_while_making, tmp_path) == 137
    assert not make(tmp_path, "amp")


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize("which", [1, 2])
def test_a_killed_taker_leaves_nothing_torn(which, tmp_path):
    make(tmp_path, "baseline")
    assert in_a_process(killed_while_taking, tmp_path, which) == 137
    assert (tmp_path / "amp/file.pt").exists() == (which == 2) and not (tmp_path / "amp/folder").exists()
    assert make(tmp_path, "amp") and read(tmp_path, "amp") == ("baseline", ["a.txt"])


def slow_maker(root: Path, began, may_end) -> None:
    with output_cache(root / "output_cache", KEY, [root / "baseline/file.pt", root / "baseline/folder"]) as taken:
        assert not taken
        began.set()
        may_end.wait(60)
        (root / "baseline/folder").mkdir(parents=True)
        (root / "baseline/file.pt").write_text("slow")


def taker(root: Path, told) -> None:
    told.put(make(root, "amp"))


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_two_at_once_the_second_waits_and_takes_over(tmp_path):
    began, may_end, told = FORK.Event(), FORK.Event(), FORK.Queue()
    first = FORK.Process(target=slow_maker, args=(tmp_path, began, may_end))
    first.start()
    assert began.wait(60)
    second = FORK.Process(target=taker, args=(tmp_path, told))
    second.start()
    second.join(0.3)
    assert second.is_alive() and not (tmp_path / "amp").exists()
    may_end.set()
    assert told.get(timeout=60) is True
    first.join(60), second.join(60)
    assert read(tmp_path, "amp")[0] == "slow"


def test_a_record_is_readable(tmp_path):
    make(tmp_path, "baseline")
    record = json.loads((tmp_path / f"output_cache/{KEY}.json").read_text())
    file = hashlib.sha256(b"baseline").hexdigest()
    folder = hashlib.sha256(repr([("a.txt", file)]).encode()).hexdigest()
    assert record == [{"baseline/file.pt": file, "baseline/folder": folder}]


def test_who_took_over_is_taken_from_when_the_first_is_gone(tmp_path):
    make(tmp_path, "baseline")
    assert make(tmp_path, "amp")
    shutil.rmtree(tmp_path / "baseline")
    assert make(tmp_path, "bf16") and read(tmp_path, "bf16")[0] == "baseline"
    record = json.loads((tmp_path / f"output_cache/{KEY}.json").read_text())
    assert [sorted(run)[0] for run in record] == ["amp/file.pt", "bf16/file.pt"]


def test_only_so_many_runs_are_recorded(tmp_path):
    make(tmp_path, "0")
    assert all(make(tmp_path, str(run)) for run in range(1, 7))
    record = json.loads((tmp_path / f"output_cache/{KEY}.json").read_text())
    assert [sorted(run)[0] for run in record] == ["0/file.pt", "1/file.pt", "2/file.pt", "3/file.pt"]


@pytest.mark.parametrize("step", ["lock", "record"])
def test_a_full_disk_of_records_stops_nothing(step, tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, {"lock": "output_lock", "record": "whole_file"}[step], full)
    assert not make(tmp_path, "baseline")
    assert read(tmp_path, "baseline")[0] == "baseline" and "No space left on device" in capsys.readouterr().err
    monkeypatch.undo()
    assert not make(tmp_path, "amp"), "nothing was recorded"


def test_all_ablations_share_a_folder_of_records(tmp_path, monkeypatch):
    monkeypatch.setenv("FAZE_OUTPUT_CACHE", "")
    assert shared_folder() is None
    monkeypatch.setenv("FAZE_OUTPUT_CACHE", str(tmp_path / "named"))
    assert shared_folder() == tmp_path / "named"
    monkeypatch.delenv("FAZE_OUTPUT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert shared_folder() == tmp_path / "cache/faze/output_cache"
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("FAZE_OUTPUT_CACHE", str(tmp_path / "file/records"))
    assert shared_folder() is None


def test_the_oldest_records_are_thrown_out(tmp_path, monkeypatch):
    monkeypatch.setenv("FAZE_OUTPUT_CACHE", str(tmp_path / "output_cache"))
    monkeypatch.setattr(module, "MOST_RECORDS", 2)
    for age, tier in enumerate(("old", "older", "new")):
        make(tmp_path, tier, f"stage-{tier}")
        os.utime(tmp_path / f"output_cache/stage-{tier}.json", (age, (2, 1, 3)[age]))
    shared_folder()
    left = {path.name for path in (tmp_path / "output_cache").iterdir()}
    assert left == {
        f"{dot}stage-{tier}.json{end}" for tier in ("old", "new") for dot, end in (("", ""), (".", ".lock"))
    }


def test_a_hash_does_not_depend_on_times_and_places(tmp_path):
    make(tmp_path, "baseline")
    names = ("baseline/file.pt", "baseline/folder")
    before = [content(tmp_path / name) for name in names]
    (tmp_path / "baseline").rename(tmp_path / "amp")
    for path in (tmp_path / "amp").rglob("*"):
        os.utime(path, (1, 1))
    (tmp_path / "amp/folder/.mark").write_text("changed")
    assert [content(tmp_path / name.replace("baseline", "amp")) for name in names] == before
    (tmp_path / "amp/folder/a.txt").rename(tmp_path / "amp/folder/b.txt")
    assert content(tmp_path / "amp/folder") != before[1]


def test_what_is_too_large_has_no_content(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/frame.jpg").write_bytes(b"1234")
    (tmp_path / "a/other.jpg").write_bytes(b"56")
    assert content_within(tmp_path / "a", 6) == content(tmp_path / "a") and content_within(tmp_path / "a", 5) is None
    assert content_within(tmp_path / "a/frame.jpg", 4) and content_within(tmp_path / "a/frame.jpg", 3) is None
