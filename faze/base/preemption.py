"""The signals of a cluster that wants its node back: who is asked to go leaves where it can go on.

SLURM sends SIGTERM before it ends a job, and SIGUSR1 or SIGUSR2 where `--signal` says so. A process that heeds them
ends with a code of its own. Standard library only.
"""

import signal
from types import FrameType

PREEMPTED = 75  # exit code, of sysexits.h: try again
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


class Preempted(BaseException):
    """This process was asked to go and can go on later; no error, so that no handler of errors holds it up.

    The message is for the user; empty where another process says it.
    """


class _Asked:
    by: str | None = None
    deferred = False


def heed() -> None:
    """End with `Preempted` at a signal, from now on: nothing is done yet that would have to be kept."""
    _Asked.by, _Asked.deferred = None, False
    for number in SIGNALS:
        signal.signal(number, _note)


def defer() -> None:
    """Only note a signal, from now on: there is something to keep, and `asked` is looked at."""
    _Asked.deferred = True


def asked() -> str | None:
    """Name the last signal that has come, if any."""
    return _Asked.by


def _note(number: int, frame: FrameType | None) -> None:
    _Asked.by = signal.Signals(number).name
    if not _Asked.deferred:
        raise Preempted(f"stopped by {_Asked.by} before its first step; the same command goes on")
