"""The work of a step, the roofline of its device, and how close the step comes to it.

The roofline peaks are the rates of a copy and of a matrix product. The work is counted once, for the plain formulation
in float32, whatever the tier: recomputed activations do not count as work. A tier that fuses operations or halves its
number format moves fewer bytes than are counted, so its share of the copy peak may exceed 1.
"""

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from faze.config.parameters import Loss, Model, Train
from faze.model.dted import DTED
from faze.model.objective import Objective
from faze.model.parts import freeze
from faze.training.workload import Workload
from faze.training.workload_training import Losses, parameter_groups

DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
WRITE_ONLY = ("aten::copy_", "aten::zero_", "aten::fill_")  # do not read the tensor that they write to
ALLOCATIONS = ("aten::empty", "aten::new_empty")


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished all queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class PhaseClock:
    """A clock that adds up the seconds of each phase of a step; it synchronises, so the sum exceeds a normal step."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.seconds: dict[str, float] = defaultdict(float)

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Add the duration of the block to the phase."""
        synchronize(self._device)
        began = time.perf_counter()
        yield
        synchronize(self._device)
        self.seconds[phase] += time.perf_counter() - began


@dataclass(frozen=True)
class Work:
    """The work of one training step on the global batch."""

    flop: int  # multiplications and additions of convolutions and matrix products, forward and backward
    bytes: int  # if every operation reads its inputs from memory and writes its outputs to memory


class Traffic(TorchDispatchMode):
    """The sum of the bytes of each operation's inputs and outputs: an estimate, since it ignores caches."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[str, int] = defaultdict(int)  # operation name -> bytes

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: Mapping[str, Any] | None = None
    ) -> object:
        """Run an operation and count its bytes; views move no bytes."""
        out = func(*args, **(kwargs or {}))
        name = func._schema.name
        self.of[name] += 0
        if func.namespace == "aten" and not func.is_view and not name.startswith(ALLOCATIONS):
            read = args[1:] if name in WRITE_ONLY or name.startswith("aten::new_") else args
            self.of[name] += sum(x.numel() * x.element_size() for x in tensors_in((read, kwargs, out)))
        return out


def tensors_in(value: object) -> Iterator[Tensor]:
    """Yield all tensors in nested sequences and mappings."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple | Mapping):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from tensors_in(item)


def count_work(model: Model, loss: Loss, train: Train) -> Work:
    """Count the work of a step of the plain formulation, including the optimiser, from shapes alone."""
    pairs, height, width = train.global_batch, model.image_height_px, model.image_width_px
    with torch.device("meta"):
        objective = Objective(DTED(model), loss)
        freeze(objective.dted, train.frozen)
        trained = [parameter for parameter in objective.parameters() if parameter.requires_grad]
        optimizer = torch.optim.SGD(
            trained, lr=1.0, momentum=train.momentum, nesterov=train.momentum > 0, foreach=False
        )
        batch = {f"image_{member}": torch.empty(pairs, 3, height, width) for member in "ab"}
        batch |= {f"{angles}_{member}": torch.empty(pairs, 2) for angles in ("gaze", "head") for member in "ab"}
        batch["person"] = torch.empty(pairs, dtype=torch.int64)
        return count_step(objective, batch, [optimizer])


def count_workload(workload: Workload) -> Work:
    """Count the work of a step of a workload with SGD, in float32 on the CPU."""
    objective = Losses(workload, workload.build().train(), contextlib.nullcontext)
    groups = [group for of in parameter_groups(workload, objective.model).values() for group in of]
    optimizer = torch.optim.SGD(groups, momentum=workload.momentum, foreach=False)
    return count_step(objective, workload.batch(0, 0), [optimizer])


def count_step(objective: nn.Module, batch: Mapping[str, Tensor], optimizers: Sequence[torch.optim.Optimizer]) -> Work:
    """Run a step and count its work."""
    with FlopCounterMode(display=False) as counter, Traffic() as traffic:
        torch.stack(list(objective(batch).values())).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
    return Work(counter.get_total_flops(), sum(traffic.of.values()))


def number_format(switches: Iterable[Mapping[str, str]]) -> str:
    """Return the number format of a tier's matrix products (fp32, tf32, fp16 or bf16) from its switches' state."""
    active = {switch["switch"]: switch["wanted"] for switch in switches if not switch["reason"]}
    precision = active.get("precision", "fp32")
    return "tf32" if precision == "fp32" and active.get("tf32") == "true" else precision


class Roofline:
    """The peak rates of a device, timed in blocks."""

    seconds = 0.3  # of a block

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # The copied array is far larger than any cache; the multiplied matrices are square, of this order.
        self.copy_mib, self.order = (2048, 8192) if device.type == "cuda" else (512, 2048)
        self._arrays: dict[str, tuple[Tensor, Tensor]] = {}

    def copy(self) -> dict[str, float]:
        """Time a copy; return its rate in bytes read and written per second."""
        if "copy" not in self._arrays:
            source = torch.ones(self.copy_mib * 2**18, device=self._device)
            self._arrays["copy"] = source, torch.empty_like(source)
        source, target = self._arrays["copy"]
        return {"rate": 2 * source.nbytes * self._calls_per_second(lambda: target.copy_(source))}

    def matmul(self, number_format: str) -> dict[str, float]:
        """Time a product of square matrices in a number format; return its rate in FLOP per second."""
        if number_format not in self._arrays:
            a, b = torch.randn(2, self.order, self.order, device=self._device).to(DTYPES[number_format])
            self._arrays[number_format] = a, b
        a, b = self._arrays[number_format]
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = number_format == "tf32"
        try:
            return {"rate": 2 * self.order**3 * self._calls_per_second(lambda: a @ b)}
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before

    def _calls_per_second(self, call: Callable[[], Tensor]) -> float:
        """Time one call to estimate its duration, then as many calls as fill the block."""

        def seconds(times: int) -> float:
            clock = PhaseClock(self._device)
            with clock("calls"):
                for _ in range(times):
                    call()
            return clock.seconds["calls"]

        times = max(1, round(self.seconds / seconds(1)))
        return times / seconds(times)


def peak_shares(work: Work, step_ms: float, copy: float, matmul: float, devices: int) -> dict[str, float]:
    """Compute the rates of a step, and their shares of the roofline peaks.

    Args:
        work: work of the step.
        step_ms: duration of the step.
        copy: peak copy rate of one device, in bytes per second.
        matmul: peak matrix-product rate of one device, in FLOP per second.
        devices: number of devices that compute the step.
    """
    flop, traffic = work.flop / step_ms * 1e3, work.bytes / step_ms * 1e3
    return {
        "tflops": flop / 1e12,
        "share_of_matmul_roof": flop / (matmul * devices),
        "gbytes_per_s": traffic / 1e9,
        "share_of_copy_roof": traffic / (copy * devices),
    }
