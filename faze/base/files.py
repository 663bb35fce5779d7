"""Files that are whole or absent, and the lock that keeps two writers of the same outputs apart.

Standard library only (POSIX).
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

# Of a path or of a file itself; any other error in reading is the machine's, such as a network folder that is gone.
_OF_THE_FILE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG}


def is_of_the_file(error: OSError) -> bool:
    """Whether a file cannot be read for what it is, so that trying again would not help."""
    return error.errno in _OF_THE_FILE


@contextlib.contextmanager
def whole_file(path: Path | str) -> Iterator[Path]:
    """Give a temporary path beside `path`; rename it into place when the block ends well, remove it otherwise."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_folder(path: Path | str) -> Iterator[Path]:
    """Give a temporary folder beside `path`; it takes the place of `path` when the block ends well."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield temporary
        temporary.chmod(0o755)
        if path.exists():
            shutil.rmtree(path)
        temporary.replace(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def sole_writer(path: Path | str) -> Iterator[None]:
    """Hold the lock on an output while writing it; wait, and say for whom, while another process holds it.

    The kernel drops the lock when its holder dies, however it dies. So an orphan of a killed workflow and the re-run
    never write together.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / f".{path.name}.lock").open("a+") as lock:

        def say() -> None:
            lock.seek(0)
            print(f"{path} is being written by process {lock.read().strip()}: waiting for it to end", file=sys.stderr)

        take(lock, fcntl.LOCK_EX, say)
        write_anew(lock, str(os.getpid()))
        _remove_torn(path)
        yield


def stamp_of(folder: Path) -> str:
    """Changes with a person's annotation, and with a frame added or removed; not with one that is written over."""
    if not folder.is_dir():
        return "none"
    # MPIIGaze's annotation lies beside the frames of each day, and cameras in a folder of their own.
    found = [path for pattern in ("*", "*/*.txt", "*/*.mat") for path in folder.glob(pattern)]
    stats = sorted(
        (str(path), path.stat().st_mtime_ns, path.is_file() and path.stat().st_size) for path in found if path.exists()
    )
    return hashlib.sha256(repr(stats).encode()).hexdigest()[:8]


def take(lock: IO[str], kind: int, if_held: Callable[[], None]) -> None:
    """Take the kernel's lock on an open file; call `if_held` first, which may raise, and wait while another has it."""
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        if_held()
        fcntl.flock(lock, kind)


def write_anew(file: IO[str], text: str) -> None:
    """Replace what an open file holds, for others to read at once."""
    file.seek(0)
    file.truncate()
    file.write(text)
    file.flush()


def _remove_torn(path: Path) -> None:
    """Remove the temporary files and folders that killed writers of this output left."""
    for torn in path.parent.glob(f".{path.name}.*"):
        if torn.name == f".{path.name}.lock":
            continue
        if torn.is_dir():
            shutil.rmtree(torn, ignore_errors=True)
        else:
            torn.unlink(missing_ok=True)
