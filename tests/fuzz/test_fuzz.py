"""Hostile files that every reader refuses, some random ones, and the fuzzer itself.

`make fuzz CASES=50000` reads more random files.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cases import Tally, Target, run_batch
from hostile import Draw, edited_bytes, edited_json, edited_lines
from limits import own_peak_mib
from targets import TARGETS

from faze.base.errors import UserError

FUZZ, CASES = Path(__file__).parent, 25


@pytest.mark.parametrize("name", [name for name, target in TARGETS.items() if target.hostile])
def test_reader_accepts_valid_files(name: str, tmp_path: Path) -> None:
    TARGETS[name].valid(tmp_path)
    TARGETS[name].parse(tmp_path)


@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name, target in TARGETS.items() for case in target.hostile]
)
def test_reader_refuses_hostile_file(name: str, case: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    change, text = target.hostile[case]
    target.valid(tmp_path)
    change(tmp_path)
    before = own_peak_mib()
    with pytest.raises(UserError) as refused:
        target.parse(tmp_path)
    assert text in str(refused.value)
    assert own_peak_mib() - before < 300


def test_every_reader_returns_a_value_or_a_sentence() -> None:
    command = [sys.executable, FUZZ, "--cases", str(CASES), "--seed", "0"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = [line.split("|") for line in ended.stdout.splitlines()[2:]]
    assert len(rows) >= 20 and all(int(row[2]) == CASES for row in rows)
    assert sum(int(row[3]) for row in rows) > CASES and sum(int(row[4]) for row in rows) > CASES


def fault(kind: str) -> Callable[[Path], object]:
    def parse(folder: Path) -> object:
        ways: dict[str, Callable[[], object]] = {
            "error": lambda: {}["a"],
            "hang": lambda: all(True for _ in iter(int, 1)),
            "memory": lambda: np.ones(2**31),
            "end": lambda: os.abort(),
            "outside": lambda: (folder.parent / "x").write_text("x"),
            "link": lambda: (folder / "up/x").write_text("x"),
            "program": lambda: os.system("true"),
            "hidden": lambda: hidden(folder),
        }
        return ways[kind]()

    return parse


def hidden(folder: Path) -> None:
    try:
        (folder.parent / "x").write_text("x")
    except Exception:  # as a parser that catches all
        raise UserError(f"{folder}/given: cannot be read") from None


def make(draw: object, folder: Path) -> None:
    (folder / "given").write_text("x")
    (folder / "up").symlink_to(folder.parent)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *(("error", "KeyError at test_fuzz.py"), ("hang", "TooLong at test_fuzz.py"), ("memory", "MemoryError")),
        *(("end", "the process ended with -6"), ("outside", "WroteOutside"), ("link", "WroteOutside")),
        *(("program", "WroteOutside at test_fuzz.py"), ("hidden", "WroteOutside")),
    ],
)
def test_finding(kind: str, text: str, tmp_path: Path) -> None:
    found = run_batch(Target("planted", make, fault(kind)), range(1), 0, tmp_path / "home")
    assert len(found.findings) == 1 and text in found.findings[0], found
    assert found.cases == 1 and found.values == found.refused == 0
    assert not (tmp_path / "home/x").exists()


@pytest.mark.parametrize("text", ["", "no name", "given: Traceback", "given: " + "y" * 30_000])
def test_malformed_sentence_is_a_finding(text: str, tmp_path: Path) -> None:
    def parse(folder: Path) -> None:
        raise UserError(text)

    found = run_batch(Target("planted", make, parse), range(1), 0, tmp_path / "home")
    assert len(found.findings) == 1 and "AssertionError" in found.findings[0]


def test_one_finding_per_place_is_kept_with_its_files(tmp_path: Path) -> None:
    found = run_batch(Target("planted", make, fault("error")), range(5), 0, tmp_path / "home")
    assert found.cases == 5 and len(found.findings) == 1
    assert [path.name for path in (tmp_path / "home").glob("finding*")] == ["finding0"]
    assert (tmp_path / "home/finding0/given").read_text() == "x"


def test_crash_of_an_isolated_library_is_counted(tmp_path: Path) -> None:
    numbers = iter(range(100))

    def parse(folder: Path) -> None:
        if (folder / "given").read_text() == "2":
            os.abort()

    def numbered(draw: object, folder: Path) -> None:
        (folder / "given").write_text(str(next(numbers)))

    found = run_batch(Target("planted", numbered, parse, isolated="fuzz"), range(3), 0, tmp_path / "home")
    assert (found.cases, found.values, found.isolated, found.findings) == (3, 2, 1, [])
    other = run_batch(Target("planted", make, fault("end"), isolated="h5py"), range(3), 0, tmp_path / "other")
    assert len(other.findings) == 1


def test_valid_files_pass_and_are_counted(tmp_path: Path) -> None:
    began = time.monotonic()
    found = run_batch(Target("planted", make, lambda folder: None), range(50), 0, tmp_path / "home")
    assert found == Tally(50, 50, 0, 0, 0.0, found.extra_mib, []) and time.monotonic() - began < 30


def test_the_same_seed_makes_the_same_files() -> None:
    def files(*seed: object) -> list[bytes]:
        draw = Draw(*seed)
        return [
            *(edited_bytes(draw, bytes(range(100))) for _ in range(20)),
            *(edited_json(draw, {"a": [1, {"b": "c"}]}) for _ in range(20)),
            *(edited_lines(draw, "a b\nc d\n", ("x", "y")) for _ in range(20)),
        ]

    assert files(1) == files(1) != files(2)
    assert len(set(files(3))) > 40
