"""The compiled kernel's library: how it is found, kept, and mended.

Seen red by breaking the code: options in $CC taken for a part of the compiler's name, a damaged library refused for
good.
"""

import shutil
from pathlib import Path

import pytest

from faze.fewshot import native
from faze.fewshot.native import NativeKernel

SIZES = (6, 5, "selu")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one, where there is a compiler."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    native._library.cache_clear()
    yield tmp_path / "faze" / "fewshot"
    native._library.cache_clear()


def libraries(cache: Path) -> list[Path]:
    return [path for path in cache.iterdir() if path.suffix == ".so" and not path.name.startswith(".")]


def test_a_compiler_may_come_with_options(cache, monkeypatch):
    NativeKernel(*SIZES)
    native._library.cache_clear()
    monkeypatch.setenv("CC", "cc -pipe")
    NativeKernel(*SIZES)
    assert len(libraries(cache)) == 2


def test_a_damaged_library_is_made_anew_and_a_whole_one_kept(cache, monkeypatch):
    with monkeypatch.context() as unloaded:  # what a process has loaded once, it does not look at again
        unloaded.setattr(native.ctypes, "CDLL", lambda path: path)
        NativeKernel(*SIZES)
        (library,) = libraries(cache)
        whole, made = library.read_bytes(), library.stat().st_mtime_ns
        native._library.cache_clear()
        NativeKernel(*SIZES)
    assert library.stat().st_mtime_ns == made
    library.write_bytes(b"torn")
    (cache / f".{library.name}.killed.so").write_bytes(b"left by a killed compiler")
    native._library.cache_clear()
    NativeKernel(*SIZES)
    assert len(library.read_bytes()) == len(whole)
    assert not list(cache.glob("*.killed.so"))
