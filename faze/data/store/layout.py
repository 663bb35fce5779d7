"""Functions shared by all HDF5 layouts, for files, people and their splits, text attributes, and checksums.

HDF5 supports more than a store needs: links into other files, arrays assembled from other files, arrays of any type.
All of these are refused, because a hostile file could use them to make faze read any file on this machine.
"""

import contextlib
import errno
import math
import os
import stat
import unicodedata
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import ArrayLike, NDArray

from faze.base.errors import DamagedFile, UserError
from faze.base.files import UNSUPPORTED, whole_file
from faze.base.untrusted import untrusted

SPLITS = ("train", "val", "test")
# Sources of a sample's labels. annotated: the data set's own annotation; supplementary: FAZE's; estimated: head pose by
# PnP from detected landmarks, intrinsics estimated per device; assumed_camera: intrinsics from a field of view in a
# manifest, whatever the source of the head pose; stored: already in the HDF5 file that was given, the default.
LABEL_SOURCES = ("annotated", "supplementary", "estimated", "assumed_camera", "stored")
# Sources of the pixels of a file. A store that does not state its source is of unknown origin; we cannot license it.
RENDERED, UNKNOWN_SOURCE = "rendered by faze", "unknown"
DAMAGED = "is corrupt (checksum mismatch): delete the file and run the same command again, or download it again"
NUMBERS = "iuf"  # kinds of numpy's types
LONGEST_NAME = 64  # bytes: it becomes part of file names, some of which write each byte as three
_PAGE, _LARGE = 4096, 1 << 20  # large arrays begin at a page: a strip of 64 x 256 px then occupies 12 pages, not 13
_METADATA_BYTES = 1 << 17  # for all that HDF5 itself writes about the next array


class PersonGroups:
    """The people in a file, each stored as an HDF5 group, and their splits."""

    def __init__(self, path: Path | str, default_split: str) -> None:
        self._path, self._default_split = Path(path), default_split
        self._splits: dict[str, str] = {}

    def _read_split(self, person: str, group: h5py.Group) -> None:
        self._splits[person] = text_attribute(group.attrs, "split", self._default_split)
        if self._splits[person] not in SPLITS:
            raise UserError(f"{self._path}: split {self._splits[person]!r} of person {person} is not in {SPLITS}")

    def persons(self, split: str | None = None) -> list[str]:
        """List the people in one split, or in all splits, in sorted order."""
        return [p for p, s in sorted(self._splits.items()) if split in (None, s)]

    def split(self, person: str) -> str:
        """Return a person's split: train, val or test."""
        if person not in self._splits:
            raise UserError(f"{self._path}: contains no person {person}")
        return self._splits[person]


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
    # This layout of 2008 has a checksum of everything that HDF5 itself writes. When a file of the older layout is
    # damaged, HDF5 may crash or read wrong data without an error.
    how = {"alignment_threshold": _LARGE, "alignment_interval": _PAGE, "libver": ("v108", "v108")}
    with whole_file(path) as temporary:
        with h5py.File(temporary, "w", locking=False, **how) as file:
            # HDF5 crashes when it closes a file that it cannot write.
            _reserve(temporary, 0, max(size, _METADATA_BYTES))
            yield file
            file.flush()
            written = file.id.get_filesize()
        os.truncate(temporary, written)


@contextlib.contextmanager
def whole_store(path: Path | str, schema: str, size: int = 0, **texts: str) -> Iterator[h5py.File]:
    """Yield a new file to fill with people, as `whole_hdf5` does.

    Args:
        path: Path of the file.
        schema: Name of the layout.
        size: Bytes to reserve on the disk in advance.
        texts: Text attributes of the file.

    Raises:
        UserError: No person was written.
    """
    with whole_hdf5(path, size) as file:
        put_text(file, schema=schema, **texts)
        yield file
        if not len(file):
            raise UserError(f"{path}: not written, since no person has any data")


def _reserve(path: Path, first: int, count: int) -> None:
    """Reserve disk space for a file, so that writing it cannot fail."""
    with path.open("r+b") as file:
        try:
            os.posix_fallocate(file.fileno(), first, count)
        except OSError as error:
            # Some file systems cannot reserve; they allocate bytes when these are written.
            if error.errno not in UNSUPPORTED:
                raise OSError(error.errno, os.strerror(error.errno), str(path.parent)) from None


def new_array(group: h5py.Group, name: str, array: ArrayLike) -> None:
    """Write an array after reserving disk space for it."""
    array = np.asarray(array)
    _reserve(Path(group.file.filename), group.file.id.get_filesize(), array.nbytes + _PAGE + _METADATA_BYTES)
    group.create_dataset(name, data=array)


def new_group(file: h5py.File, person: str, split: str) -> h5py.Group:
    """Create a person's group."""
    assert split in SPLITS, split
    group = file.create_group(person)
    put_text(group, split=split)
    return group


def checksum_of(texts: Iterable[object], arrays: Iterable[tuple[str, ArrayLike]]) -> str:
    """Compute the CRC-32 of texts followed by arrays (names, types, shapes and values), formatted as an attribute."""
    checksum = zlib.crc32(repr([str(text) for text in texts]).encode())
    for name, array in arrays:
        array = np.ascontiguousarray(array)
        checksum = zlib.crc32(f"{name} {array.dtype.str} {array.shape}".encode(), checksum)
        checksum = zlib.crc32(array.tobytes(), checksum)
    return as_text(checksum)


def as_text(checksum: int) -> str:
    """Format a CRC-32 as an attribute."""
    return f"crc32:{checksum:08x}"


def check_sum(holder: h5py.File | h5py.Group, found: str, path: Path | str, what: str) -> None:
    """Refuse content whose checksum differs from the stored one; files that faze did not write have no checksum.

    Raises:
        DamagedFile: The message names the file and the damaged part.
    """
    if text_attribute(holder.attrs, "checksum", found) != found:
        raise DamagedFile(f"{path}: {what} {DAMAGED}")


def open_file(path: Path | str) -> h5py.File:
    """Open a file for reading.

    Raises:
        DamagedFile: The file is missing, not a regular file, not HDF5, or open for writing.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # reading a pipe would not end
            raise DamagedFile(f"{path}: not a file")
        return _opened(path)
    except FileNotFoundError:
        raise DamagedFile(f"{path}: no such file") from None
    except OSError as error:
        raise DamagedFile(f"{path}: {_refusal(error, path)}") from None


def _opened(path: Path | str) -> h5py.File:
    try:
        return h5py.File(path, "r")
    except OSError as error:
        if "unable to lock file" not in str(error) or error.errno == errno.EAGAIN:
            raise
        # Some network file systems have no locks. Ours is `output_lock`, and a finished file never changes.
        return h5py.File(path, "r", locking=False)


def _refusal(error: OSError, path: Path | str) -> str:
    """Explain why HDF5 does not open a file, and what to do; only a corrupt file is to be replaced."""
    if "unable to lock file" in str(error):
        return "is open for writing in another process, such as a notebook: close it there and run the command again"
    if "already open for" in str(error):
        return (
            "is marked as open for writing. Close it in the program that writes it. If that program crashed, recreate "
            f"the file, or run `h5clear --status {path}` if it is complete"
        )
    if error.errno:
        return f"cannot be opened ({os.strerror(error.errno)})"
    return f"not a readable HDF5 file ({error}); recreate it or download it again"


def name_fault(name: str) -> str:
    """Explain why the name of a person or data set cannot be used in file names; return "" if it can.

    Two names that look the same are the same name: neither spaces around it nor other forms of Unicode are accepted.
    """
    if not name or name.startswith(".") or "/" in name or not name.isprintable():
        return f"the name {name!a:.100} is empty or hidden, or contains / or unprintable characters"
    if name != unicodedata.normalize("NFC", name.strip()):
        return f"the name {name!a:.100} has leading or trailing spaces, or is not NFC-normalised: rename it"
    return f"the name {name:.20}... is too long" if len(name.encode()) > LONGEST_NAME else ""


def group_fault(file: h5py.File, person: str) -> str:
    """Explain why an object in a file is not a person's group; return "" if it is."""
    if fault := name_fault(person):
        return fault
    if not isinstance(file.get(person, getlink=True), h5py.HardLink):
        return "a link to something else"
    return "" if isinstance(file[person], h5py.Group) else "not a group of arrays"


def array_fault(group: h5py.Group, name: str, kinds: str = NUMBERS) -> str:
    """Explain why an array in a person's group cannot be read; return "" if it can.

    Args:
        group: The person's group.
        name: Name of the array.
        kinds: NumPy dtype kinds that are accepted.
    """
    link = group.get(name, getlink=True)
    if not isinstance(link, h5py.HardLink):
        return f"no {name}" if link is None else f"{name} is a link to something else"
    array = group[name]
    if not isinstance(array, h5py.Dataset) or array.shape is None:
        return f"{name} is not an array"
    if array.size and array.dtype.kind not in kinds:
        return f"{name} is of the type {array.dtype}"
    layout = array.id.get_create_plist()
    if layout.get_external_count() or layout.get_layout() == h5py.h5d.VIRTUAL:
        return f"{name} is stored in another file"
    for position in range(layout.get_nfilters()):
        if not h5py.h5z.filter_avail(code := layout.get_filter(position)[0]):
            return f"{name} needs HDF5 filter {code}, which is not installed: save it without compression"
    if array.size and not array.id.get_storage_size():
        return f"{name} was never written: recreate the file"
    if array.chunks is not None:
        expected = math.prod(-(-side // chunk) for side, chunk in zip(array.shape, array.chunks, strict=True))
        if (missing := expected - array.id.get_num_chunks()) > 0:  # HDF5 would return zeros
            return f"{missing} of the {expected} chunks of {name} were never written: recreate the file"
    return ""


def group_of(
    file: h5py.File, path: Path | str, person: str, needed: Iterable[str] = (), kinds: str = NUMBERS
) -> h5py.Group:
    """Return a person's group.

    Args:
        file: Open file.
        path: Path of the file.
        person: Name of the person.
        needed: Names of required arrays.
        kinds: NumPy dtype kinds that these may have.

    Raises:
        UserError: The person or a required array is missing or cannot be read.
    """
    if not person or "/" in person or person not in file:
        raise UserError(f"{path}: contains no person {person}")
    if fault := group_fault(file, person):
        raise UserError(f"{path}: person {person!a:.100}: {fault}")
    for name in needed:
        if fault := array_fault(file[person], name, kinds):
            raise UserError(f"{path}: person {person}: {fault}")
    return file[person]


def check_schema(file: h5py.File, path: Path, schema: str, version: int = 1) -> str:
    """Check the schema and return the name of the data set; files from the released code have no attributes.

    Raises:
        UserError: The file has another schema, or a later version than `version`.
    """
    with untrusted(path, "its description"):
        found = text_attribute(file.attrs, "schema", schema)
        written = int(file.attrs.get("schema_version", 1))
        dataset = text_attribute(file.attrs, "dataset", path.stem)
    if found != schema:
        raise UserError(f"{path}: contains {found}, not {schema}")
    if fault := name_fault(dataset):
        raise UserError(f"{path}: invalid data set: {fault}")
    if written > version:
        raise UserError(
            f"{path}: was written by a newer version of faze ({schema} schema_version {written}; this version "
            f"supports {version}): update faze, or recreate the file with this version"
        )
    return dataset


def put_text(holder: h5py.File | h5py.Group, **texts: str) -> None:
    """Write attributes as fixed-length bytes, since HDF5 has no checksum for the heap of variable-length ones."""
    for name, text in texts.items():
        data = text.encode("utf-8", "surrogateescape")
        holder.attrs[name] = np.array(data, f"S{max(len(data), 1)}")


def text_attribute(attributes: h5py.AttributeManager, name: str, default: str) -> str:
    """Read an attribute as text, replacing characters that could control a terminal."""
    value = attributes.get(name, default)
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return "".join(letter if letter.isprintable() else "?" for letter in text[:1000])


def encoded(names: Iterable[str]) -> NDArray[np.bytes_]:
    """Encode text as bytes for HDF5; a file name that is not UTF-8 keeps its bytes."""
    return np.array([name.encode("utf-8", "surrogateescape") for name in names], np.bytes_)


def decoded(names: Iterable[object]) -> list[str]:
    """Decode the texts in an HDF5 array or attribute.

    Raises:
        ValueError: Some of them are not text.
    """
    found = [name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else name for name in names]
    if any(not isinstance(name, str) for name in found):
        raise ValueError("some of its values are not text")
    return found
