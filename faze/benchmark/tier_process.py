"""A benchmark process, which times a tier's steps on request or measures the device's roofline peaks."""

import contextlib
import ctypes
import itertools
import json
import math
import os
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.benchmark import Timer
from torch.utils.flop_counter import FlopCounterMode

from faze.config.stage_config import Resolved
from faze.engine.parallel import join, share
from faze.training.train import Training, build, load_workload

PIPE = "FAZE_ANSWERS"  # variable with the file descriptor for a process's answers; standard output is for people
NVML_LEAST_S = 2.0  # NVML updates its counter a few dozen times a second, so shorter blocks are off by several percent
DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
WRITE_ONLY = ("aten::copy_", "aten::zero_", "aten::fill_")  # do not read the tensor that they write to
ALLOCATIONS = ("aten::empty", "aten::new_empty")


def answer(value: object) -> None:
    """Send a value to the process that started this one."""
    os.write(int(os.environ[PIPE]), json.dumps(value).encode() + b"\n")


def measure_tier(config: Resolved, tier: str, data: Path | None, threads: int) -> None:
    """Build a tier's training and send its description; then answer requests until standard input is closed."""
    engine = config.engines[tier]
    with join(engine, share(threads, engine)) as world:
        workload = load_workload(config, data, world.size)
        memory = MemoryPeak(world.device)
        training = build(workload, engine, world, seed=0)
        steps, step = TierSteps(training, config.benchmark.block_steps), training.step
        about = {"switches": [asdict(switch) for switch in training.switches], "settling_steps": step.settling_steps}
        about |= {"batch": workload.batch_size, "images": workload.images * workload.batch_size}
        about |= {"devices": world.size * step.replicas if world.device.type == "cuda" else 1}
        answer(about | {"least_s": steps.energy.least_s, "processes": world.size, "threads": torch.get_num_threads()})
        answers = {"block": steps.block, "phases": steps.phases, "settle": memory.settle, "memory": memory.read}
        for line in sys.stdin:
            request, *arguments = json.loads(line)
            answer(answers[request](*arguments))


def measure_roofline(config: Resolved, data: Path | None, threads: int, number_formats: Iterable[str]) -> None:
    """Send the `work` of a baseline step and the `roof` of its device: the rates of copies and matrix products.

    The rates are measured in a new process after the rounds. Measuring them between rounds made steps up to 50 % longer
    in tiers that return memory to the system, probably because the arrays for copying used up the free pages.

    A tier that fuses operations or uses a 16-bit format moves fewer bytes than are counted, so its share of the copy
    peak may exceed 1. Recomputed activations do not count as work.
    """
    baseline = next(iter(config.engines.values())).model_copy(update={"parallel": "single"})
    with join(baseline, threads) as world:
        training = build(load_workload(config, data), baseline, world, seed=0)
        [batch] = training.feed(range(1))
        with FlopCounterMode(display=False) as counter, Traffic() as traffic:
            training.take(batch, training.workload.samples)
        work = {"flop": counter.get_total_flops(), "bytes": traffic.total}
        answer({"work": work, "roof": measure_rates(world.device, number_formats)})


class TierSteps:
    """The steps of one tier on the first batches of its training, which are the same for every tier."""

    def __init__(self, training: Training, block_steps: int) -> None:
        self.training, self._read_ahead = training, 0
        self._synchronize = torch.cuda.synchronize if training.world.device.type == "cuda" else lambda: None
        self.energy = Energy(training.world.device, training.step.replicas)
        self._batches = training.feed(itertools.cycle(range(block_steps)))

    def block(self, steps: int) -> dict:
        """Measure the time and the energy of a block of steps."""
        self._take(self._read_ahead)  # batches that were prefetched while other tiers ran
        self._read_ahead = self.training.feed.ahead
        self.training.world.wait()
        self._synchronize()
        joules, began = self.energy.joules(), time.perf_counter()
        self._take(steps)
        self._synchronize()
        seconds = time.perf_counter() - began
        return {"seconds": seconds, "joules": self.energy.joules() - joules}

    def phases(self, steps: int) -> dict[str, float]:
        """Return the ms per step of each phase; the sum exceeds a step's time, since each phase is synchronised."""
        training, total = self.training, defaultdict(float)

        @contextlib.contextmanager
        def clock(phase: str) -> Iterator[None]:
            self._synchronize()
            began = time.perf_counter()
            yield
            self._synchronize()
            total[phase] += time.perf_counter() - began

        ahead = training.feed.ahead  # number of steps whose batches are prefetched during the first step
        for number, batch in enumerate(training.feed(range(1 + ahead + steps), clock)):
            training.take(batch, training.workload.samples, clock=clock)
            if number == ahead:
                training.world.wait()
                total.clear()
        return {phase: 1e3 * seconds / steps for phase, seconds in total.items()}

    def _take(self, steps: int) -> None:
        for batch in itertools.islice(self._batches, steps):
            self.training.take(batch, self.training.workload.samples)


class MemoryPeak:
    """Peak memory minus the memory in use when this object is created, after imports and data but before the model.

    On a GPU, it is the allocator's peak, summed over all devices that this process uses. On a CPU, it is the peak
    resident memory since a reset, from /proc: getrusage would include the parent's peak, which survives fork and exec.
    """

    def __init__(self, device: torch.device) -> None:
        self._gpus = range(torch.cuda.device_count()) if device.type == "cuda" else ()
        torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.0).step()  # makes torch import another 70 MiB
        self.settle()
        self._before = 0 if self._gpus else status_bytes("VmRSS")

    def settle(self) -> None:
        """Reset the peak, to exclude memory that compilers and algorithm searches need only during warm-up."""
        for gpu in self._gpus:
            torch.cuda.reset_peak_memory_stats(gpu)
        if not self._gpus:
            ctypes.CDLL(None).malloc_trim(0)  # otherwise, steps would reuse freed memory, which the peak does not count
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")

    def read(self) -> dict[str, float]:
        """Return peak_gib; on a GPU, also reserved_gib."""
        if not self._gpus:
            return {"peak_gib": (status_bytes("VmHWM") - self._before) / 2**30}
        # A replayed graph allocates nothing: it writes to the pool of its capture.
        pools = [s for s in torch.cuda.memory_snapshot() if tuple(s["segment_pool_id"]) != (0, 0)]
        idle = sum(segment["total_size"] - segment["allocated_size"] for segment in pools)
        allocated = sum(map(torch.cuda.max_memory_allocated, self._gpus)) + idle
        reserved = sum(map(torch.cuda.max_memory_reserved, self._gpus))
        return {"peak_gib": allocated / 2**30, "reserved_gib": reserved / 2**30}


def status_bytes(field: str) -> int:
    """Return a size from /proc/self/status, in bytes."""
    return 1024 * int(re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text(encoding="ascii"))[1])


class Energy:
    """Energy counters of GPU boards, read through NVML; they include idle power and are nan if a board has none."""

    def __init__(self, device: torch.device, replicas: int) -> None:
        self._boards, self.least_s = [], 0.0
        if device.type == "cpu":
            return
        import pynvml

        try:
            pynvml.nvmlInit()  # NVML ignores CUDA_VISIBLE_DEVICES, so boards are found by UUID
            gpus = range(replicas) if replicas > 1 else [device.index]
            names = [f"GPU-{torch.cuda.get_device_properties(gpu).uuid}" for gpu in gpus]
            self._nvml, self._boards = pynvml, [pynvml.nvmlDeviceGetHandleByUUID(name) for name in names]
            self.joules()
            self.least_s = NVML_LEAST_S
        except pynvml.NVMLError:  # no driver, or a board without a counter
            self._boards = []

    def joules(self) -> float:
        """Return the energy in joules that the boards have used since an arbitrary point in time."""
        millijoules = [self._nvml.nvmlDeviceGetTotalEnergyConsumption(board) for board in self._boards]
        return sum(millijoules) / 1e3 if millijoules else math.nan


class Traffic(TorchDispatchMode):
    """The total size in bytes of all operations' inputs and outputs: a traffic estimate that ignores caches."""

    total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> object:
        out, name = func(*args, **(kwargs or {})), func._schema.name
        if func.namespace == "aten" and not func.is_view and not name.startswith(ALLOCATIONS):
            read = args[1:] if name in WRITE_ONLY or name.startswith("aten::new_") else args
            tensors = [leaf for leaf in tree_leaves((read, kwargs, out)) if isinstance(leaf, Tensor)]
            self.total += sum(tensor.nbytes for tensor in tensors)
        return out


def measure_rates(device: torch.device, number_formats: Iterable[str]) -> dict[str, Any]:
    """Measure the rates of copying an array far larger than any cache, and of multiplying square matrices."""
    copy_mib, order = (2048, 8192) if device.type == "cuda" else (512, 2048)
    source = torch.ones(copy_mib * 2**18, device=device)
    target = torch.empty_like(source)
    products = {}
    for name in number_formats:
        matrices = torch.randn(2, order, order, device=device).to(DTYPES[name])
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        products[name] = _rate(2 * order**3 / 1e12, torch.matmul, *matrices)
    return {"copy_gbytes_per_s": _rate(2 * source.nbytes / 1e9, target.copy_, source), "matmul_tflops": products}


def _rate(work: float, call: Callable[..., Tensor], *arguments: Tensor) -> dict[str, float]:
    timer = Timer("call(*arguments)", globals=locals(), num_threads=torch.get_num_threads())
    return {"median": work / timer.blocked_autorange(min_run_time=1.5).median}
