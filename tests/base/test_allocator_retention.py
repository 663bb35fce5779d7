"""Processes that train networks restart themselves once, in place, with glibc set to retain freed memory."""

import json
import os
import platform
import subprocess
import sys

import pytest

from faze import __main__
from faze.base import allocator_retention
from faze.base.allocator_retention import SETTINGS, VARIABLE, keeps_memory

PROGRAM = """
import json, os, sys
from faze.base.allocator_retention import VARIABLE, keep_memory
starts = int(os.environ.get("STARTS", "0")) + 1
os.environ["STARTS"] = str(starts)
keep_memory()
told = {"starts": starts, "tunables": os.environ.get(VARIABLE, ""), "process": os.getpid(), "words": sys.argv[1:]}
print(json.dumps(told))
"""


WANTED = (
    "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:"
    "glibc.malloc.trim_threshold=100000000000:glibc.malloc.top_pad=268435456"
)


def started(**environment: str) -> tuple[dict, int]:
    whole = {name: value for name, value in os.environ.items() if name not in (VARIABLE, "STARTS")} | environment
    words = [sys.executable, "-X", "dev", "-c", PROGRAM, "a b", "--c"]
    with subprocess.Popen(words, env=whole, stdout=subprocess.PIPE, text=True) as process:
        return json.loads(process.communicate()[0]), process.pid


def test_a_process_starts_itself_once_more_with_the_same_words_and_number() -> None:
    found, process = started()
    assert found == {"starts": 2, "tunables": WANTED, "process": process, "words": ["a b", "--c"]}


def test_one_that_has_the_settings_goes_on() -> None:
    assert started(**{VARIABLE: WANTED})[0]["starts"] == 1


@pytest.mark.parametrize("start", ["", "glibc.malloc.mmap_max=0", WANTED.replace("hugetlb=1", "hugetlb=0")])
def test_whether_memory_is_kept_is_said_by_the_settings(start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setenv(VARIABLE, start)
    assert not keeps_memory()
    monkeypatch.setenv(VARIABLE, f"glibc.malloc.check=0:{WANTED}")
    assert keeps_memory()
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert not keeps_memory()


def test_what_somebody_set_stays() -> None:
    found, _ = started(**{VARIABLE: "glibc.malloc.hugetlb=0:glibc.cpu.hwcaps=-AVX512F"})
    told = dict(setting.split("=", 1) for setting in found["tunables"].split(":"))
    assert told == SETTINGS | {"glibc.malloc.hugetlb": "0", "glibc.cpu.hwcaps": "-AVX512F"}


@pytest.mark.parametrize(
    ("command", "starts"), [("train", 1), ("encode", 1), ("walk", 1), ("redirect", 1), ("benchmark", 0), ("adapt", 0)]
)
def test_what_computes_networks_keeps_memory_and_what_measures_does_not(
    command: str, starts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails if the list of commands that retain freed memory is empty."""
    seen = []
    monkeypatch.setattr(__main__, "keep_memory", lambda: seen.append(command))
    monkeypatch.setattr(sys, "argv", ["faze", command, "--help"])
    with pytest.raises(SystemExit):
        __main__.main()
    assert len(seen) == starts


@pytest.mark.parametrize("library", [("", ""), ("libc", "7")])  # of musl, and of FreeBSD
def test_another_c_library_is_left_alone(library: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(platform, "libc_ver", lambda: library)
    monkeypatch.setattr(os, "execve", lambda *words: pytest.fail("started again"))
    allocator_retention.keep_memory()
