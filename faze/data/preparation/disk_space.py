"""Check free disk space before the work starts, and explain a full disk in one sentence."""

import contextlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from faze.base.errors import UserError
from faze.base.files import FULL

_MARGIN = 1.01  # for names and labels besides the strips


def check_disk_space(folder: Path, needed: int, what: str) -> None:
    """Refuse a disk with less than half the space needed, and warn if it may be too small.

    The number of frames that will have a strip is not yet known.

    Args:
        folder: Folder to write into.
        needed: Bytes of strips, if every frame has one.
        what: Description of what needs them.

    Raises:
        UserError: There is no space for half of it.
    """
    free = shutil.disk_usage(folder).free
    message = f"{folder}: {what} need {needed * _MARGIN / 2**30:.2f} GiB here, and {free / 2**30:.2f} GiB are free"
    if needed * _MARGIN / 2 > free:
        raise UserError(f"{message}: free some space, or write to another disk")
    if needed * _MARGIN > free:
        print(f"{message}: enough only if many of them are rejected", file=sys.stderr)


@contextlib.contextmanager
def disk_may_fill(folder: Path) -> Iterator[None]:
    """Turn the error about a full disk, of the system or within one of HDF5's, into one sentence."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        full = getattr(error, "errno", None) in FULL or any(f"errno = {code}," in str(error) for code in FULL)
        if not full:
            raise
        raise UserError(
            f"{folder}: no space left on the disk: free some space and give the same command again; finished shards "
            "are kept, and no output is half-written"
        ) from None
