"""What all layouts share: opening and beginning files, people and their splits, text."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import ArrayLike, NDArray

from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.data.store.foreign import NUMBERS, allowance, array_fault, name_fault, text_attribute, understood

SPLITS = ("train", "val", "test")
# Where a sample's labels come from. annotated: the data set's own annotation; supplementary: FAZE's; estimated: head
# pose by PnP from detected landmarks, intrinsics estimated per device; stored: the file that was read had them.
ORIGINS = ("annotated", "supplementary", "estimated", "stored")
# Large arrays begin at a page of the file: a strip of 64 x 256 px then lies on 12 pages instead of 13.
_PAGE, _LARGE = 4096, 1 << 20
_PIECE = 4096  # texts that are read at once
_SMALL = 1 << 17  # bytes for all that HDF5 itself writes about the next array


class PersonGroups:
    """The people of a file, each in an HDF5 group, and their splits."""

    def __init__(self, path: Path | str, default_split: str) -> None:
        self._path, self._default_split = Path(path), default_split
        self._splits: dict[str, str] = {}

    def _read_split(self, person: str, group: h5py.Group) -> None:
        self._splits[person] = text_attribute(group.attrs, "split", self._default_split)
        if self._splits[person] not in SPLITS:
            raise UserError(f"{self._path}: split {self._splits[person]!r} of person {person} is not in {SPLITS}")

    def persons(self, split: str | None = None) -> list[str]:
        """List the people in the file, sorted; of one split, or all."""
        return [p for p, s in sorted(self._splits.items()) if split in (None, s)]

    def split(self, person: str) -> str:
        """Return the split of a person: train, val or test."""
        if person not in self._splits:
            raise UserError(f"{self._path}: holds no person {person}")
        return self._splits[person]


@contextlib.contextmanager
def whole_hdf5(path: Path | str, size: int = 0) -> Iterator[h5py.File]:
    """Give a file to fill; it appears when the block ends well. Where `size` is not known, fill it by `new_array`.

    Args:
        path: of the file.
        size: bytes that are taken from the disk beforehand, at least as many as will be written.

    Raises:
        OSError: the disk is full.
    """
    pages = {"alignment_threshold": _LARGE, "alignment_interval": _PAGE}
    with whole_file(path) as temporary:
        with h5py.File(temporary, "w", **pages) as file:
            _take(temporary, 0, max(size, _SMALL))  # HDF5 crashes when it closes a file that it cannot write
            yield file
            file.flush()
            written = file.id.get_filesize()
        os.truncate(temporary, written)


@contextlib.contextmanager
def whole_store(path: Path | str, schema: str, dataset: str, size: int = 0) -> Iterator[h5py.File]:
    """Give a file of people to fill, as `whole_hdf5` does; a UserError if it holds nobody in the end.

    Args:
        path: of the file.
        schema: which layout.
        dataset: its name.
        size: bytes that are taken from the disk beforehand.
    """
    with whole_hdf5(path, size) as file:
        file.attrs["schema"], file.attrs["dataset"] = schema, dataset
        yield file
        if not len(file):
            raise UserError(f"{path}: not written, since there is nothing to write for any person")


def _take(path: Path, first: int, count: int) -> None:
    """Reserve bytes of the disk for a file, so that writing them cannot fail."""
    with path.open("r+b") as file:
        try:
            os.posix_fallocate(file.fileno(), first, count)
        except OSError as error:
            # Where a file system cannot reserve, bytes are taken as they are written.
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise OSError(error.errno, os.strerror(error.errno), str(path.parent)) from None


def new_array(group: h5py.Group, name: str, array: ArrayLike) -> None:
    """Write an array, and reserve its bytes on the disk first."""
    array = np.asarray(array)
    _take(Path(group.file.filename), group.file.id.get_filesize(), array.nbytes + _PAGE + _SMALL)
    group.create_dataset(name, data=array)


def new_group(file: h5py.File, person: str, split: str) -> h5py.Group:
    """Begin the group of a person."""
    assert split in SPLITS, split
    group = file.create_group(person)
    group.attrs["split"] = split
    return group


def open_file(path: Path | str) -> h5py.File:
    """Open a file for reading; a UserError says what is wrong with it."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # reading a pipe would not end
            raise UserError(f"{path}: not a file")
        return h5py.File(path, "r")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as error:
        raise UserError(f"{path}: not a readable HDF5 file, write or fetch it again ({error})") from None


def group_fault(file: h5py.File, person: str) -> str:
    """Say why what stands in a file is not a person's group, "" where it is one."""
    if fault := name_fault(person):
        return fault
    if not isinstance(file.get(person, getlink=True), h5py.HardLink):
        return "a link to something else"
    return "" if isinstance(file[person], h5py.Group) else "no group of arrays"


def group_of(
    file: h5py.File, path: Path | str, person: str, needed: Iterable[str] = (), kinds: str = NUMBERS
) -> h5py.Group:
    """Return the group of a person; a UserError names the person, or the needed array, that is not there or not read.

    Args:
        file: open.
        path: of the file.
        person: whose.
        needed: arrays.
        kinds: of numpy's types that these may have.
    """
    if not person or "/" in person or person not in file:
        raise UserError(f"{path}: holds no person {person}")
    if fault := group_fault(file, person):
        raise UserError(f"{path}: person {person!a:.100} is {fault}")
    for name in needed:
        if fault := array_fault(file[person], name, kinds):
            raise UserError(f"{path}: person {person}: {fault}")
    return file[person]


def check_schema(file: h5py.File, path: Path, schema: str, version: int = 1) -> str:
    """Return the name of the data set; files without attributes are the released code's.

    Raises:
        UserError: the file is of another schema, or of a later version than the one that is known.
    """
    with understood(path, "what it is"):
        found = text_attribute(file.attrs, "schema", schema)
        written = int(file.attrs.get("schema_version", 1))
        dataset = text_attribute(file.attrs, "dataset", path.stem)
    if found != schema:
        raise UserError(f"{path}: holds {found}, not {schema}")
    if fault := name_fault(dataset):
        raise UserError(f"{path}: of its data set, {fault}")
    if written > version:
        raise UserError(
            f"{path}: was written by a later faze (schema_version {written} of {schema}; this one knows {version}): "
            "update faze, or write the file again with this one"
        )
    return dataset


def encoded(names: Iterable[str]) -> NDArray[np.bytes_]:
    """Encode text as the bytes that HDF5 keeps; a file name that is no UTF-8 keeps its bytes."""
    return np.array([name.encode("utf-8", "surrogateescape") for name in names])


def decoded(names: h5py.Dataset) -> list[str]:
    """Decode the bytes of an HDF5 data set; a ValueError where they are no text, or more than the file can hold."""
    found, left = [], allowance(names)
    if names.dtype.kind == "O" and h5py.check_string_dtype(names.dtype) is None:
        raise ValueError(f"{names.dtype} is no text")
    for first in range(0, len(names), _PIECE):
        for name in names[first : first + _PIECE]:
            left -= len(name)  # of many strings each may be the same large one
            if left < 0:
                raise ValueError("its texts are larger than the file")
            found.append(name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else str(name))
    return found
