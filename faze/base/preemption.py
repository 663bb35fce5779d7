"""Preemption: a training run that the cluster asks to stop writes a checkpoint and exits with a distinct code.

SLURM sends SIGTERM before it ends a job, and SIGUSR1 or SIGUSR2 if `--signal` requests it. Standard library only.
"""

import os
import signal
import time
from types import FrameType
from typing import Self

PREEMPTED = 75  # exit code EX_TEMPFAIL of sysexits.h: try again
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
INTERRUPTED = "interrupted; run the same command again to resume or repeat it"
AGAIN_S = 5  # signals that follow sooner are copies: from a scheduler to every process, and from torchrun
UNANSWERED_S = 30  # a step that takes longer to answer a signal is not waited for
OVERDUE_S = 3  # after a signal the main thread has ended, or is in code where Python runs no signal handler


class Preempted(BaseException):
    """This process was asked to stop and can resume later; not an Exception, so that no error handler catches it.

    The message is for the user; it is empty if another process prints it.
    """


class _State:
    signal_name: str | None = None  # of the last signal
    arrived = 0.0  # time of the first signal that is not answered
    answered = True  # `received_signal` has returned the last signal
    deferred = False
    interrupted = False


def install_handlers() -> None:
    """Raise `Preempted` on any signal from now on: there is no result yet that must be saved."""
    _State.signal_name, _State.answered, _State.deferred, _State.interrupted = None, True, False, False
    for number in SIGNALS:
        signal.signal(number, _note)
    signal.signal(signal.SIGALRM, _give_up)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else the parent told us to ignore it
        signal.signal(signal.SIGINT, _interrupt)


def defer() -> None:
    """Record signals for `received_signal` from now on: there is work to save.

    Another signal before its next call, or no call within UNANSWERED_S, raises `Preempted` all the same: the process
    is waiting for something, and the last checkpoint is kept.
    """
    _State.deferred = True


def received_signal() -> str | None:
    """Return the name of the last signal, if any.

    Raises:
        KeyboardInterrupt: one was raised earlier and lost, since Python drops exceptions raised in a finaliser.
    """
    if _State.interrupted:
        raise KeyboardInterrupt
    if not _State.answered:
        _State.answered = True
        signal.setitimer(signal.ITIMER_REAL, 0)
    return _State.signal_name


def ignore_signals() -> None:
    """Ignore all signals from now on: Snakemake would delete the results, now written, if a signal ended the process.

    Python's own signal handlers do not run while the interpreter exits.
    """
    for number in (*SIGNALS, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)


def ignore_in_worker(worker: int) -> None:
    """Ignore a cluster's signals in loader process `worker`: they reach every process, and the parent handles them."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.set_wakeup_fd(-1)  # the pipe is the parent's


class SignalWatch:
    """A watch for signals that should end this process, read by another thread.

    Python runs signal handlers only between bytecode instructions, so a main thread that waits in C++ for a process
    that is gone runs none. The context must be entered in the main thread.
    """

    def __enter__(self) -> Self:
        """Install a pipe to which Python writes the number of each signal."""
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        signal.set_wakeup_fd(self._write)
        self._since: tuple[int, float] | None = None
        return self

    def __exit__(self, *error: object) -> None:
        """Remove the pipe; no other thread may call `overdue` afterwards."""
        signal.set_wakeup_fd(-1)
        os.close(self._write)
        os.close(self._read)

    def overdue(self) -> tuple[int, str] | None:
        """Return an exit code and a message if the main thread should have ended by now."""
        try:
            numbers = os.read(self._read, 64)
        except BlockingIOError:
            numbers = b""
        for number in numbers:
            if self._since is None and number in (signal.SIGINT, *SIGNALS):
                self._since = number, time.monotonic()
        if self._since is None:
            return None
        number, began = self._since
        deferred = _State.deferred and number != signal.SIGINT
        if deferred and _State.answered and _State.signal_name:
            self._since = None
            return None
        if time.monotonic() - began < OVERDUE_S + (UNANSWERED_S if deferred else 0):
            return None
        return (128 + number, INTERRUPTED) if number == signal.SIGINT else (PREEMPTED, _stopped_by(number))


def _stopped_by(number: int) -> str:
    """Return the message for a signal that no step has answered."""
    when = "while it was waiting" if _State.deferred else "before its first step"
    return f"stopped by {signal.Signals(number).name} {when}; run the same command again"


def _interrupt(number: int, frame: FrameType | None) -> None:
    _State.interrupted = True
    raise KeyboardInterrupt


def _note(number: int, frame: FrameType | None) -> None:
    _State.signal_name = signal.Signals(number).name
    if _State.answered:
        _State.answered, _State.arrived = False, time.monotonic()
        if _State.deferred:
            signal.setitimer(signal.ITIMER_REAL, UNANSWERED_S)
    if not _State.deferred or time.monotonic() - _State.arrived > AGAIN_S:
        raise Preempted(_stopped_by(number))


def _give_up(number: int, frame: FrameType | None) -> None:
    if not _State.answered:
        raise Preempted(_stopped_by(signal.Signals[_State.signal_name or ""]))
