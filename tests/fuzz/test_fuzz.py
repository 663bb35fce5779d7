"""Some hostile files for each parser, and the fuzzing itself: what it must notice, it notices.

`make fuzz CASES=50000` reads more of them.
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
from draws import Chance
from hostile import edited_bytes, edited_json, edited_lines

from faze.base.errors import UserError

FUZZ, CASES = Path(__file__).parent, 25


def test_every_parser_gives_a_value_or_a_sentence() -> None:
    """Seconds here; each parser is a process of its own."""
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
    ("kind", "told"),
    [
        *(("error", "KeyError at test_fuzz.py"), ("hang", "TooLong at test_fuzz.py"), ("memory", "MemoryError")),
        *(("end", "the process ended with -6"), ("outside", "WroteOutside"), ("link", "WroteOutside")),
        *(("program", "WroteOutside at test_fuzz.py"), ("hidden", "WroteOutside")),
    ],
)
def test_what_no_user_should_see_is_found(kind: str, told: str, tmp_path: Path) -> None:
    found = run_batch(Target("planted", make, fault(kind)), range(1), 0, tmp_path / "home")
    assert len(found.findings) == 1 and told in found.findings[0], found
    assert found.cases == 1 and found.values == found.refused == 0
    assert not (tmp_path / "home/x").exists()


@pytest.mark.parametrize("words", ["", "no name", "given: Traceback", "given: " + "y" * 30_000])
def test_a_sentence_is_one(words: str, tmp_path: Path) -> None:
    def parse(folder: Path) -> None:
        raise UserError(words)

    found = run_batch(Target("planted", make, parse), range(1), 0, tmp_path / "home")
    assert len(found.findings) == 1 and "AssertionError" in found.findings[0]


def test_one_finding_of_each_place_is_kept_with_its_files(tmp_path: Path) -> None:
    found = run_batch(Target("planted", make, fault("error")), range(5), 0, tmp_path / "home")
    assert found.cases == 5 and len(found.findings) == 1
    assert (tmp_path / "home/finding0/given").read_text() == "x"


def test_the_end_of_a_library_is_counted_and_the_rest_goes_on(tmp_path: Path) -> None:
    """In faze that library's first look has a process of its own."""
    numbers = iter(range(100))

    def parse(folder: Path) -> None:
        if (folder / "given").read_text() == "2":
            os.abort()

    def numbered(draw: object, folder: Path) -> None:
        (folder / "given").write_text(str(next(numbers)))

    found = run_batch(Target("planted", numbered, parse, probed="fuzz"), range(3), 0, tmp_path / "home")
    assert (found.cases, found.values, found.probed, found.findings) == (3, 2, 1, [])
    other = run_batch(Target("planted", make, fault("end"), probed="h5py"), range(3), 0, tmp_path / "other")
    assert len(other.findings) == 1


def test_valid_files_pass_and_are_counted(tmp_path: Path) -> None:
    began = time.monotonic()
    found = run_batch(Target("planted", make, lambda folder: None), range(50), 0, tmp_path / "home")
    assert found == Tally(50, 50, 0, 0, 0.0, found.extra_mib, []) and time.monotonic() - began < 30


def test_the_same_seed_makes_the_same_files() -> None:
    def files(*seed: object) -> list[bytes]:
        draw = Chance(*seed)
        return [
            *(edited_bytes(draw, bytes(range(100))) for _ in range(20)),
            *(edited_json(draw, {"a": [1, {"b": "c"}]}) for _ in range(20)),
            *(edited_lines(draw, "a b\nc d\n", ("x", "y")) for _ in range(20)),
        ]

    assert files(1) == files(1) != files(2)
    assert len(set(files(3))) > 40
