"""Functions for HDF5 files: whole files, arrays and text attributes."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import ArrayLike, NDArray

from faze.base.errors import DamagedFile, UserError
from faze.base.files import whole_file

NUMBERS = "iuf"  # kinds of numpy's types
_PAGE, _LARGE = 4096, 1 << 20  # large arrays begin at a page: a strip of 64 x 256 px then occupies 12 pages, not 13
_METADATA_BYTES = 1 << 17  # for all that HDF5 itself writes about the next array


@contextlib.contextmanager
def whole_hdf5(path: Path | str, size: int = 0) -> Iterator[h5py.File]:
    """Yield a new file to fill; it appears under its name once the block succeeds.

    Args:
        path: Path of the file.
        size: Bytes to reserve on the disk in advance, at least as many as will be written. If the size is unknown,
            write all arrays with `new_array`.

    Raises:
        OSError: The disk is full.
    """
    how = {"alignment_threshold": _LARGE, "alignment_interval": _PAGE, "libver": ("v108", "v108")}
    with whole_file(path) as temporary:
        with h5py.File(temporary, "w", locking=False, **how) as file:
            # HDF5 crashes when it closes a file that it cannot write.
            _reserve(temporary, 0, max(size, _METADATA_BYTES))
            yield file
            file.flush()
            written = file.id.get_filesize()
        os.truncate(temporary, written)


def _reserve(path: Path, first: int, count: int) -> None:
    """Reserve disk space for a file, so that writing it cannot fail."""
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), first, count)


def new_array(group: h5py.Group, name: str, array: ArrayLike) -> None:
    """Write an array after reserving disk space for it."""
    array = np.asarray(array)
    _reserve(Path(group.file.filename), group.file.id.get_filesize(), array.nbytes + _PAGE + _METADATA_BYTES)
    group.create_dataset(name, data=array)


def open_file(path: Path | str) -> h5py.File:
    """Open a file for reading.

    Raises:
        DamagedFile: The file is missing, or HDF5 cannot open it.
    """
    if not os.path.exists(path):
        raise DamagedFile(f"{path}: no such file")
    try:
        return h5py.File(path, "r", locking=False)  # faze has its own locks
    except OSError as error:
        raise DamagedFile(f"{path}: not a readable HDF5 file ({error}); recreate it or download it again") from None


def array_fault(group: h5py.Group, name: str, kinds: str = NUMBERS) -> str:
    """Explain why a person's group has no such array; return "" if it has.

    Args:
        group: The person's group.
        name: Name of the array.
        kinds: NumPy dtype kinds that are accepted.
    """
    if name not in group:
        return f"no {name}"
    array = group[name]
    if not isinstance(array, h5py.Dataset) or array.dtype.kind not in kinds:
        return f"{name} is not an array of the expected type"
    return ""


def group_of(file: h5py.File, path: Path | str, person: str, needed: Iterable[str], kinds: str = NUMBERS) -> h5py.Group:
    """Return a person's group.

    Args:
        file: Open file.
        path: Path of the file.
        person: Name of the person.
        needed: Names of required arrays.
        kinds: NumPy dtype kinds that these may have.

    Raises:
        UserError: The person or a required array is missing.
    """
    if not isinstance(file.get(person), h5py.Group):
        raise UserError(f"{path}: contains no person {person}")
    for name in needed:
        if fault := array_fault(file[person], name, kinds):
            raise UserError(f"{path}: person {person}: {fault}")
    return file[person]


def put_text(holder: h5py.File | h5py.Group, **texts: str) -> None:
    """Write attributes as bytes of a fixed length."""
    for name, text in texts.items():
        data = text.encode("utf-8", "surrogateescape")
        holder.attrs[name] = np.array(data, f"S{max(len(data), 1)}")


def text_attribute(attributes: h5py.AttributeManager, name: str, default: str) -> str:
    """Read an attribute as text."""
    value = attributes.get(name, default)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def encoded(names: Iterable[str]) -> NDArray[np.bytes_]:
    """Encode text as bytes for HDF5; a file name that is not UTF-8 keeps its bytes."""
    return np.array([name.encode("utf-8", "surrogateescape") for name in names], np.bytes_)


def decoded(names: Iterable[bytes]) -> list[str]:
    """Decode the texts in an HDF5 array or attribute."""
    return [name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else str(name) for name in names]
