"""Compiled code: how a library is found, kept, and mended.

Seen red by breaking the code: options in $CC taken for a part of the compiler's name, a damaged library refused for
good.
"""

import shutil
from pathlib import Path

import pytest

from faze.base import compiled
from faze.base.compiled import NativeError, library


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one, where there is a compiler."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library.cache_clear()
    yield tmp_path / "faze" / "folder"
    library.cache_clear()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "answer.c"
    path.write_text("int answer(void) { return ANSWER; }\n")
    return path


def libraries(cache: Path) -> list[Path]:
    return [path for path in cache.iterdir() if path.suffix == ".so" and not path.name.startswith(".")]


def test_each_source_compiler_and_flag_has_a_library_of_its_own(cache, source, monkeypatch):
    assert library(source, "folder", ("-DANSWER=42",)).answer() == 42
    assert library(source, "folder", ("-DANSWER=43",)).answer() == 43
    library.cache_clear()
    monkeypatch.setenv("CC", "cc -pipe")  # a compiler may come with options
    assert library(source, "folder", ("-DANSWER=42",)).answer() == 42
    assert len(libraries(cache)) == 3


def test_a_damaged_library_is_made_anew_and_a_whole_one_kept(cache, source, monkeypatch):
    with monkeypatch.context() as unloaded:  # what a process has loaded once, it does not look at again
        unloaded.setattr(compiled.ctypes, "CDLL", lambda path: path)
        library(source, "folder", ("-DANSWER=1",))
        (path,) = libraries(cache)
        whole, made = path.read_bytes(), path.stat().st_mtime_ns
        library.cache_clear()
        library(source, "folder", ("-DANSWER=1",))
    assert path.stat().st_mtime_ns == made
    path.write_bytes(b"torn")
    (cache / f".{path.name}.writing-killed.so").write_bytes(b"left by a killed compiler")
    library.cache_clear()
    assert library(source, "folder", ("-DANSWER=1",)).answer() == 1
    assert len(path.read_bytes()) == len(whole)
    assert not list(cache.glob(".*killed.so"))


def test_why_there_is_none_is_one_sentence(cache, source, monkeypatch):
    failed = library(source, "folder", ())
    assert isinstance(failed, NativeError) and "fails on answer.c" in str(failed) and "\n" not in str(failed)
    library.cache_clear()
    monkeypatch.setenv("CC", "no-such-compiler")
    assert str(library(source, "folder", ())) == "there is no C compiler: no-such-compiler is not on the PATH"
