"""kernel.c, compiled for this machine and these sizes where there is a C compiler, and kept for the next process.

    faze adapt ...          # some 1 s of compiling, once
    CC=clang faze adapt ... # another compiler than cc

The library lies in $XDG_CACHE_HOME/faze/fewshot (~/.cache): under a name that hashes source, sizes, flags, compiler
and processor, so that machines which share a home share no library that one of them cannot run.
"""

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
from pathlib import Path

import torch
from torch import Tensor

from faze.base.cache_folder import cache_folder
from faze.base.files import whole_file
from faze.base.output_lock import sole_writer
from faze.fewshot.mlp import Activation, ModelSamples, Weights, map_weights

SOURCE = Path(__file__).with_name("kernel.c")
# Sums may be reordered, as vectors need; NaN and infinity stay what they are.
FLAGS = (
    *("-std=gnu11", "-O3", "-march=native", "-shared", "-fPIC"),
    *("-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fassociative-math"),
)
_OF_X86 = ("-mprefer-vector-width=512",)  # of use where the processor has such vectors, no hindrance where not


class NativeError(RuntimeError):
    """There is no compiled kernel; one sentence says why."""


class _Tensors(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in Weights._fields]


class _Samples(ctypes.Structure):
    _fields_ = [*((name, ctypes.c_void_p) for name in ModelSamples._fields), ("n", ctypes.c_int64)]


class NativeKernel:
    """What kernel.TorchKernel computes, by the compiled code: float32 on a CPU. Calls release Python's lock."""

    models_per_chunk = 32  # few enough to keep all threads busy, enough for a call to be worth its while

    def __init__(self, inputs: int, hidden: int, activation: Activation) -> None:
        """Compile, or load what was compiled before.

        Raises:
            NativeError: there is no compiler, or it fails.
        """
        self._sizes = (inputs, hidden)
        library = _library(inputs, hidden, activation)
        if isinstance(library, NativeError):
            raise library
        self._library = library

    def sgd_(self, weights: Weights, samples: ModelSamples, *, steps: int, rates: Weights) -> None:
        """As TorchKernel's."""
        assert len(rates.hidden_bias) == 1
        self._call("sgd", weights, samples, weights, rates, ctypes.c_int64(steps))

    def gradient(self, weights: Weights, samples: ModelSamples) -> tuple[Weights, Tensor]:
        """As TorchKernel's."""
        out, degrees = map_weights(torch.empty_like, weights), torch.empty(len(samples.row))
        self._call("gradient", weights, samples, weights, out, ctypes.c_void_p(degrees.data_ptr()))
        return out, degrees

    def hessian_product(self, weights: Weights, samples: ModelSamples, direction: Weights) -> Weights:
        """As TorchKernel's."""
        out = map_weights(torch.empty_like, weights)
        self._call("hessian_product", weights, samples, weights, direction, out)
        return out

    def mean_angle_deg(self, weights: Weights, samples: ModelSamples) -> Tensor:
        """As TorchKernel's."""
        degrees = torch.empty(len(samples.row), dtype=torch.float64)
        self._call("mean_angle", weights, samples, weights, ctypes.c_void_p(degrees.data_ptr()))
        return degrees

    def _call(self, function: str, of: Weights, samples: ModelSamples, *arguments: object) -> None:
        models, inputs, hidden = of.hidden_weight.shape
        assert (inputs, hidden) == self._sizes
        assert len(samples.row) == len(samples.count) == models
        assert samples.code.shape[2] == inputs
        assert samples.row.dtype == samples.count.dtype == torch.int64
        pointers = _Samples(*(_pointer(tensor) for tensor in samples), samples.code.shape[1])
        passed = [ctypes.byref(_Tensors(*map(_pointer, a))) if isinstance(a, Weights) else a for a in arguments]
        getattr(self._library, function)(ctypes.c_int64(models), ctypes.byref(pointers), *passed)


def _pointer(tensor: Tensor) -> int:
    assert tensor.is_contiguous()
    assert tensor.dtype in (torch.float32, torch.int64)
    return tensor.data_ptr()


@functools.cache
def _library(inputs: int, hidden: int, activation: Activation) -> ctypes.CDLL | NativeError:
    command = shlex.split(os.environ.get("CC") or "cc")  # may have options, or ccache before it
    compiler = shutil.which(command[0])
    if compiler is None:
        return NativeError(f"there is no C compiler: {command[0]} is not on the PATH")
    sizes = (f"-DF={inputs}", f"-DH={hidden}", f"-DRELU={int(activation == 'relu')}")
    flags = (*FLAGS, *(_OF_X86 if platform.machine() == "x86_64" else ()), *sizes)
    source = SOURCE.read_text(encoding="utf-8")
    identity = "\0".join([*flags, compiler, *command[1:], _processor(), platform.platform(), source])
    path = cache_folder("fewshot") / f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}.so"
    try:
        with sole_writer(path):
            if path.exists():
                with contextlib.suppress(OSError):  # a damaged one is made anew
                    return ctypes.CDLL(str(path))
            with whole_file(path) as temporary:
                arguments = [*command[1:], *flags, "-o", str(temporary), str(SOURCE), "-lm"]
                subprocess.run([compiler, *arguments], check=True, capture_output=True, text=True)
            return ctypes.CDLL(str(path))
    except subprocess.CalledProcessError as error:
        said = (error.stderr or "").strip().split("\n")[0]
        return NativeError(f"{compiler} fails on {SOURCE.name}: {said}")
    except OSError as error:
        return NativeError(f"{path} cannot be written or loaded: {error}")


def _processor() -> str:
    """Describe what -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
