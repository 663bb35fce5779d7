"""Processes that run a unit: for proofs, forks of a process that has imported torch; otherwise fresh processes."""

import contextlib
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import proof
import torch

HERE = Path(__file__).resolve().parent


def prepare(caches: Path, *, tiny: bool) -> None:
    """Set the environment that all processes inherit; the fork server starts with the first proof.

    Args:
        caches: folder of compiled kernels, reused by the next call.
        tiny: compile nothing.
    """
    kept = {f"{name}_CACHE_DIR": str(caches.absolute() / name.lower()) for name in ("TORCHINDUCTOR", "TRITON")}
    kept["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # asking whether there is a GPU then does not touch CUDA
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")  # all processes are on this machine
    os.environ |= kept | ({"TORCHDYNAMO_DISABLE": "1"} if tiny else {})
    # The forking process looks for modules there; it has not touched CUDA, so that its children may.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    multiprocessing.get_context("forkserver").set_forkserver_preload(["proof", "units", "table", "torch._dynamo"])


def prove(wanted: proof.Proof, words: Path, processes: int, limit_s: float, *, few: bool) -> int | None:
    """Run a proof in separate processes.

    Args:
        wanted: the proof.
        words: file for their output.
        processes: number of processes that train together.
        limit_s: time limit in seconds.
        few: make at most two GPUs visible to them.

    Returns:
        The exit code; None if they were stopped at the limit.
    """
    words.write_text("", encoding="utf-8")
    make = multiprocessing.get_context("forkserver").Process
    started = [make(target=proof.perform, args=(wanted, words, place)) for place in _places(processes, few)]
    until = time.monotonic() + limit_s
    try:
        for process in started:
            process.start()
        while (ended := [process.exitcode for process in started]).count(None) and not any(ended):
            if time.monotonic() > until:
                return None
            started[ended.index(None)].join(0.05)
        return next((code for code in ended if code), 0)
    finally:  # who waits for one that failed would wait for ever
        for process in started:
            if process.exitcode is None:
                _end(process.pid)
                process.kill()
            process.join()


def run(arguments: Sequence[str | os.PathLike], words: Path, limit_s: float) -> int | None:
    """Run Python in a fresh process; return its exit code, or None if it was stopped at the limit."""
    with words.open("w", encoding="utf-8") as said:
        streams = {"stdout": said, "stderr": subprocess.STDOUT, "start_new_session": True}
        process = subprocess.Popen([sys.executable, *arguments], **streams)
        try:
            return process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(process.pid)
            process.wait()


def _end(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _places(processes: int, few: bool) -> list[dict[str, str]]:
    """For each process, return the variables of torchrun, and the GPUs that it sees."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    if few and (count := torch.cuda.device_count()) > 2:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count))))
        shared["CUDA_VISIBLE_DEVICES"] = ",".join(visible.split(",")[:2])
    places = [shared | {"RANK": rank, "LOCAL_RANK": rank} for rank in range(processes)]
    return [{name: str(value) for name, value in place.items()} for place in places]
