"""C sources, compiled for this machine where there is a C compiler, and kept for the next process.

    CC=clang faze adapt ... # another compiler than cc

A library lies in $XDG_CACHE_HOME/faze/ROOM (~/.cache): under a name that hashes source, flags, compiler and processor,
so that machines which share a home share no library that one of them cannot run.
"""

import contextlib
import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from faze.base.cache_folder import cache_folder
from faze.base.files import whole_file
from faze.base.output_lock import sole_writer

# Sums may be reordered, as vectors need; NaN and infinity stay what they are.
FLAGS = (
    *("-std=gnu11", "-O3", "-march=native", "-shared", "-fPIC"),
    *("-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fassociative-math"),
)
_OF_X86 = ("-mprefer-vector-width=512",)  # of use where the processor has such vectors, no hindrance where not


class NativeError(RuntimeError):
    """There is no compiled code; one sentence says why."""


def compiled(source: Path, room: str, definitions: Sequence[str] = ()) -> ctypes.CDLL:
    """Compile a C source, or load what was compiled before.

    Args:
        source: the file.
        room: of faze, whose folder of the cache keeps the library.
        definitions: flags such as -DNAME=VALUE.

    Raises:
        NativeError: there is no compiler, or it fails.
    """
    command = shlex.split(os.environ.get("CC") or "cc")  # may have options, or ccache before it
    compiler = shutil.which(command[0])
    if compiler is None:
        raise NativeError(f"there is no C compiler: {command[0]} is not on the PATH")
    flags = (*FLAGS, *(_OF_X86 if platform.machine() == "x86_64" else ()), *definitions)
    text = source.read_text(encoding="utf-8")
    identity = "\0".join([*flags, compiler, *command[1:], _processor(), platform.platform(), text])
    path = cache_folder(room) / f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}.so"
    try:
        with sole_writer(path):
            if path.exists():
                with contextlib.suppress(OSError):  # a damaged one is made anew
                    return ctypes.CDLL(str(path))
            with whole_file(path) as temporary:
                arguments = [*command[1:], *flags, "-o", str(temporary), str(source), "-lm"]
                subprocess.run([compiler, *arguments], check=True, capture_output=True, text=True)
            return ctypes.CDLL(str(path))
    except subprocess.CalledProcessError as error:
        said = (error.stderr or "").strip().split("\n")[0]
        raise NativeError(f"{compiler} fails on {source.name}: {said}") from None
    except OSError as error:
        raise NativeError(f"{path} cannot be written or loaded: {error}") from None


def _processor() -> str:
    """Describe what -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
