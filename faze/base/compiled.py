"""C code, compiled for this machine where there is a C compiler, and kept for the next process.

    faze adapt ...          # some 1 s of compiling, once
    CC=clang faze adapt ... # another compiler than cc

A library lies in a folder of $XDG_CACHE_HOME/faze (~/.cache/faze), under a name that hashes source, flags, compiler
and processor: machines that share a home share no library that one of them cannot run. Standard library only.
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
import sys
from pathlib import Path

from faze.base.cache_folder import cache_folder
from faze.base.files import whole_file
from faze.base.locks import output_lock

_FLAGS = ("-std=gnu11", "-O3", "-march=native", "-shared", "-fPIC", "-fno-math-errno", "-fno-trapping-math")
_OF_X86 = ("-mprefer-vector-width=512",)  # of use where the processor has such vectors, no hindrance where not


class NativeError(RuntimeError):
    """There is no compiled code; one sentence says why."""


@functools.cache
def library(source: Path, folder: str, flags: tuple[str, ...]) -> ctypes.CDLL | NativeError:
    """Compile a C file, or load what was compiled before; calls of its functions release Python's lock.

    Args:
        source: the file, which is complete in itself.
        folder: of faze's own in the user's cache.
        flags: of the compiler, beyond those that everything is compiled with.

    Returns:
        The library, or why there is none: there is no compiler, or it fails.
    """
    command = shlex.split(os.environ.get("CC") or "cc")  # may have options, or ccache before it
    compiler = shutil.which(command[0])
    if compiler is None:
        return NativeError(f"there is no C compiler: {command[0]} is not on the PATH")
    all_flags = (*_FLAGS, *(_OF_X86 if platform.machine() == "x86_64" else ()), *flags)
    text = source.read_text(encoding="utf-8")
    identity = "\0".join([*all_flags, compiler, *command[1:], processor(), platform.platform(), text])
    path = cache_folder(folder) / f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}.so"
    try:
        with output_lock(path):
            if path.exists():
                with contextlib.suppress(OSError):  # a damaged one is made anew
                    return ctypes.CDLL(str(path))
            with whole_file(path) as temporary:
                arguments = [*command[1:], *all_flags, "-o", str(temporary), str(source), "-lm"]
                subprocess.run([compiler, *arguments], check=True, capture_output=True, text=True)
            return ctypes.CDLL(str(path))
    except subprocess.CalledProcessError as error:
        said = (error.stderr or "").strip().split("\n")[0]
        return NativeError(f"{compiler} fails on {source.name}: {said}")
    except OSError as error:
        return NativeError(f"{path} cannot be written or loaded: {error}")


@functools.cache
def say_once(sentence: str) -> None:
    """Say on stderr, once in this process, that something goes without compiled code."""
    print(sentence, file=sys.stderr)


def processor() -> str:
    """Describe what -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
