"""Users without a name, a home or a repository, and machines that refuse what a desktop grants."""

import getpass
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from checkout import Checkout

from faze.base import command_line, environment, process_pool
from faze.base.errors import UserError
from faze.base.files import cache_folder
from faze.base.locks import machine_exclusive, machine_shared
from faze.base.process_pool import worker_processes
from faze.base.run_log import RunLog, read_events
from faze.engine import machine
from faze.evaluation.parquet_file import NUMBER, read_metadata, read_table
from faze.fewshot.result_tables import write_tables

Git = Callable[..., str]


@pytest.fixture
def git(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Git:
    """Return git(folder, "commit", ...) -> the output; faze's folder is tmp_path / "faze", not yet a repository."""
    for name in [name for name in os.environ if name.startswith("GIT_")] + ["FAZE_COMMIT"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    (tmp_path / "faze").mkdir()
    monkeypatch.setattr(machine, "ROOT", tmp_path / "faze")
    settings = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]

    def run(folder: Path, *words: str) -> str:
        if words[0] == "init":
            folder.mkdir(exist_ok=True)
        done = subprocess.run(["git", *settings, *words], cwd=folder, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    return run


def committed(git: Git, folder: Path) -> str:
    """Make a repository with a commit of its own; return the commit."""
    git(folder, "init", "--quiet")
    (folder / "code.py").write_text(str(folder))
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "x")
    return git(folder, "rev-parse", "--short=12", "HEAD")


@pytest.mark.parametrize("kind", ["own", "worktree", "submodule", "shallow"])
def test_the_commit_is_that_of_fazes_own_folder(git, tmp_path, monkeypatch, kind) -> None:
    """Regression: in a hook of another repository, that repository's commit was recorded."""
    own, other, source = tmp_path / "faze", tmp_path / "other", tmp_path / "source"
    committed(git, other)
    expected = committed(git, own if kind == "own" else source)
    if kind == "worktree":
        git(source, "worktree", "add", "--quiet", "--detach", str(own))
    elif kind == "shallow":
        git(tmp_path, "clone", "--quiet", "--depth", "1", source.as_uri(), "faze")
    elif kind == "submodule":
        git(other, "submodule", "--quiet", "add", str(source), "faze")
        own = other / "faze"
        monkeypatch.setattr(machine, "ROOT", own)
    for name, value in (("GIT_DIR", other / ".git"), ("GIT_WORK_TREE", other), ("GIT_INDEX_FILE", other / "i")):
        monkeypatch.setenv(name, str(value))
    assert machine.commit() == expected
    (own / "code.py").write_text("2")
    assert machine.commit() == f"{expected}+"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("inside another", "inside another repository"),
        ("no repository", "not a git repository"),
        ("no commit", "no commit"),
        ("no git", "cannot be started"),
        ("another owner", "safe.directory"),
        ("broken", "git failed"),
    ],
)
def test_without_a_commit_of_its_own_the_reason_is_recorded(git, tmp_path, monkeypatch, kind, words) -> None:
    """Regression: a ZIP of faze, unpacked in another repository, recorded that repository's commit."""
    if kind == "inside another":
        committed(git, tmp_path)
    elif kind == "no commit":
        git(machine.ROOT, "init", "--quiet")
    elif kind != "no repository":
        monkeypatch.setenv("PATH", str(tmp_path))
    if kind in ("another owner", "broken"):
        message = "fatal: detected dubious ownership in repository" if kind == "another owner" else "fatal: \377"
        (tmp_path / "git").write_text(f"#!/bin/sh\nprintf '{message}' >&2\nexit 128\n")
        (tmp_path / "git").chmod(0o755)
    assert machine.commit().startswith("unknown (") and words in machine.commit()
    monkeypatch.setenv("FAZE_COMMIT", "1a2b3c")
    assert machine.commit() == "1a2b3c"


@pytest.fixture
def nameless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Become a user whom the system does not know, as with `docker run --user 12345`."""

    def unknown(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "")  # so that a new value is removed again
        monkeypatch.delenv(name)


def test_a_user_without_a_name_is_named_by_number(nameless) -> None:
    """Regression: Snakemake, torch and MLflow ask for the name, and failed with a KeyError."""
    with pytest.raises(KeyError):
        getpass.getuser()
    environment.name_user()
    assert getpass.getuser() == str(os.getuid())


def test_a_user_with_a_name_keeps_it(monkeypatch) -> None:
    monkeypatch.setenv("LOGNAME", "somebody")
    monkeypatch.delenv("USER", raising=False)
    environment.name_user()
    assert "USER" not in os.environ


@pytest.mark.parametrize("unwritable", ["", ".cache", ".cache/faze"])
@pytest.mark.parametrize("closed", [False, True])
def test_without_a_writable_home_there_is_no_cache(unwritable, closed, monkeypatch, tmp_path) -> None:
    """Regression: another user's home, such as root's in a container, ended with PermissionError."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder, real = tmp_path / unwritable, os.stat
    folder.mkdir(parents=True, exist_ok=True)

    def stat(path, *arguments, **options):
        if closed and folder in Path(os.fsdecode(path)).parents:
            raise PermissionError(13, "Permission denied", path)
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "stat", stat)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != folder)
    assert cache_folder("x") is None


def test_a_home_that_is_a_file_holds_no_cache(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    (tmp_path / "home").write_text("")
    assert cache_folder("x") is None


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_no_result_gets_the_descriptor_of_a_closed_stream(closed, tmp_path) -> None:
    """Regression: with a closed stderr every stage failed silently, and messages would have gone into an output."""
    program = """import os, sys, faze.__main__ as main
main._open_standard_streams()
with open(sys.argv[1], "w") as file:
    assert file.fileno() > 2 and sys.stdin.read() == ""
    print("out", flush=True)
    print("error", file=sys.stderr, flush=True)
    os.write(2, b"library"), os.system("echo child >&2")
    file.write("result")"""
    command = [sys.executable, "-c", program, str(tmp_path / "out")]
    shell = ["sh", "-c", f'"$@" {closed}', "sh", *command]
    done = subprocess.run(shell, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0 and (tmp_path / "out").read_text() == "result", done.stderr
    assert done.stdout == ("" if ">&-" in closed.split() else "out\n")
    assert ("library" in done.stderr) == ("2>&-" not in closed)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_letter_that_the_terminal_lacks_stops_nothing(encoding) -> None:
    """Regression: the verdict's minus sign ended evaluate with a UnicodeEncodeError."""
    program = "import faze.__main__ as main; main._open_standard_streams(); print('\\u2212 1\\xb0')"
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment)
    shown = done.stdout.decode(encoding)
    assert shown == {"ascii": "\\u2212 1\\xb0\n", "latin-1": "\\u2212 1°\n", "utf-8": "− 1°\n"}[encoding], done.stderr


def test_parquet_files_have_names_that_are_not_utf_8(tmp_path) -> None:
    """Regression: pyarrow takes names in UTF-8 only, so adapt failed where the locale is another one."""
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xfc.parquet"))
    write_tables([pa.table({"error_deg": [1.0]})], path, {"seconds": 2})
    assert list(read_table(path, {"error_deg": NUMBER}, "")["error_deg"]) == [1.0]
    assert read_metadata(path, "") == (["error_deg"], {b"seconds": 2})


@pytest.mark.parametrize("refused", ["folder", "lock"])
@pytest.mark.parametrize("lock", [machine_shared, machine_exclusive])
def test_a_lock_that_is_not_writable_is_refused_with_the_remedy(lock, refused, monkeypatch, tmp_path) -> None:
    """Regression: a read-only /tmp was reported without the variable that chooses another path."""
    path = tmp_path / "lock"
    path.touch()
    monkeypatch.setenv("FAZE_MACHINE_LOCK", str(path))
    denied = tmp_path if refused == "folder" else path
    monkeypatch.setattr(os, "access", lambda asked, mode: Path(asked) != denied)
    with pytest.raises(UserError, match=rf"{denied} is not writable.*FAZE_MACHINE_LOCK"), lock():
        pass


@pytest.mark.parametrize("error", [FileNotFoundError(2, "No such file"), ImportError("no semaphores")])
def test_without_semaphores_the_missing_folder_is_named(error, monkeypatch) -> None:
    """Regression: without /dev/shm, preprocess reported only `[Errno 2] No such file or directory`."""

    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(process_pool, "ProcessPoolExecutor", refuse)
    with pytest.raises(UserError, match="/dev/shm"), worker_processes(1, print):
        pass


def test_a_clock_that_jumps_back_changes_no_duration(monkeypatch, tmp_path) -> None:
    """Regression: the duration in the run log was a difference of times of day."""
    now = time.time()
    with RunLog(tmp_path / "run.jsonl") as log:
        log.event("start")
        monkeypatch.setattr(time, "time", lambda: now - 3600)
    assert 0 <= read_events(tmp_path / "run.jsonl")[-1]["seconds"] < 60


@pytest.mark.workflow
def test_jobs_run_the_code_of_the_checkout_whose_rules_are_run(tmp_path) -> None:
    """Regression: with PYTHONSAFEPATH, jobs ran the clone in PYTHONPATH, though Snakemake compared this one's code."""
    other = tmp_path / "other" / "faze"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("raise SystemExit('the code of another clone')")
    checkout = Checkout(tmp_path / "checkout", "config/smoke.yaml")
    variables = os.environ | {"PYTHONSAFEPATH": "1", "PYTHONPATH": str(other.parent)}
    command = checkout.command("--cores", "1", "results/smoke/raw/truth.h5")
    done = subprocess.run(command, cwd=checkout.folder, env=variables, capture_output=True, text=True)
    assert done.returncode == 0 and "another clone" not in done.stdout + done.stderr, done.stderr


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (BlockingIOError(11, "Resource temporarily unavailable"), 1, "ulimit -u"),
        (RuntimeError("can't start new thread"), None, command_line.NO_THREAD),
        (RuntimeError("Resource temporarily unavailable"), None, command_line.NO_THREAD),  # from gloo
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), None, command_line.NO_MEMORY),
    ],
)
def test_a_limit_of_the_system_is_not_called_a_bug(error, code, words, monkeypatch, capsys) -> None:
    """Regression: under `ulimit -v` or `ulimit -u`, faze asked for a bug report."""

    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr(sys, "argv", ["faze"])
    main = command_line.command("")(fail)
    if code is None:
        with pytest.raises(RuntimeError) as shown:
            main()
        assert shown.value.__notes__ == [words]
    else:
        assert main() == code and words in capsys.readouterr().err


def test_a_foreign_file_is_read_in_isolation_under_a_lower_limit() -> None:
    """Regression: under `ulimit -v`, preprocess failed, since it may not raise that limit for the isolated process."""
    program = "from faze.base.untrusted import read_isolated; import os; print(read_isolated('/', os.path.exists))"
    shell = ["sh", "-c", 'ulimit -v 1500000 && ulimit -t 100 && "$@"', "sh", sys.executable, "-c", program]
    done = subprocess.run(shell, capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


def test_the_first_process_of_a_container_ends_by_sigterm() -> None:
    """Regression: `docker stop` waited ten seconds for any command but train, and then killed it."""
    program = """import os, signal, sys, faze.__main__ as main
own, os.getpid = os.getpid(), lambda: 1
main._run = lambda name: os.kill(own, signal.SIGTERM) or signal.pause()
sys.argv = ["faze", "encode"]
main.main()"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert done.returncode == 128 + 15, done.stderr
