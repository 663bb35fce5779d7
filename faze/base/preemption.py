"""Signals of a cluster that wants its node back: a process stops where it can resume, with an exit code of its own.

SLURM sends SIGTERM before it ends a job, and SIGUSR1 or SIGUSR2 if `--signal` asks for them. Standard library only.
"""

import os
import signal
import time
from types import FrameType
from typing import Self

PREEMPTED = 75  # exit code EX_TEMPFAIL of sysexits.h: try again
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
INTERRUPTED = "interrupted; run the same command again to resume or repeat it"
UNHEARD_S = 3  # after a signal, the main thread has ended, or runs code in which Python handles no signals


class Preempted(BaseException):
    """A signal asked this process to stop; it can be resumed later. Not an Exception, so that no handler catches it.

    The message is for the user; empty if another process prints it.
    """


class _Asked:
    by: str | None = None
    deferred = False
    interrupted = False


def heed() -> None:
    """Install signal handlers that raise `Preempted`: there is nothing yet to write before the process ends."""
    _Asked.by, _Asked.deferred, _Asked.interrupted = None, False, False
    for number in SIGNALS:
        signal.signal(number, _note)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # otherwise the process was started to ignore it
        signal.signal(signal.SIGINT, _interrupt)


def defer() -> None:
    """Only record signals from now on: there is work to write first, and the caller polls `asked`."""
    _Asked.deferred = True


def asked() -> str | None:
    """Return the name of the last signal received, if any.

    Raises:
        KeyboardInterrupt: one was raised before and got lost, as Python loses exceptions raised in a finaliser.
    """
    if _Asked.interrupted:
        raise KeyboardInterrupt
    return _Asked.by


def all_is_written() -> None:
    """Ignore all signals from now on: Snakemake deletes the outputs of a job that ends by a signal.

    While it exits, Python itself no longer handles them.
    """
    for number in (*SIGNALS, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def leave_to_parent(worker: int) -> None:
    """Ignore a cluster's signals, which reach every process of a job, in a worker that loads data for its parent."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.set_wakeup_fd(-1)  # the pipe belongs to the parent


class Unheard:
    """Signals that end this process, as seen by another thread.

    Python handles a signal between two bytecodes. The main thread handles none while it waits in C++, for example for a
    process that has died.
    """

    def __enter__(self) -> Self:
        """Start recording signals. Must be called from the main thread."""
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        signal.set_wakeup_fd(self._write)
        self._since: tuple[int, float] | None = None
        return self

    def __exit__(self, *error: object) -> None:
        """Stop recording; no thread may call `ending` any more."""
        signal.set_wakeup_fd(-1)
        os.close(self._write)
        os.close(self._read)

    def ending(self) -> tuple[int, str] | None:
        """Return exit code and message once the main thread has failed to end UNHEARD_S seconds after a signal."""
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
    return f"stopped by {signal.Signals(number).name} before its first step; run the same command again"


def _interrupt(number: int, frame: FrameType | None) -> None:
    _Asked.interrupted = True
    raise KeyboardInterrupt


def _note(number: int, frame: FrameType | None) -> None:
    _Asked.by = signal.Signals(number).name
    if not _Asked.deferred:
        raise Preempted(_before_first_step(number))
