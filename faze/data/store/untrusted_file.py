"""Read an untrusted HDF5 file in an isolated process before this process opens it.

On some damaged files the HDF5 library never returns, crashes, or needs more memory than the machine has.
"""

import contextlib
from pathlib import Path
from typing import Literal

from faze.base.errors import UserError
from faze.base.untrusted import read_isolated
from faze.data.store.strips import StripStore
from faze.data.store.supplementary import read_supplementary, supplementary_persons

Layout = Literal["strips", "supplementary"]


def check_untrusted(path: Path, layout: Layout) -> None:
    """Refuse a file on which the HDF5 library hangs or crashes.

    Only one strip per person is read. Other defects, and people who cannot be read, are left to the reader.

    Raises:
        UserError: The library hangs or crashes.
    """
    read_isolated(path, read_everything, layout)


def read_everything(path: str, layout: Layout) -> None:
    """Read a file in the same way as its reader; ignore anything that the reader will refuse."""
    with contextlib.suppress(UserError):
        if layout == "strips":
            with StripStore(path, tolerant=True) as strips:
                for person in strips.persons():
                    with contextlib.suppress(UserError):
                        _read_strips(strips, person)
        else:
            for person in supplementary_persons(path):
                with contextlib.suppress(UserError):
                    read_supplementary(path, person)


def _read_strips(strips: StripStore, person: str) -> None:
    strips.person_digest(person), strips.device(person), strips.file_names(person), strips.frame_index(person)
    strips.label_sources(person), strips.validity(person), strips.location(person)
    strips.pixels(person, slice(1))
