"""Read files that faze did not write: with a size limit, clear errors, and isolation where a C library may crash.

Standard library only, so that the process of `read_isolated` starts quickly.
"""

import contextlib
import errno
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from faze.base.errors import DamagedFile, UserError
from faze.base.files import read_plain, reason_of

T = TypeVar("T")
CPU_S = 120  # of an isolated process: it reads the labels of millions of strips within seconds
MEMORY_BYTES = 4 * 2**30  # address space of an isolated process


@contextlib.contextmanager
def untrusted(
    path: Path | str, what: str = "the file", remedy: str = "recreate it or download it again"
) -> Iterator[None]:
    """Convert any error that a parser raises for a damaged or hostile file into a one-sentence message.

    Args:
        path: Path of the file.
        what: The part of it that is read.
        remedy: What the user can do.

    Raises:
        DamagedFile: Replaces the parser's error. UserErrors and errors of the machine, such as a lost network folder or
            lack of memory, are passed through.
    """
    try:
        yield
    except (UserError, MemoryError):
        raise
    except Exception as error:  # on foreign bytes, a parser may raise any error
        if isinstance(error, FileNotFoundError):
            joint = ", " if " or " in remedy else " or "
            raise DamagedFile(f"{path}: there is no such file: check its path{joint}{remedy}") from error
        # An archive may refer to a position before the beginning of the file: EINVAL.
        of_system = isinstance(error, OSError) and error.errno not in (None, 0, errno.EINVAL)
        reason = reason_of(error) if of_system else " ".join(str(error).split())[:200]
        raise DamagedFile(f"{path}: {what} cannot be read ({reason or type(error).__name__}): {remedy}") from error


def read_untrusted(path: Path | str, parse: Callable[[bytes], T], remedy: str = "download it again") -> T:
    """Parse the content of a plain file of at most 256 MiB.

    Raises:
        DamagedFile: The file is missing, not a plain file, too large, or cannot be parsed.
    """
    with untrusted(path, remedy=remedy):
        return parse(read_plain(path))


def read_isolated(path: Path | str, read: Callable[..., T], *arguments: object, cpu_s: int = CPU_S) -> T:
    """Call `read(path, *arguments)` in an isolated process, with limits on processor time and memory.

    Args:
        path: Path of the file, or of the folder that contains the files; passed as text.
        read: A module-level function that the process imports and that returns JSON values.
        arguments: JSON values.
        cpu_s: Limit on processor time.

    Raises:
        UserError: The function raised it, or its process crashed, took too long or needed too much memory.
    """
    request = json.dumps([read.__module__, read.__qualname__, [str(path), *arguments], cpu_s, MEMORY_BYTES])
    ended = subprocess.run([sys.executable, "-m", __name__], input=request.encode(), capture_output=True)
    if ended.returncode < 0:
        name = signal.Signals(-ended.returncode).name
        how = f"took more than {cpu_s} s" if name in ("SIGXCPU", "SIGKILL") else f"crashed ({name})"
        raise DamagedFile(f"{path}: the library that reads it {how}: the file is damaged or hostile; download it again")
    if ended.returncode:
        raise ChildProcessError(ended.stderr.decode(errors="replace"))
    refusal, result = json.loads(ended.stdout)
    if refusal:
        raise DamagedFile(refusal)
    return result


def _answer() -> None:
    """Process the request of `read_isolated` on stdin, and write the result to stdout."""
    module, name, arguments, cpu_s, memory_bytes = json.load(sys.stdin)
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a library may print
    read = getattr(importlib.import_module(module), name)
    _limit(resource.RLIMIT_CPU, cpu_s, cpu_s + 5)
    _limit(resource.RLIMIT_AS, memory_bytes, memory_bytes)
    _limit(resource.RLIMIT_CORE, 0, 0)
    try:
        with untrusted(arguments[0]):
            outcome = "", read(*arguments)
    except UserError as error:
        outcome = str(error), None
    except MemoryError:
        limit = f"needs more than {memory_bytes / 2**30:.0f} GiB of memory"
        outcome = f"{arguments[0]}: {limit}: the file is damaged or hostile; download it again", None
    with answer:
        json.dump(outcome, answer)


def _limit(resource_number: int, *limits: int) -> None:
    """Set the soft and the hard limit, or keep the hard limit of this process if it is lower."""
    most = resource.getrlimit(resource_number)[1]
    lowered = [limit if most == resource.RLIM_INFINITY else min(limit, most) for limit in limits]
    resource.setrlimit(resource_number, (lowered[0], lowered[1]))


if __name__ == "__main__":
    _answer()
