"""Execution of a step: cuDNN, memory format, fused normalisation, torch.compile, recomputation, checkpointing."""

import contextlib
import os
import shutil
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.utils.checkpoint import checkpoint

from faze.engine.parallel import World
from faze.engine.switches import Switch
from faze.native.allocator_retention import keeps_memory

INDUCTOR_CACHE = "TORCHINDUCTOR_CACHE_DIR"
LINKING_S = 10.0  # a library unchanged for this long is no longer being written; linking takes less than a second
# Options of torch.compile for each value of `compile`; torch takes a mode or options, not both.
COMPILE_OPTIONS: dict[str, dict[str, bool]] = {
    "default": {},
    "max-autotune-no-cudagraphs": {"max_autotune": True, "coordinate_descent_tuning": True},
}


def set_cudnn_benchmark(wanted: bool, device: torch.device) -> Switch:
    """Set whether cuDNN times its algorithms for each new input shape and keeps the fastest; this is process-wide."""
    torch.backends.cudnn.benchmark = wanted
    return Switch.of("cudnn_benchmark", wanted, "" if device.type == "cuda" else "cuDNN runs on CUDA devices only")


def set_channels_last(module: nn.Module, wanted: bool, *, recompute: bool) -> Switch:
    """Store convolution weights channels-last or contiguous, so that convolutions return tensors in that format."""
    switch = Switch.of("channels_last", wanted, "the recompute layers normalise plane by plane" if recompute else "")
    formats = {4: torch.channels_last, 5: torch.channels_last_3d} if wanted and switch.active else {}
    for weight in [*module.parameters(), *module.buffers()]:
        weight.data = weight.data.contiguous(memory_format=formats.get(weight.dim(), torch.contiguous_format))
    return switch


def set_sync_batchnorm(module: nn.Module, wanted: bool, world: World) -> Switch:
    """Make BatchNorm layers normalise over the batches of all processes, as a single process would (SyncBatchNorm)."""
    reason = "" if world.device.type == "cuda" else "SyncBatchNorm needs CUDA devices"
    reason = reason if world.size > 1 else "there is only one process"
    reason = reason if _batch_norms(module) else "the model has no BatchNorm layer"
    if wanted and not reason:
        nn.SyncBatchNorm.convert_sync_batchnorm(module)
    return Switch.of("sync_batchnorm", wanted, reason)


def set_fused_norm(module: nn.Module, wanted: bool, device: torch.device) -> Switch:
    """Make every part with a `fused_norm` attribute compute InstanceNorm and LeakyReLU in one operation."""
    parts = [part for part in module.modules() if hasattr(part, "fused_norm")]
    triton = device.type == "cuda" and _has_triton(device)
    reason = _missing_compiler(device) if wanted and triton else ""
    if all(getattr(part, "recompute", False) for part in parts):
        reason = "all parts are recompute layers, which do their own normalisation"
    switch = Switch.of("fused_norm", wanted, reason if parts else "no part of the model supports fused normalisation")
    acts = wanted and switch.active
    for part in parts:
        part.fused_norm = acts
    return replace(switch, acted="Triton kernels" if triton else "torch operations") if acts else switch


def set_compile(module: nn.Module, mode: str, *, device: torch.device, replicas: int, recompute: bool) -> Switch:
    """Compile a module in place on its first call; the names of its parameters do not change.

    Only calls to the module itself are compiled, not calls to its parts, so that the model inside an objective accepts
    validation batches of any size. A graph break is an error, since it would silently undo the gain from compiling.
    """
    if mode == "eager":
        return Switch("compile", mode, mode)
    # By default, inductor loads code from a folder in /tmp with a predictable name, which another user could create.
    # Importing inductor, as some optimisers do, sets the variable to that folder.
    default = os.path.join(tempfile.gettempdir(), "torchinductor_")
    if (os.environ.get(INDUCTOR_CACHE) or default).startswith(default):
        folder = Path.home() / ".cache/faze/inductor"
        os.environ[INDUCTOR_CACHE] = str(folder)
        _remove_torn_libraries(folder)
    reason = _missing_compiler(device)
    reason = "DataParallel's replicas would all call the compiled original" if replicas > 1 else reason
    reason = "the unrolled loops of recompute would take minutes to compile" if recompute else reason
    for variable in ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"):
        reason = f"{variable}=1 in the environment" if os.environ.get(variable) == "1" else reason
    if reason:
        return Switch("compile", mode, "eager", reason)
    # Torch runs openssl to compute the names of precompiled headers.
    headers = {} if shutil.which("openssl") else {"cpp_cache_precompile_headers": False}
    module.compile(options=COMPILE_OPTIONS[mode] | headers, fullgraph=True, dynamic=False)
    return Switch("compile", mode, f"torch.compile, inductor, {mode}")


def _remove_torn_libraries(folder: Path) -> None:
    """Remove libraries that a killed linker left incomplete, since inductor would try to load them every time."""
    for path in folder.rglob("*.so"):
        with contextlib.suppress(FileNotFoundError):
            while _is_torn(path):
                if time.time() - path.stat().st_mtime > LINKING_S:
                    path.unlink()
                time.sleep(0.1)


def _is_torn(path: Path) -> bool:
    """Return whether a 64-bit ELF file is shorter than its header implies; linkers write the section table last."""
    with path.open("rb") as file:
        header = file.read(64)
    table, size, count = (int.from_bytes(header[a:b], "little") for a, b in ((40, 48), (58, 60), (60, 62)))
    return header[:4] != b"\x7fELF" or len(header) < 64 or table + size * count > path.stat().st_size


def _has_triton(device: torch.device) -> bool:
    usable = torch.cuda.is_available() and torch.cuda.get_device_capability(device) >= (7, 0)
    return usable and find_spec("triton") is not None


def _missing_compiler(device: torch.device) -> str:
    """Return a requirement of torch.compile that this machine does not meet, or "" if it meets all of them."""
    cuda = device.type == "cuda"
    if cuda and not _has_triton(device):
        return "Triton is missing, or the GPU is older than compute capability 7.0"
    variable, compilers = ("CC", ["clang", "gcc"]) if cuda else ("CXX", ["g++"])  # like Triton and inductor
    chosen = os.environ.get(variable)
    if not any(map(shutil.which, [chosen] if chosen else compilers)):
        return "no C++ compiler: install g++, or set $CXX ($CC for the launchers of GPU kernels)"
    # The launchers of GPU kernels are compiled extensions too.
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "Python's header files are missing: install a package such as python3-dev"
    return ""


def set_recompute(module: nn.Module, wanted: bool) -> Switch:
    """Make every part with a `recompute` attribute use its low-memory implementation."""
    parts = [part for part in module.modules() if hasattr(part, "recompute")]
    for part in parts:
        part.recompute = wanted
    return Switch.of("recompute", wanted, "" if parts else "no part of the model has a low-memory implementation")


def set_checkpointing(module: nn.Module, wanted: bool, *, recompute: bool, graphs: bool) -> Switch:
    """Recompute activations during the backward pass in the parts that networks call through their `call` attribute."""
    parts = [part for part in module.modules() if hasattr(part, "call")]
    reason = "a captured graph cannot repeat the random draws of dropout" if graphs and dropouts(module) else ""
    reason = reason if parts else "no part of the model can be recomputed"
    reason = "the recompute layers already recompute inner activations" if recompute else reason
    if wanted and not reason:
        for part in parts:
            part.call = _checkpoint
    return Switch.of("checkpointing", wanted, reason)


def _checkpoint(part: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    # A graph can be captured only if no random state is saved.
    capturing = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": not capturing}
    # Torch's compiler rejects our context_fn, even if it does nothing.
    norms = _batch_norms(part) if isinstance(part, nn.Module) and not torch.compiler.is_compiling() else []
    if norms:
        options["context_fn"] = lambda: (contextlib.nullcontext(), _second_computation(norms))
    return checkpoint(part, *inputs, **options)


@contextlib.contextmanager
def _second_computation(norms: Sequence) -> Iterator:
    """Leave the running statistics unchanged, since the first computation has already updated them."""
    before = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        norm.momentum, norm.num_batches_tracked = 0.0, None
    try:
        yield
    finally:
        for norm, (momentum, tracked) in zip(norms, before, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, tracked


def _batch_norms(module: nn.Module) -> list[nn.modules.batchnorm._BatchNorm]:
    return [part for part in module.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]


def dropouts(module: nn.Module) -> list[tuple[nn.Module, str]]:
    """Return the attributes that contain dropout probabilities, each as a submodule and a name."""
    found = [(part, name) for part in module.modules() for name in vars(part) if isinstance(vars(part)[name], float)]
    return [(part, name) for part, name in found if "drop" in name or (name == "p" and isinstance(part, _DropoutNd))]


def allocator_switch(wanted: str) -> Switch:
    """Return the report on the switch `allocator`, which takes effect when a process starts (see faze.native)."""
    acted = "keep" if keeps_memory() else "default"
    reason = "this process was started without glibc's settings, or uses another allocator"
    if acted == "keep":
        reason = "this process retains memory, as every training run does regardless of its tier"
    return Switch("allocator", wanted, acted, "" if wanted == acted else reason)
