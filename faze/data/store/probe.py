"""A stranger's HDF5 file is read by a process of its own first: at some the HDF5 library never ends, or ends with it.

What that process finds wrong, whoever reads the file afterwards says in a sentence; here only its end counts. Pixels
are left to them, but for one strip of each person.
"""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Literal

from faze.base.errors import UserError

Layout = Literal["strips", "codes", "supplementary"]
PROCESSOR_S = 120  # of that process: labels of millions of strips are read in seconds


def probe(path: Path, layout: Layout) -> None:
    """Refuse a file at which the HDF5 library hangs or dies; whatever else is wrong with it is not said here.

    Raises:
        UserError: it does.
    """
    command = [sys.executable, "-m", "faze.data.store.probe_process", layout, str(path), str(PROCESSOR_S)]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if ended.returncode < 0:
        name = signal.Signals(-ended.returncode).name
        how = "finds no end of it" if name in ("SIGXCPU", "SIGKILL") else f"ends with it ({name})"
        raise UserError(f"{path}: the HDF5 library {how}: the file is damaged, or made to do that; fetch it again")
