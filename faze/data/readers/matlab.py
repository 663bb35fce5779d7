"""Numbers in files of MATLAB (level 5, also compressed), without scipy: a flipped bit of such a file ends its process.

A file is a header and elements; an element that is a matrix holds flags, dimensions, a name and numbers, elements all.
Only matrices of a few real numbers are read; what else there is, cells, texts and objects, is passed over.
"""

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.files import read_plain, reason_of

_HEADER = 128  # bytes
_MATRIX, _COMPRESSED = 14, 15  # types of elements
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_CLASSES = range(6, 16)  # of matrices of numbers; before them are cells, structs, objects, texts and sparse ones
_COMPLEX = 0x0800  # a flag
_MOST_NUMBERS, _MOST_BYTES = 1000, 2**16  # of a matrix that is read, and of it unpacked


class _Element(NamedTuple):
    kind: int
    content: bytes


def read_matlab(path: Path, names: Sequence[str]) -> list[NDArray[np.float64]]:
    """Read matrices of a file as float64.

    Raises:
        UserError: the file is not readable, or lacks a matrix of a few numbers; names it.
    """
    try:
        content = read_plain(path)
        order = {b"IM": "<", b"MI": ">"}.get(content[126:_HEADER])
        if order is None:
            raise ValueError("it is not of level 5 to 7")
        found = dict(_matrices(content[_HEADER:], order, names))
    except OSError as error:
        raise UserError(f"{path}: {reason_of(error)}") from None
    except (ValueError, zlib.error) as error:
        raise UserError(f"{path}: not a readable MATLAB file ({error})") from None
    for name in names:
        if name not in found:
            raise UserError(f"{path}: has no {name!r}")
        if found[name] is None:
            raise UserError(f"{path}: {name} is no matrix of a few real numbers")
    return [found[name] for name in names]


def _matrices(content: bytes, order: str, names: Sequence[str]) -> Iterator[tuple[str, NDArray[np.float64] | None]]:
    """Yield what has one of the names: numbers, or None where it is something else."""
    for element in _elements(content, order):
        if element.kind == _COMPRESSED:
            unpacked = zlib.decompressobj().decompress(element.content, _MOST_BYTES)
            element = next(_elements(unpacked, order, cut=True), element)
        if element.kind == _MATRIX:
            parts = _elements(element.content, order, cut=True)
            flags, sides, name = (next(parts, _Element(0, b"")).content for _ in range(3))
            known = name.decode("ascii", "replace")
            if known in names:
                yield known, _numbers(flags, sides, next(parts, None), order)


def _elements(content: bytes, order: str, cut: bool = False) -> Iterator[_Element]:
    """Yield the elements of a file or of a matrix; `cut`: the last may end early, and is not looked at then."""
    at = 0
    while at + 8 <= len(content):
        kind, size = (int(number) for number in np.frombuffer(content, f"{order}u4", 2, at))
        first, small = at + 8, kind >> 16  # a small element has its size and four bytes of content in its tag
        if small:
            kind, size, first = kind & 0xFFFF, small, at + 4
        if (small and size > 4) or (first + size > len(content) and not cut):
            raise ValueError("it ends within an element")
        yield _Element(kind, content[first : first + size])
        at = at + 8 if small else first + size + (0 if kind == _COMPRESSED else -size % 8)


def _numbers(flags: bytes, sides: bytes, data: _Element | None, order: str) -> NDArray[np.float64] | None:
    if len(flags) != 8 or len(sides) % 4 or not 8 <= len(sides) <= 16 or data is None or data.kind not in _NUMBERS:
        return None
    flag = int(np.frombuffer(flags, f"{order}u4")[0])
    shape = [int(side) for side in np.frombuffer(sides, f"{order}i4")]
    dtype, count = np.dtype(order + _NUMBERS[data.kind]), int(np.prod(shape, dtype=object))
    if (flag & 0xFF) not in _CLASSES or flag & _COMPLEX or min(shape) < 0 or count > _MOST_NUMBERS:
        return None
    if len(data.content) != count * dtype.itemsize:
        return None
    return np.frombuffer(data.content, dtype).astype(np.float64).reshape(shape, order="F")
