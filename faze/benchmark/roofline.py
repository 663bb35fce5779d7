"""The work of a step, and the roofline of its device: the rates of a copy and of a matrix product.

It is measured after the rounds, in its own process. Between them, it made tiers that return memory to the system up to
1.5 times as slow, probably because its arrays took the pages that a virtual machine had at hand.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.benchmark import Timer
from torch.utils.flop_counter import FlopCounterMode

from faze.benchmark.tier_process import answer
from faze.config.stage_config import Resolved
from faze.engine.parallel import join
from faze.training.train import build, load_workload

DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
WRITE_ONLY = ("aten::copy_", "aten::zero_", "aten::fill_")  # do not read the tensor that they write to
ALLOCATIONS = ("aten::empty", "aten::new_empty")


class Traffic(TorchDispatchMode):
    """The sum of the bytes of each operation's inputs and outputs: an estimate, since it ignores caches."""

    total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> object:
        """Run an operation and count its bytes; views move none."""
        out, name = func(*args, **(kwargs or {})), func._schema.name
        if func.namespace == "aten" and not func.is_view and not name.startswith(ALLOCATIONS):
            read = args[1:] if name in WRITE_ONLY or name.startswith("aten::new_") else args
            tensors = [leaf for leaf in tree_leaves((read, kwargs, out)) if isinstance(leaf, Tensor)]
            self.total += sum(tensor.nbytes for tensor in tensors)
        return out


def measure_roofline(config: Resolved, data: Path | None, threads: int, number_formats: Iterable[str]) -> None:
    """Answer with the `work` of the baseline's step, and the `roof` of its device.

    A tier that fuses operations or halves its number format moves fewer bytes than are counted, so its share of the
    copy peak may exceed 1. Recomputed activations do not count as work.
    """
    baseline = next(iter(config.engines.values())).model_copy(update={"parallel": "single"})
    with join(baseline, threads) as world:
        training = build(load_workload(config, data), baseline, world, seed=0)
        [batch] = training.feed(range(1))
        with FlopCounterMode(display=False) as counter, Traffic() as traffic:
            training.take(batch, training.workload.samples)
        work = {"flop": counter.get_total_flops(), "bytes": traffic.total}
        answer({"work": work, "roof": measure_rates(world.device, number_formats)})


def measure_rates(device: torch.device, number_formats: Iterable[str]) -> dict[str, Any]:
    """Measure a copy of an array far larger than any cache, and products of square matrices."""
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
