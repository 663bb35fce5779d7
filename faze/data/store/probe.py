"""A stranger's HDF5 file is read by a process of its own first: at some the HDF5 library never ends, or ends with it.

What that process finds wrong, whoever reads the file afterwards says in a sentence; here only its end counts. Pixels
are left to them, but for one strip of each person.
"""

import contextlib
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Literal

from faze.base.errors import UserError
from faze.data.store.codes import CodeStore
from faze.data.store.strips import StripStore
from faze.data.store.supplementary import read_supplementary, supplementary_persons

Layout = Literal["strips", "codes", "supplementary"]
PROCESSOR_S = 120  # of that process: labels of millions of strips are read in seconds


def probe(path: Path, layout: Layout) -> None:
    """Refuse a file at which the HDF5 library hangs or dies; whatever else is wrong with it is not said here.

    Raises:
        UserError: it does.
    """
    command = [sys.executable, "-m", "faze.data.store.probe", layout, str(path), str(PROCESSOR_S)]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if ended.returncode < 0:
        name = signal.Signals(-ended.returncode).name
        how = "finds no end of it" if name in ("SIGXCPU", "SIGKILL") else f"ends with it ({name})"
        raise UserError(f"{path}: the HDF5 library {how}: the file is damaged, or made to do that; fetch it again")


def _read(path: Path, layout: str) -> None:
    if layout == "strips":
        with StripStore(path, tolerant=True) as strips:
            for person in strips.persons():
                with contextlib.suppress(UserError):
                    _read_strips(strips, person)
    elif layout == "codes":
        codes = CodeStore(path)
        for person in codes.persons():
            with contextlib.suppress(UserError):
                codes[person]
    else:
        for person in supplementary_persons(path):
            with contextlib.suppress(UserError):
                read_supplementary(path, person)


def _read_strips(strips: StripStore, person: str) -> None:
    strips.person_digest(person), strips.device(person), strips.file_names(person), strips.frame_index(person)
    strips.origins(person), strips.validity(person), strips.location(person)
    strips.pixels(person, slice(1))


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[3]), int(sys.argv[3]) + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(UserError):
        _read(Path(sys.argv[2]), sys.argv[1])
