import os
import tempfile
from pathlib import Path

import pytest

from faze.base.cache_folder import cache_folder


@pytest.fixture
def temporary(monkeypatch, tmp_path) -> Path:
    """The folder for temporary files; no XDG_CACHE_HOME."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    return tmp_path / "temporary" / f"faze-{os.getuid()}" / "faze"


def test_the_users_cache_comes_first_then_home(monkeypatch, tmp_path, temporary):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder("fewshot") == tmp_path / "home" / ".cache" / "faze" / "fewshot"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    assert cache_folder("inductor") == tmp_path / "own" / "faze" / "inductor"


def test_without_a_home_the_folder_for_temporary_files_serves(monkeypatch, temporary):
    """Seen red: no home was told as a traceback."""
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as for a user whom the system does not know
    assert cache_folder("fewshot") == temporary / "fewshot"


def test_a_home_that_cannot_be_written_to_does_not_serve(monkeypatch, temporary):
    monkeypatch.setenv("HOME", "/nowhere")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert cache_folder("fewshot") == temporary / "fewshot"
