"""Operations that become one kernel: torch.compile, and InstanceNorm with LeakyReLU."""

import os
import shutil
import sysconfig
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from torch.utils._triton import has_triton

from faze.base.cache_folder import cache_folder
from faze.engine.switches import Switch


def set_compile(module: nn.Module, mode: str, *, device: torch.device, replicas: int, recompute: bool) -> Switch:
    """Compile a module in place, at its first call; the names of its parameters stay.

    Only calls of the module itself run compiled, not those of its parts: a model inside an objective stays free to take
    batches of any size for validation. A graph break is an error, since it would silently cost what this should gain.

    Args:
        module: what a step calls.
        mode: of torch.compile; eager does not compile.
        device: on which it runs.
        replicas: of the module in this process, as of `faze.engine.parallel.Wrap`.
        recompute: its layers are the recompute ones.
    """
    if mode == "eager":
        return Switch("compile", mode, mode)
    _keep_kernels()
    if reason := _no_whole_graph(replicas, recompute) or _no_compiler(device):
        return Switch("compile", mode, "eager", reason)
    module.compile(mode=mode, fullgraph=True, dynamic=False)
    return Switch("compile", mode, f"torch.compile, inductor, {mode}")


def set_fused_norm(module: nn.Module, wanted: bool, device: torch.device) -> Switch:
    """Let every part with the attribute `fused_norm` normalise and activate in one operation.

    A part that takes its recompute way (`faze.engine.memory.set_recompute`, called before) normalises there by itself.
    """
    parts = [part for part in module.modules() if hasattr(part, "fused_norm")]
    free = [part for part in parts if not getattr(part, "recompute", False)]
    triton = device.type == "cuda" and has_triton()
    reason = "" if parts else "no part of the model normalises and activates"
    reason = reason or ("" if free else "recompute normalises by itself, and every part is recompute")
    reason = reason or (_no_compiler(device) if wanted and triton else "")
    switch = Switch.of("fused_norm", wanted, reason)
    for part in parts:
        part.fused_norm = wanted and switch.active
    if not wanted or reason:
        return switch
    where = "" if len(free) == len(parts) else f", in the {len(free)} of {len(parts)} parts that are not recompute"
    return replace(switch, acted=("Triton kernels" if triton else "torch operations") + where)


def _keep_kernels() -> None:
    """Give inductor a cache that outlives the process and the machine's /tmp; a set TORCHINDUCTOR_CACHE_DIR stays."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.fspath(cache_folder("inductor")))
    if not shutil.which("openssl"):  # the command by which torch names the headers that it compiles beforehand
        from torch._inductor import config

        config.cpp_cache_precompile_headers = False


def _no_whole_graph(replicas: int, recompute: bool) -> str:
    if recompute:
        return "the loops of recompute would be unrolled: minutes of compiling"
    return "DataParallel's replicas would all call the compiled original" if replicas > 1 else ""


def _no_compiler(device: torch.device) -> str:
    if device.type == "cuda" and not has_triton():
        return "no Triton, or a GPU older than compute capability 7.0"
    if not _finds_compiler(device):
        return "no C++ compiler: install g++, or name one in $CXX (for a GPU's launchers in $CC)"
    # A GPU's kernels are launched by compiled extensions too.
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "no header files of Python: install a package such as python3-dev"
    return ""


def _finds_compiler(device: torch.device) -> bool:
    if device.type == "cuda":  # Triton's search
        return any(map(shutil.which, [os.environ["CC"]] if "CC" in os.environ else ["clang", "gcc"]))
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return False
    return True
