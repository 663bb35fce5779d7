"""A process that has imported what measuring takes and computed nothing; measuring processes are its forks.

    python -m faze.benchmark.fork_server SOCKET MODULE...

Importing torch takes seconds, longer than many tiers are then measured. A fork starts behind the imports, and as fresh
as if it had made them itself: no threads, no operation, no memory but theirs. Each round has fork servers of its own,
so where libraries and memory lie differs from round to round, and not between the tiers of a round.
"""

import contextlib
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Self

from faze.base.errors import UserError

LONGEST = 2**17  # bytes of a request: a command line and some variables


class Fork:
    """A process that a fork server started."""

    def __init__(self, pidfd: int) -> None:
        self._pidfd = pidfd

    def ended(self, patience_s: float = 0.0) -> bool:
        """Say whether it has ended, or ends within so many seconds."""
        return bool(select.select([self._pidfd], [], [], patience_s)[0])

    def end(self) -> None:
        """End it, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)
        self.ended(patience_s=60)
        os.close(self._pidfd)


class ForkServer:
    """The other end of a fork server, which ends as its context is left.

    Args:
        modules: what it imports.
        environment: what it has in its environment beside ours.
    """

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            command = [sys.executable, "-m", __name__, str(its.fileno()), *modules]
            started = {**os.environ, **environment}
            self._process = subprocess.Popen(command, env=started, pass_fds=[its.fileno()])
        self._socket = ours

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._process.wait()

    def fork(self, arguments: Sequence[str], environment: Mapping[str, str]) -> Fork:
        """Start `faze ARGUMENTS`, with this in the environment beside the server's.

        Raises:
            UserError: the server ended instead.
        """
        pidfds: list[int] = []
        with contextlib.suppress(ConnectionError):
            self._socket.send(json.dumps([list(arguments), dict(environment)]).encode())
            pidfds = socket.recv_fds(self._socket, 1, 1)[1]
        if not pidfds:
            raise UserError("the benchmark's processes cannot start; why not stands above")
        return Fork(pidfds[0])


def serve(requests: socket.socket) -> None:
    """Fork a process for each request; returns in the server once the other end is closed.

    Those forked are not waited for: while they are zombies, what is known of them is theirs. They go with the server.
    """
    while request := requests.recv(LONGEST):
        pid = os.fork()
        if not pid:
            requests.close()
            _become(*json.loads(request))
        pidfd = os.pidfd_open(pid)
        with contextlib.suppress(BrokenPipeError):  # who asked has been killed: the next request is none
            socket.send_fds(requests, [b"1"], [pidfd])
        os.close(pidfd)


def _become(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Be `python -m faze ARGUMENTS`, and end without tidying up: what a process of torch does for a second is vain."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(environment)
    sys.argv[1:] = arguments
    code: object = 1
    try:
        runpy.run_module("faze", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started it hears of it too, and closes its end
    for module in sys.argv[2:]:
        importlib.import_module(module)
    serve(socket.socket(fileno=int(sys.argv[1])))
