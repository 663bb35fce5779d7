"""File systems that lack what ext4 has: modes, links, locks, reserved space, letter case, room in file names.

`lacking` refuses the calls below one folder, as WSL's drvfs, FAT, CIFS, NFS and Lustre do.
"""

import contextlib
import ctypes
import errno
import os
import re
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from checkout import ROOT, environment
from lacking import lacking
from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository
from stage_runs import as_words, write_config

from faze.base import compiled
from faze.base.errors import UserError
from faze.base.files import FULL, read_plain, whole_file, whole_folder
from faze.base.locks import NO_LOCKS
from faze.config.check import ConfigError
from faze.config.parameters import Tracking
from faze.config.validation import read_config
from faze.config.yaml_files import followed
from faze.data.normalization.images import FrameReader
from faze.data.pairs import FileRows
from faze.tracking.mirror import _upload
from faze.tracking.store import SQLITE, artifact_root, explained, open_store, resolve_uri

PEOPLE = ("mpiigaze_people", "gazecapture_train_people", "gazecapture_val_people", "gazecapture_test_people")
FEW = {"synthetic": dict.fromkeys(PEOPLE, 1) | {"frames_per_person": 2, "gazecapture_train_frames": 2}}
HOLD = "from faze.base.locks import output_lock\nwith output_lock({!r}):\n    print('held', flush=True)\n    input()"


def synthesise(folder: Path, variables: dict[str, str], umask: int = 0o022) -> subprocess.CompletedProcess[str]:
    """Render a few frames into a folder in a process of its own, or reuse those of another folder beside it."""
    config = write_config(folder, "synthesise", FEW)
    outputs = {layout: folder / layout for layout in ("mpiifacegaze", "gazecapture")}
    outputs |= {f"{layout}_supplementary": folder / f"{layout}.h5" for layout in outputs}
    words = as_words(
        {"config": config, **outputs, "truth": folder / "truth.h5", "output_cache": folder.parent / "cache"}
    )
    command = [sys.executable, "-m", "faze", "synthesise", *words]
    return subprocess.run(command, cwd=ROOT, env=variables, umask=umask, capture_output=True, text=True)


def frames_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.jpg"))}


def modes_of(folder: Path) -> set[tuple[str, str]]:
    """Return the kind and mode of everything below a folder except the config file, which another process wrote."""
    found = [path.stat().st_mode for path in folder.rglob("*") if path.suffix != ".yaml"]
    return {("folder" if stat.S_ISDIR(mode) else "file", oct(stat.S_IMODE(mode))) for mode in found}


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Render frames with the umask 077."""
    folder = tmp_path_factory.mktemp("rendered") / "first"
    assert synthesise(folder, environment(), 0o077).returncode == 0
    return folder


def test_modes_follow_the_umask(rendered):
    assert modes_of(rendered) == {("file", "0o600"), ("folder", "0o700")}


def test_reused_frames_have_the_modes_of_their_own_umask(rendered):
    """Regression: they had those of the ablation from which they were copied."""
    done = synthesise(rendered.with_name("second"), environment(), 0o002)
    assert done.returncode == 0 and "reusing" in done.stderr, done.stderr
    assert modes_of(rendered.with_name("second")) == {("file", "0o664"), ("folder", "0o775")}


@pytest.mark.parametrize("shared", [True, False], ids=["reused", "rendered"])
def test_a_file_system_that_has_only_files_and_folders(rendered, tmp_path, shared):
    """Regression: without locks, every stage failed; without modes, no frames were reused."""
    folder = rendered.with_name("third") if shared else tmp_path / "third"
    done = synthesise(folder, environment() | lacking(folder.parent))
    assert done.returncode == 0, done.stderr
    assert frames_of(folder) == frames_of(rendered) and ("reusing" in done.stderr) == shared
    assert re.findall("^(.*): this file system has no locks", done.stderr, re.MULTILINE).count(str(folder)) == 1


@pytest.mark.parametrize("error", NO_LOCKS, ids=errno.errorcode.get)
def test_without_locks_processes_of_this_machine_still_wait_for_each_other(tmp_path, error):
    out = tmp_path / "there" / "store.h5"
    variables = environment() | lacking(out.parent, NO_LOCK=str(error), FAZE_MACHINE_LOCK=str(tmp_path / "lock"))
    command = [sys.executable, "-c", HOLD.format(str(out))]
    how = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | {
        "cwd": ROOT,
        "env": environment() | variables,
        "text": True,
    }
    with subprocess.Popen(command, **how) as first:
        assert first.stdout.readline() == "held\n", first.stderr.read()
        with subprocess.Popen(command, **how) as second:
            notices = second.stderr.readline(), second.stderr.readline()
            assert first.communicate("\n")[0] == ""
            assert second.communicate("\n")[0] == "held\n"
    assert f"{out.parent}: this file system has no locks ({os.strerror(error)})" in notices[0]
    assert f"waiting to write {out} (held by process {first.pid})" in notices[1]


def refuse(error: int) -> Callable:
    def refused(*words: object, **options: object) -> None:
        raise OSError(error, os.strerror(error))

    return refused


@pytest.mark.parametrize("error", [errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EIO], ids=errno.errorcode.get)
def test_only_a_disk_that_fails_ends_a_write(tmp_path, monkeypatch, error):
    """Some FUSE and SMB file systems cannot flush one file to the disk."""
    monkeypatch.setattr(os, "fsync", refuse(error))
    with contextlib.suppress(OSError), whole_file(tmp_path / "a.csv") as temporary:
        temporary.write_text("x")
    assert (tmp_path / "a.csv").exists() == (error != errno.EIO) and len(list(tmp_path.iterdir())) == (
        error != errno.EIO
    )


def test_hdf5_needs_no_locks(tmp_path):
    code = f"""
from faze.data.store.layout import open_file, whole_store
with whole_store({str(tmp_path / "a.h5")!r}, "strips") as file:
    file.create_group("person")
print(list(open_file({str(tmp_path / "a.h5")!r})))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment() | lacking(tmp_path), capture_output=True, text=True
    )
    assert done.stdout == "['person']\n", done.stderr


def test_mlflow_does_not_set_modes_of_artifacts(tmp_path, monkeypatch):
    """Regression: where no mode can be set, the last rule failed, and repeating it did not help."""
    repository = LocalArtifactRepository((tmp_path / "a?b #%20" / "artifacts").as_uri())
    (tmp_path / "page.html").write_text("x")
    monkeypatch.setattr(os, "chmod", refuse(errno.EPERM))
    _upload((repository, "report/figures/page.html", tmp_path / "page.html"))
    _upload((repository, "page.html", tmp_path / "page.html"))
    root = tmp_path / "a?b #%20" / "artifacts"
    found = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert found == {"page.html", "report/figures/page.html"}


def test_a_question_mark_is_a_part_of_the_path_of_the_database(tmp_path, monkeypatch):
    """Regression: the database stayed empty, and the runs were in a file outside of the results."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    results = tmp_path / "a?b #%20" / "results"
    results.mkdir(parents=True)
    store = open_store(Tracking("faze", None), results)
    assert open_store(Tracking("faze", None), results).experiment_id == store.experiment_id
    assert [path.name for path in tmp_path.iterdir()] == ["a?b #%20"]
    assert store.lock == results / "mlflow.db" and store.lock.stat().st_size > 0
    assert artifact_root(store.uri, results) == (results / "mlartifacts").as_uri()
    assert resolve_uri(store.uri, tmp_path) == store.uri


@pytest.mark.parametrize("reason", ["database is locked", "disk I/O error"])
def test_a_database_without_locks_says_where_to_put_it(tmp_path, reason):
    with (
        pytest.raises(UserError, match="locks: set tracking.uri"),
        explained(f"{SQLITE}{tmp_path}/mlflow.db"),
    ):
        raise sqlite3.OperationalError(reason)


@pytest.mark.parametrize("tiers", [("quick", "QUICK"), ("Ampère", "AMPE\u0300RE"), ("amp", "AMP"), ("Data",)])
def test_tiers_that_differ_only_in_case_are_refused(tmp_path, tiers):
    """On macOS and Windows they would share a folder."""
    lines = "\n".join(f"  {tier}: {{recompute: true}}" for tier in tiers)
    (tmp_path / "mine.yaml").write_text(f"name: mine\ntiers:\n{lines}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=f"tiers.{tiers[-1]}: .*(only in case|must be)"):
        read_config([tmp_path / "mine.yaml"])


@pytest.mark.parametrize("read", [read_plain, FrameReader().read], ids=["annotation", "frame"])
@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no /proc")
def test_a_read_that_fails_names_its_file(read):
    """Regression: a bad sector ended preprocessing with "[Errno 5] Input/output error". This file has no first page."""
    with pytest.raises(OSError, match=r"Input/output error: '/proc/self/mem'"):
        read(Path("/proc/self/mem"))


def test_strips_that_cannot_be_read_name_their_file(tmp_path, monkeypatch):
    (tmp_path / "strips.h5").write_bytes(bytes(2 * 64 * 256 * 3))
    rows = FileRows(tmp_path / "strips.h5", np.array([0]), (64, 256, 3))
    monkeypatch.setattr(os, "preadv", lambda file, buffers, offset, flags: refuse(errno.ESTALE if flags == 0 else 11)())
    monkeypatch.setattr(os, "posix_fadvise", refuse(errno.ENOSYS))  # only advice
    with pytest.raises(OSError, match=re.escape(f"{os.strerror(errno.ESTALE)}: '{tmp_path}/strips.h5'")):
        rows.gather(torch.tensor([0]))


@pytest.mark.parametrize("error", FULL, ids=errno.errorcode.get)
@pytest.mark.parametrize("whole", [whole_file, whole_folder])
def test_a_full_disk_or_quota_is_reported_with_the_output(tmp_path, whole, error):
    """Regression: a full disk ended rendering with "[Errno 28] No space left on device"."""
    with pytest.raises(OSError, match=re.escape(f"{os.strerror(error)}: '{tmp_path}/out'")), whole(tmp_path / "out"):
        refuse(error)()
    assert list(tmp_path.iterdir()) == []


def test_a_kernel_that_cannot_be_loaded_is_not_used(monkeypatch, capsys):
    """For example on a file system that is mounted with noexec. Regression: every stage that has a kernel failed."""
    if compiled.library("fewshot/kernel.c", "skipped") is None:
        pytest.skip("kernel.c is not compiled")
    monkeypatch.setattr(ctypes, "CDLL", refuse(errno.EPERM))
    compiled.library.cache_clear()
    assert compiled.library("fewshot/kernel.c", "torch is used") is None
    compiled.library.cache_clear()
    assert "torch is used" in capsys.readouterr().err


def test_a_link_in_the_repository_may_be_a_text(tmp_path):
    """Git stores links as text on exFAT and drvfs. Regression: "contains no keys and values"."""
    (tmp_path / "config.yaml").write_text("name: x\n" * 50)
    (tmp_path / "faze").mkdir()
    (tmp_path / "faze" / "config.yaml").write_text("../config.yaml")
    assert followed(tmp_path / "faze" / "config.yaml") == followed(tmp_path / "config.yaml") == tmp_path / "config.yaml"


def test_a_temporary_folder_with_a_long_path(tmp_path):
    """Regression: "AF_UNIX path too long", without the path."""
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    done = synthesise(tmp_path / "out", environment() | {"TMPDIR": str(folder)})
    assert done.returncode == 1 and f"the path {folder} is too long for a socket: set a shorter TMPDIR" in done.stderr
