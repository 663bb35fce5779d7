"""Free space on the disk: checked before the work starts, and one clear sentence when it runs out."""

import contextlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from faze.base.errors import UserError
from faze.base.files import FULL

_MARGIN = 1.01  # for names and labels besides the strips


def check_disk_space(folder: Path, needed: int, what: str) -> None:
    """Refuse a disk with less than half the space needed, and warn of one that may prove too small.

    How many of the frames will have a strip is not known yet.

    Args:
        folder: to be written into.
        needed: bytes of strips, if every frame has one.
        what: needs them, for the sentence.

    Raises:
        UserError: there is no space for half of it.
    """
    free = shutil.disk_usage(folder).free
    said = f"{folder}: {what} need {needed * _MARGIN / 2**30:.2f} GiB here, and {free / 2**30:.2f} GiB are free"
    if needed * _MARGIN / 2 > free:
        raise UserError(f"{said}: make room, or write to another disk")
    if needed * _MARGIN > free:
        print(f"{said}: enough only if many of them are rejected", file=sys.stderr)


@contextlib.contextmanager
def disk_may_fill(folder: Path) -> Iterator[None]:
    """Turn what is raised when a disk is full, by the system or by HDF5 within its own errors, into one sentence."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        full = getattr(error, "errno", None) in FULL or any(f"errno = {code}," in str(error) for code in FULL)
        if not full:
            raise
        raise UserError(
            f"{folder}: no space left on the disk: make room and give the same command again; what is finished is "
            "kept, and no half-written file stands under its name"
        ) from None
