"""A separate process for each batch of cases, which limits memory and time and checks writes."""

import contextlib
import faulthandler
import gc
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

MEMORY_MIB = 1024  # beyond what the process holds before its first case
# Limits of one case: processor time until an exception, which C code may ignore; processor time and elapsed time until
# the process ends. PyYAML needs up to 2 s before it refuses deep nesting.
CASE_CPU_S, LAST_CPU_S, CASE_S = 6.0, 12.0, 300.0


class TooLong(BaseException):
    """A case took too long; no `except Exception` hides it."""


class WroteOutside(BaseException):
    """A case opened a file outside its folder for writing; no `except Exception` hides it."""


def limit_memory(mib: int = MEMORY_MIB) -> None:
    """Limit the address space: exceeding it raises a MemoryError or ends the process."""
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + mib * 2**20, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@contextlib.contextmanager
def limited_time() -> Iterator[None]:
    """Limit a case's processor time by an exception, and its elapsed time by ending the process."""

    def stop(*_: object) -> None:
        raise TooLong(f"more than {CASE_CPU_S:g} s of processor time")

    signal.signal(signal.SIGPROF, stop)
    for last in (signal.SIGVTALRM, signal.SIGALRM):  # whose default is the end
        faulthandler.register(last, file=2, chain=True)
    timers = {signal.ITIMER_PROF: CASE_CPU_S, signal.ITIMER_VIRTUAL: LAST_CPU_S, signal.ITIMER_REAL: CASE_S}
    for timer, seconds in timers.items():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for timer in timers:
            signal.setitimer(timer, 0)


class Watch:
    """Record everything that is opened for writing, created, renamed or removed while the watch is active."""

    def __init__(self, folder: Path) -> None:
        self._within, self._on = str(folder.resolve()), False
        sys.addaudithook(self._see)

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Watch while the block runs."""
        self._on = True
        try:
            yield
        finally:
            self._on = False

    def _see(self, event: str, arguments: tuple) -> None:
        if not self._on:
            return
        if event == "open":
            path, _, flags = arguments
            paths = [path] if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND) else []
        elif event in ("os.rename", "os.link", "os.symlink"):
            paths = arguments[:2]
        elif event in ("os.remove", "os.rmdir"):
            path, folder = arguments
            paths = [path if folder == -1 else f"/proc/self/fd/{folder}/{os.fsdecode(path)}"]
        elif event in ("os.mkdir", "os.truncate", "os.chmod"):
            paths = arguments[:1]
        elif event in ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork"):
            raise WroteOutside(f"{event} {arguments!r}")
        else:
            return
        for path in paths:
            if isinstance(path, str | bytes | os.PathLike):
                name = os.path.realpath(os.fsdecode(path))
                if not f"{name}/".startswith(f"{self._within}/") and name != "/dev/null":
                    raise WroteOutside(f"{event} {name}")


def own_peak_mib() -> float:
    """Return the largest resident memory since `forget_peak`."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def forget_peak() -> None:
    """Reset the peak that `own_peak_mib` returns."""
    gc.collect()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def in_child(work: Callable[[], None], log: Path) -> int:
    """Run `work` in a fork of this process, write its output to a file, and return 0, -signal or the exit code."""
    child = os.fork()
    if not child:
        code = 1
        try:
            with log.open("wb", buffering=0) as file:
                for stream in (1, 2):
                    os.dup2(file.fileno(), stream)
            sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
            faulthandler.enable(file=2)
            work()
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
