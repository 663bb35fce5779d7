"""Each job its own GPUs: a lock for each GPU, for all checkouts and all users of the machine.

    python -m faze.base.gpu_slots 2 command ...

takes two GPUs that no such job has, waits and says for whom while there are fewer, and becomes the command, which sees
these alone (CUDA_VISIBLE_DEVICES). The kernel drops a lock with the command, however that dies.
"""

import contextlib
import fcntl
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from typing import IO

from faze.base.errors import UserError
from faze.base.machine_lock import holders, lock_path, name_plate, opened
from faze.base.output_lock import take, write_anew

VISIBLE = "CUDA_VISIBLE_DEVICES"
POLL_S = 0.5


def devices() -> list[str]:
    """Name the GPUs that jobs may have: those of $CUDA_VISIBLE_DEVICES, else 0, 1, ... as NVIDIA's driver counts."""
    named = os.environ.get(VISIBLE)
    if named is not None:
        names = dict.fromkeys(name.strip() for name in named.split(",") if name.strip())
        return list(names)[: list(names).index("-1") if "-1" in names else None]  # CUDA stops at -1, too
    with contextlib.suppress(Exception):  # no package, no driver
        import pynvml

        pynvml.nvmlInit()
        return [str(number) for number in range(pynvml.nvmlDeviceGetCount())]
    return []


def check(wanted: int) -> None:
    """Refuse to share more GPUs than there are.

    Raises:
        UserError: this machine has fewer.
    """
    there = devices()
    if wanted > len(there):
        why = f"{VISIBLE}={os.environ[VISIBLE]}" if VISIBLE in os.environ else "by NVIDIA's driver"
        raise UserError(f"{wanted} GPUs are asked for, but there are {len(there)} here ({why}); ask for fewer")


def hold(wanted: int, what: str) -> dict[str, IO[str]]:
    """Take GPUs; wait, and say for whom, while too few are free.

    One job collects at a time: two that each had half of what they need would wait for each other.

    Args:
        wanted: number of GPUs.
        what: is to run, in words for those who wait meanwhile.

    Returns:
        GPU -> its lock, which holds as long as the file is open.

    Raises:
        UserError: this machine has fewer.
    """
    check(wanted)
    held: dict[str, IO[str]] = {}
    with opened(f"{lock_path()}.gpus") as queue:
        take(queue, fcntl.LOCK_EX, lambda: print(f"waiting for GPUs after {holders(queue)}", file=sys.stderr))
        write_anew(queue, name_plate(f"{what}, which waits for GPUs"))
        _take_free(wanted, held)
        if len(held) < wanted:
            busy = [_who_has(device) for device in devices() if device not in held]
            print(f"waiting for GPUs: {'; '.join(dict.fromkeys(busy))}", file=sys.stderr)
        while len(held) < wanted:
            time.sleep(POLL_S)
            _take_free(wanted, held)
        for lock in held.values():
            write_anew(lock, name_plate(what))
        write_anew(queue, "")
    return held


def _take_free(wanted: int, held: dict[str, IO[str]]) -> None:
    """Add GPUs that nobody has to those that are held, up to so many."""
    for device in devices():
        if device in held or len(held) == wanted:
            continue
        lock = _open_lock(device)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held[device] = lock
        except BlockingIOError:
            lock.close()


def _who_has(device: str) -> str:
    with _open_lock(device) as lock:
        return holders(lock)


def _open_lock(device: str) -> IO[str]:
    return opened(f"{lock_path()}.gpu-{re.sub('[^A-Za-z0-9-]', '_', device)}")


def main(words: Sequence[str]) -> int:
    """Become a command that has GPUs; give an exit code only if that cannot be."""
    wanted, *command = words
    # A rule may have its shell ignore SIGTERM for the sake of a training; who waits is ended by it.
    heeded = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        held = hold(int(wanted), " ".join(command[:4]))
    except UserError as error:
        print(f"faze: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    signal.signal(signal.SIGTERM, heeded)
    print(f"on GPU {', '.join(held)}", file=sys.stderr, flush=True)
    for lock in held.values():
        os.set_inheritable(lock.fileno(), True)
    os.environ[VISIBLE] = ",".join(held)
    os.execvp(command[0], command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
