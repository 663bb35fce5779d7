"""What of an HDF5 file is read, whoever wrote it: arrays that lie in it, as large as it can hold, under names.

HDF5 can do more: links into other files, arrays put together of others, a petabyte declared and never written. A store
needs none of that, and who reads a stranger's file wants none.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import h5py

from faze.base.errors import DamagedFile, UserError

NUMBERS = "iuf"  # kinds of numpy's types
LONGEST_NAME = 64  # bytes: it becomes part of file names, some of which write each byte as three
# Bytes that an array may take in memory: what is small whatever the file says, and what packed pixels or labels unpack
# to at most. Deflate alone would allow a thousandfold.
_SMALL, _PACKED = 2**22, 200


@contextlib.contextmanager
def understood(path: Path | str, what: str) -> Iterator[None]:
    """Turn what HDF5 and numpy say to a damaged or hostile file into one sentence.

    Args:
        path: of the file.
        what: is read.

    Raises:
        UserError: instead of theirs. That memory does not suffice stays what it is, and what is the machine's fault.
    """
    try:
        yield
    except UserError:
        raise
    except (OSError, LookupError, RuntimeError, ValueError, TypeError, AttributeError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno:  # such as a network folder that is gone
            raise
        words = " ".join(str(error).split())[:200]
        raise DamagedFile(f"{path}: {what} cannot be read ({words}): write or fetch it again") from None


def name_fault(name: str) -> str:
    """Say why the name of a person or data set cannot be one, "" where it can: it becomes part of file names."""
    if not name or name.startswith(".") or "/" in name or not name.isprintable():
        return f"the name {name!a:.100} is empty, hidden, has a / or what cannot be printed"
    return f"the name {name:.20}... is too long" if len(name.encode()) > LONGEST_NAME else ""


def array_fault(group: h5py.Group, name: str, kinds: str = NUMBERS, rows: int = 0) -> str:
    """Say why an array of a group is not read, "" where it is.

    Args:
        group: of a person.
        name: of the array.
        kinds: of numpy's types that it may have.
        rows: that are read at once; 0: all.
    """
    link = group.get(name, getlink=True)
    if link is None:
        return f"no {name}"
    if not isinstance(link, h5py.HardLink):
        return f"{name} is a link to something else"
    array = group[name]
    if not isinstance(array, h5py.Dataset) or array.shape is None:
        return f"{name} is no array"
    if array.size and array.dtype.kind not in kinds:
        return f"{name} is of the type {array.dtype}"
    layout = array.id.get_create_plist()
    if layout.get_external_count() or layout.get_layout() == h5py.h5d.VIRTUAL:
        return f"{name} lies in another file"
    numbers = array.size // len(array) * min(rows, len(array)) if rows and array.size else array.size
    needs, most = array.dtype.itemsize * max(numbers, _size_of_chunk(array)), allowance(array)
    return f"{name} would take {needs / 2**30:.1f} GiB, of which the file holds a fraction" if needs > most else ""


def allowance(array: h5py.Dataset) -> int:
    """Count the bytes that an array may take in memory: chunks may share bytes of the file, so it bounds them too."""
    return _SMALL + _PACKED * min(array.id.get_storage_size(), array.file.id.get_filesize())


def text_attribute(attributes: h5py.AttributeManager, name: str, default: str) -> str:
    """Read an attribute as text, without what a terminal would take for a command."""
    value = attributes.get(name, default)
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return "".join(letter if letter.isprintable() else "?" for letter in text[:1000])


def _size_of_chunk(array: h5py.Dataset) -> int:
    size = 1
    for side in array.chunks or ():
        size *= side
    return size
