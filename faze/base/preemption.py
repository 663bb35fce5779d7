"""The signals of a cluster that wants its node back: who is asked to go leaves where it can go on.

SLURM sends SIGTERM before it ends a job, and SIGUSR1 or SIGUSR2 where `--signal` says so. A process that heeds them
ends with a code of its own. Standard library only.
"""

import os
import signal
import time
from types import FrameType
from typing import Self

PREEMPTED = 75  # exit code, of sysexits.h: try again
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
INTERRUPTED = "interrupted; the same command goes on, or makes it anew"
UNHEARD_S = 3  # after a signal the main thread has ended, or it stands in code where Python hears none


class Preempted(BaseException):
    """This process was asked to go and can go on later; no error, so that no handler of errors holds it up.

    The message is for the user; empty where another process says it.
    """


class _Asked:
    by: str | None = None
    deferred = False
    interrupted = False


def heed() -> None:
    """End with `Preempted` at a signal, from now on: nothing is done yet that would have to be kept."""
    _Asked.by, _Asked.deferred, _Asked.interrupted = None, False, False
    for number in SIGNALS:
        signal.signal(number, _note)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else the process was told to ignore it
        signal.signal(signal.SIGINT, _interrupt)


def defer() -> None:
    """Only note a signal, from now on: there is something to keep, and `asked` is looked at."""
    _Asked.deferred = True


def asked() -> str | None:
    """Name the last signal that has come, if any.

    Raises:
        KeyboardInterrupt: one was raised and is lost, as Python loses what is raised amid a finaliser.
    """
    if _Asked.interrupted:
        raise KeyboardInterrupt
    return _Asked.by


def all_is_written() -> None:
    """Ignore every signal, from now on: a process that ends by one would take the results with it.

    Python itself heeds them no more while it ends.
    """
    for number in (*SIGNALS, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def leave_to_parent(worker: int) -> None:
    """Leave a cluster's signals, which reach every process of a job, to the process that this worker reads for."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.set_wakeup_fd(-1)  # the pipe is the parent's


class Unheard:
    """Signals that end this process, as another thread sees them.

    Python hears a signal between two of its own steps. Who waits in C++ for a process that is gone takes none.
    """

    def __enter__(self) -> Self:
        """Listen, from now on. The main thread does that."""
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        signal.set_wakeup_fd(self._write)
        self._since: tuple[int, float] | None = None
        return self

    def __exit__(self, *error: object) -> None:
        """Listen no more; no thread asks any more."""
        signal.set_wakeup_fd(-1)
        os.close(self._write)
        os.close(self._read)

    def ending(self) -> tuple[int, str] | None:
        """Give exit code and words, once a signal has come that the main thread should have ended at long ago."""
        try:
            came = os.read(self._read, 64)
        except BlockingIOError:
            came = b""
        for number in came:
            if self._since is None and (number == signal.SIGINT or (number in SIGNALS and not _Asked.deferred)):
                self._since = number, time.monotonic()
        if self._since is None or time.monotonic() - self._since[1] < UNHEARD_S:
            return None
        number = self._since[0]
        return (128 + number, INTERRUPTED) if number == signal.SIGINT else (PREEMPTED, _before_first_step(number))


def _before_first_step(number: int) -> str:
    return f"stopped by {signal.Signals(number).name} before its first step; the same command goes on"


def _interrupt(number: int, frame: FrameType | None) -> None:
    _Asked.interrupted = True
    raise KeyboardInterrupt


def _note(number: int, frame: FrameType | None) -> None:
    _Asked.by = signal.Signals(number).name
    if not _Asked.deferred:
        raise Preempted(_before_first_step(number))
