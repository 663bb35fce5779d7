"""A measured run has the machine to itself: one lock for all checkouts and all users of the machine.

The benchmark takes it alone and refuses to start while anyone else has it; trainings share it and wait for a benchmark.
The kernel drops it with its holder, however that dies. Standard library only (POSIX).
"""

import contextlib
import datetime
import fcntl
import json
import os
import pwd
import stat
import sys
from collections.abc import Iterator
from typing import IO

from faze.base.errors import UserError
from faze.base.files import parse_json
from faze.base.output_lock import take, write_anew

# Not tempfile.gettempdir(): TMPDIR differs between users and cluster jobs, who would then not see each other.
LOCK = "/tmp/faze-measured-run.lock"
LOCK_VARIABLE = "FAZE_MACHINE_LOCK"  # another path, for tests and for containers that share a machine and a folder
LONGEST = 2**16  # bytes of it that are read: anyone on the machine may write there


@contextlib.contextmanager
def machine_alone(what: str) -> Iterator[None]:
    """Hold the machine for a measured run.

    Args:
        what: is running, in words for those who are refused meanwhile.

    Raises:
        UserError: someone else measures or trains here; says who.
    """
    with opened(lock_path()) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"nothing was measured, since this machine is not free: {holders(lock)}; wait for its end, or stop it "
                "(kill)"
            ) from None
        write_anew(lock, name_plate(what))
        with _cleared(lock):
            yield


@contextlib.contextmanager
def machine_shared(what: str) -> Iterator[None]:
    """Keep measured runs from starting while the block runs; wait, and say for whom, while one runs already."""
    with opened(lock_path()) as lock:
        words = "waiting for a measured run to end"
        take(lock, fcntl.LOCK_SH, lambda: print(f"{words}: {holders(lock)}", file=sys.stderr))
        lock.write(name_plate(what))  # appended: the others' stay
        lock.flush()
        with _cleared(lock):
            yield


def lock_path() -> str:
    """Name the machine's lock."""
    return os.environ.get(LOCK_VARIABLE) or LOCK


def opened(path: str) -> IO[str]:
    """Open a lock, for every user to lock and sign, whatever our umask; never through a link to a file of someone's.

    O_CREAT only where it is missing: in a sticky folder, kernels may refuse it for another user's file.

    Raises:
        UserError: something else lies at its path.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        try:
            handle = os.open(path, flags)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):  # someone else's was faster
                created = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
                os.fchmod(created, 0o666)
                os.close(created)
            handle = os.open(path, flags)
    except OSError as error:
        why = f"{error.strerror}; remove it if it is a link, or name another path in {LOCK_VARIABLE}"
        raise UserError(f"{path}, which faze locks for itself, cannot be opened: {why}") from None
    facts = os.fstat(handle)
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
        os.close(handle)
        raise UserError(f"{path}, which faze locks for itself, is no plain file of its own: remove it")
    return os.fdopen(handle, "r+", encoding="utf-8", errors="replace")


@contextlib.contextmanager
def _cleared(lock: IO[str]) -> Iterator[None]:
    """Leave the file empty, unless others still hold it."""
    try:
        yield
    finally:
        # An interrupt between two lines of the caller leaves this to the end of the generator, after the file's.
        with contextlib.suppress(BlockingIOError):
            if not lock.closed:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                write_anew(lock, "")


def name_plate(what: str) -> str:
    """Say who we are, for those who find a lock taken."""
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        user = str(os.geteuid())
    since = datetime.datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    return json.dumps({"process": os.getpid(), "user": user, "since": since, "what": what}) + "\n"


def holders(lock: IO[str]) -> str:
    """Name in words who holds a lock. A training that was killed has left its name, so only living ones count."""
    lock.seek(0)
    plates = []
    for line in lock.read(LONGEST).splitlines():
        with contextlib.suppress(ValueError, TypeError, KeyError, OverflowError):
            plate = parse_json(line)
            words = f"process {plate['process']} of user {plate['user']} runs {plate['what']} since {plate['since']}"
            # Others can write here too: nothing of it may reach a terminal but print.
            plates.append((int(plate["process"]), "".join(c if c.isprintable() else "?" for c in words)))
    living = [words for process, words in plates if _lives(process)] or [words for _, words in plates]
    return "; ".join(living) or "a process that has not written its name"


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return process > 0
