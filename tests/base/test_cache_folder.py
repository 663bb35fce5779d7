import os
import tempfile
from pathlib import Path

import pytest
import torch

from faze.base.files import cache_folder
from faze.base.output_cache import shared_folder
from faze.engine.execution import set_compile


@pytest.fixture(params=["no home", "read-only home"])
def no_cache(request, monkeypatch, tmp_path) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("FAZE_OUTPUT_CACHE", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if request.param == "no home":
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as for a user whom the system does not know
    else:
        monkeypatch.setenv("HOME", "/nowhere")
        monkeypatch.setattr(os, "access", lambda path, mode: False)


def test_the_users_cache_comes_first_then_home(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder("inductor") == tmp_path / "home" / ".cache" / "faze" / "inductor"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    assert cache_folder("inductor") == tmp_path / "own" / "faze" / "inductor"


def test_without_a_writable_home_nothing_is_shared(no_cache):
    assert cache_folder("inductor") is None and shared_folder() is None


def test_compiled_code_is_never_loaded_from_a_predictable_folder(no_cache, monkeypatch, tmp_path):
    """Regression: the cache was $TMPDIR/faze-UID/faze/inductor, which another user could have created first."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    (tmp_path / f"faze-{os.getuid()}").mkdir(mode=0o777)
    set_compile(torch.nn.ReLU(), "default", device=torch.device("cpu"), replicas=1, recompute=False)
    folder = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    assert folder.parent == tmp_path and folder.name != f"faze-{os.getuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700 and folder.stat().st_uid == os.getuid()
