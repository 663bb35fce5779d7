"""The work of a step, the roofline of its device, and how close the step comes to it.

The roofline peaks are the rates of a copy and of a matrix product. They are measured after the rounds: a copy of a
gigabyte makes the page faults of the steps after it several times slower, which distorted the ratios of the tiers.
"""

import functools
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from faze.benchmark.processes import answer
from faze.config.stage_config import Resolved
from faze.engine.parallel import join
from faze.training.train import Training, build, load_workload

DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
WRITE_ONLY = ("aten::copy_", "aten::zero_", "aten::fill_")  # do not read the tensor that they write to
ALLOCATIONS = ("aten::empty", "aten::new_empty")
BLOCKS, BLOCK_S = 5, 0.3


class Traffic(TorchDispatchMode):
    """The sum of the bytes of each operation's inputs and outputs: an estimate, since it ignores caches."""

    total = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: Mapping[str, Any] | None = None
    ) -> object:
        """Run an operation and count its bytes; views move none."""
        out, name = func(*args, **(kwargs or {})), func._schema.name
        if func.namespace == "aten" and not func.is_view and not name.startswith(ALLOCATIONS):
            read = args[1:] if name in WRITE_ONLY or name.startswith("aten::new_") else args
            tensors = [leaf for leaf in tree_leaves((read, kwargs, out)) if isinstance(leaf, Tensor)]
            self.total += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return out


def count_work(training: Training) -> dict[str, int]:
    """Run a step of the baseline; count its multiplications and additions (`flop`) and the `bytes` that it moves.

    Recomputed activations of other tiers do not count as work. A tier that fuses operations or halves its number format
    moves fewer bytes than are counted, so its share of the copy peak may exceed 1.
    """
    [batch] = training.feed(range(1))
    with FlopCounterMode(display=False) as counter, Traffic() as traffic:
        training.take(batch, training.workload.samples)
    return {"flop": counter.get_total_flops(), "bytes": traffic.total}


def measure_roofline(config: Resolved, data: Path | None, threads: int, number_formats: Iterable[str]) -> None:
    """Answer with the `work` of a step and the `roof` of its device: rates of copies and products, and their quartiles."""
    baseline = next(iter(config.engines.values())).model_copy(update={"parallel": "single"})
    with join(baseline, threads) as world:
        work = count_work(build(load_workload(config, data), baseline, world, seed=0))
        answer({"work": work, "roof": measure_rates(world.device, number_formats)})


def measure_rates(device: torch.device, number_formats: Iterable[str]) -> dict[str, Any]:
    """Measure a device's rates of copying and of matrix products: medians and quartiles of several blocks."""
    # The copied array is far larger than any cache; the multiplied matrices are square, of this order.
    copy_mib, order = (2048, 8192) if device.type == "cuda" else (512, 2048)
    source = torch.ones(copy_mib * 2**18, device=device)
    target = torch.empty_like(source)
    products = {}
    for name in number_formats:
        a, b = torch.randn(2, order, order, device=device).to(DTYPES[name])
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        products[name] = _rate(functools.partial(torch.matmul, a, b), 2 * order**3 / 1e12, device)
    copy = _rate(lambda: target.copy_(source), 2 * source.nbytes / 1e9, device)
    return {"copy_gbytes_per_s": copy, "matmul_tflops": products}


def _rate(call: Callable[[], Tensor], work: float, device: torch.device) -> dict[str, float]:
    def seconds(calls: int) -> float:
        synchronize(device)
        began = time.perf_counter()
        for _ in range(calls):
            call()
        synchronize(device)
        return time.perf_counter() - began

    seconds(1)
    calls = max(1, round(BLOCK_S / seconds(1)))
    rates = [work * calls / seconds(calls) for _ in range(BLOCKS)]
    first, median, third = map(float, np.percentile(rates, [25, 50, 75]))
    return {"median": median, "first_quartile": first, "third_quartile": third}


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished all queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
