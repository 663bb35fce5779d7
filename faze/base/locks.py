"""Locks between processes: on outputs, on the machine (which keeps benchmarks and other jobs apart), and on GPUs.

Each lock is a `flock` on a file that records the ID of the process that holds the lock. The kernel releases it when
that process ends, even by kill -9. All checkouts and users share the locks of a machine and of its GPUs.

    python -m faze.base.locks 2 COMMAND ...

waits for two free GPUs and then becomes the command, which sees only these two (CUDA_VISIBLE_DEVICES).
"""

import contextlib
import errno
import fcntl
import functools
import glob
import hashlib
import os
import re
import shutil
import signal
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from filelock import FileLock, Timeout

from faze.base.errors import UserError
from faze.base.files import open_plain, torn

# Not tempfile.gettempdir(): TMPDIR differs between users and cluster jobs, which would then not exclude each other.
LOCK = "/tmp/faze-measured-run.lock"
LOCK_VARIABLE = "FAZE_MACHINE_LOCK"  # another path, for tests and for containers that share a machine and a folder
VISIBLE = "CUDA_VISIBLE_DEVICES"
BRIEF_S = 0.2  # a starting job holds the machine's lock for less time
POLL_S = 0.5
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # of flock, on Lustre and NFS that are mounted without locks


@contextlib.contextmanager
def output_lock(path: Path | str, *others: Path | None) -> Iterator[None]:
    """Hold the lock on an output while it is written; print a message and wait while another process holds it.

    This keeps an orphan of a killed workflow and a re-run from writing at the same time. Temporary files of killed
    processes are removed.

    Args:
        path: the output.
        others: further outputs that the lock protects.
    """
    resolved = Path(path).resolve()
    beside = f"{resolved.parent}/.{resolved.name}.lock"
    file = lockable(beside)
    with _wait(_signed(file, everyone=file != beside), f"waiting to write {path}"):
        for left in [left for output in (resolved, *others) if output for left in torn(output.resolve())]:
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)
        yield


def lockable(path: str) -> str:
    """Return the path of a lock's file: `path`, or one beside the machine's lock if its file system has no locks."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pass
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        _print_once(
            f"{Path(path).parent}: this file system has no locks ({error.strerror}). Do not write here from two "
            "machines at once, or mount it with locks (Lustre: -o flock)"
        )
        return f"{lock_path()}.{hashlib.sha256(os.path.abspath(path).encode()).hexdigest()[:16]}"
    finally:
        os.close(descriptor)
    return path


@functools.cache
def _print_once(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


@contextlib.contextmanager
def machine_exclusive() -> Iterator[None]:
    """Keep training runs and other benchmarks from starting on this machine during the block.

    Raises:
        UserError: one of them is running; the message identifies its process.
    """
    gate, path = _of_machine(""), lock_path()
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(gate.acquire(BRIEF_S))
            for shared in glob.glob(f"{glob.escape(path)}.shared-*"):
                path = shared
                with _signed(shared, everyone=True).acquire(0), contextlib.suppress(OSError):
                    os.unlink(shared)  # its process was killed; a file of another user stays in /tmp
        except Timeout:
            raise UserError(
                f"nothing was measured, since this machine is in use (lock {path} is held by "
                f"{_holder(path, command=True)}): wait for that process to end, or stop it"
            ) from None
        yield


@contextlib.contextmanager
def machine_shared() -> Iterator[None]:
    """Keep benchmarks from starting on this machine during the block; wait while one is running.

    filelock does not support shared locks. Therefore each job acquires a lock of its own while it holds the benchmark's
    lock, and a benchmark checks for such locks.
    """
    own = f"{lock_path()}.shared-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    with contextlib.ExitStack() as stack:
        with _wait(_of_machine(""), "waiting for a benchmark to end"):
            stack.enter_context(_signed(own, everyone=True).acquire())
            stack.callback(Path(own).unlink, missing_ok=True)
        yield


def lock_path() -> str:
    """Return the path of the machine's lock."""
    return os.environ.get(LOCK_VARIABLE) or LOCK


def gpus() -> list[str]:
    """List the GPUs that jobs may use: those in $CUDA_VISIBLE_DEVICES, else all in the driver's order."""
    visible = os.environ.get(VISIBLE)
    if visible is not None:
        names = list(dict.fromkeys(name.strip() for name in visible.split(",") if name.strip()))
        return names[: names.index("-1")] if "-1" in names else names  # CUDA ignores all after -1, too
    with contextlib.suppress(Exception):  # no package, no driver
        import pynvml

        pynvml.nvmlInit()
        return [str(number) for number in range(pynvml.nvmlDeviceGetCount())]
    return []


def check_gpus(wanted: int) -> None:
    """Raise UserError if this machine has fewer GPUs than wanted."""
    if wanted > (count := len(gpus())):
        source = f"{VISIBLE}={os.environ[VISIBLE]}" if VISIBLE in os.environ else "according to NVIDIA's driver"
        raise UserError(f"{wanted} GPUs are requested, but this machine has {count} ({source}): request fewer")


def take_gpus(wanted: int) -> dict[str, FileLock]:
    """Acquire the locks of free GPUs; print a message and wait while too few are free.

    Only one job collects GPUs at a time. Otherwise, two jobs that each have half of what they need would wait forever.

    Returns:
        GPU -> its lock, which is kept when this process executes another program (`exec`).

    Raises:
        UserError: this machine has fewer GPUs than wanted.
    """
    check_gpus(wanted)
    taken: dict[str, FileLock] = {}
    message = "waiting for a free GPU"
    with _wait(_of_machine(".gpus"), message):
        while True:
            busy = []
            for name in gpus():
                lock = _of_machine(f".gpu-{re.sub('[^A-Za-z0-9-]', '_', name)}", inheritable=True)
                try:
                    if name not in taken and len(taken) < wanted:
                        lock.acquire(0)
                        taken[name] = lock
                except Timeout:
                    busy.append(_holder(lock.lock_file))
            if len(taken) == wanted:
                return taken
            if message:
                print(f"{message} (held by {', '.join(dict.fromkeys(busy))})", file=sys.stderr, flush=True)
                message = ""
            time.sleep(POLL_S)


def main(arguments: Sequence[str]) -> int:
    """Execute a command with exclusive GPUs; return an exit code only if that fails."""
    count, *command = arguments
    # A rule's shell may ignore SIGTERM for its training process; while we wait, the signal ends this process.
    former = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        taken = take_gpus(int(count))
    except UserError as error:
        print(f"faze: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    signal.signal(signal.SIGTERM, former)
    print(f"on GPU {', '.join(taken)}", file=sys.stderr, flush=True)
    os.environ[VISIBLE] = ",".join(taken)
    os.execvp(command[0], command)


def _signed(path: str, *, everyone: bool = False, inheritable: bool = False) -> FileLock:
    """Create a lock whose file records its process; with `everyone`, all users may acquire and write it.

    filelock does not follow links, and opens an existing file in a sticky folder without O_CREAT.
    """

    def sign(handle: int) -> None:
        os.set_inheritable(handle, inheritable)
        if os.fstat(handle).st_nlink == 1:  # otherwise it may be a link to another user's file
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)

    return FileLock(path, mode=0o666 if everyone else -1, on_acquired=sign)


def _of_machine(suffix: str, *, inheritable: bool = False) -> FileLock:
    """Create a machine-wide lock.

    Raises:
        UserError: its path is not a regular file, or this user may not write to it.
    """
    path = Path(f"{lock_path()}{suffix}")
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise UserError(f"{path} is not a plain file: remove it, or set {LOCK_VARIABLE} to another path")
    for needed in (path.parent, path):
        if needed.exists() and not os.access(needed, os.W_OK):
            raise UserError(
                f"{needed} is not writable, but contains the lock of this machine: set {LOCK_VARIABLE} to a path that "
                "all users can write to"
            )
    return _signed(str(path), everyone=True, inheritable=inheritable)


def _wait(lock: FileLock, message: str) -> AbstractContextManager:
    """Acquire a lock; while another process holds it, print a message that identifies that process, and wait."""
    try:
        return lock.acquire(BRIEF_S)
    except Timeout:
        print(f"{message} (held by {_holder(lock.lock_file)})", file=sys.stderr, flush=True)
        return lock.acquire()


def _holder(path: str, *, command: bool = False) -> str:
    """Describe the process that a lock's file records, optionally with its command line, if known."""
    with contextlib.suppress(OSError, ValueError), open_plain(path) as file:
        process = int(file.read(20))
        words = ""
        if command:
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{process}/cmdline").read_text(errors="replace").replace("\0", " ").strip()
        shown = "".join(letter if letter.isprintable() else "?" for letter in words[:300])
        return f"process {process}" + (f", {shown}" if shown else "")
    return "another process"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
