"""Files that torch writes: tensors and plain values under names.

Files may come from strangers. In addition to the checks of torch, a file must not contain compressed records, which
could unpack to more than its size. Its pickles must name nothing but tensors, and it must contain all numbers of each.
"""

import errno
import io
import mmap
import pickletools
import stat
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from faze.base.errors import UserError
from faze.base.files import whole_file


def write_mapping(path: Path | str, content: Mapping[str, object]) -> None:
    """Write a mapping atomically, from memory: for a full disk, torch would raise a RuntimeError."""
    memory = io.BytesIO()
    torch.save(content, memory)
    with whole_file(path) as temporary:
        temporary.write_bytes(memory.getbuffer())


_BUILT = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_parameter")
# Names in a pickle of tensors. Torch allows more, such as bytearray, which a few bytes can make arbitrarily large.
_NAMED = {"collections OrderedDict", "torch Size", "torch device", "torch.nn.parameter Parameter"} | {
    f"torch._utils {name}" for name in _BUILT
}
_PICKLES = 5  # in the format before zip: marks, the content, the keys of its tensors


def read_mapping(path: Path | str, map_location: torch.device | str = "cpu") -> Mapping[str, object]:
    """Read the mapping in a torch file; only tensors and plain values are unpickled, never code.

    Raises:
        UserError: the file is missing, corrupt, or not a torch file of tensors.
    """
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise UserError(f"{path}: not a file")
        with open(path, "rb") as file:
            _check_packing(file)
        content = torch.load(path, map_location=map_location, weights_only=True)
        _check_tensors(content)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (OSError, MemoryError, UserError):
        raise
    except Exception as error:  # on foreign bytes, the unpickler may raise any error
        reason = str(error).strip().split("\n")[0][:200] or "the file is truncated"
        raise UserError(
            f"{path}: not an intact torch file of plain tensors ({reason}); write or fetch it again"
        ) from None
    if not isinstance(content, Mapping) or not all(isinstance(key, str) for key in content):
        raise UserError(f"{path}: contains no mapping from names to tensors")
    return content


def is_format(content: Mapping[str, object], number: int) -> bool:
    """Return whether a mapping has this number under "format"; in a foreign file that may be a tensor."""
    found = content.get("format")
    return isinstance(found, int) and found == number


def _check_packing(file: IO[bytes]) -> None:
    """Raise a ValueError if the file unpacks to more than its size, or names anything but tensors."""
    if file.read(4) != b"PK\3\4":
        # Mapped: reading would allocate as many bytes as a pickle states, before it finds that they are missing.
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for _ in range(_PICKLES):
                _check_pickle(content)
        return
    size = file.seek(0, io.SEEK_END)
    try:
        with zipfile.ZipFile(file) as archive:
            records = archive.infolist()
            if any(r.compress_type != zipfile.ZIP_STORED for r in records) or sum(r.file_size for r in records) > size:
                raise ValueError("its records are compressed")
            if damaged := archive.testzip():  # torch writes a CRC-32 for each record, but does not check it
                raise ValueError(f"its record {damaged} has a wrong checksum")
            for record in records:
                if record.filename.endswith(".pkl"):
                    _check_pickle(io.BytesIO(archive.read(record)))
    except OSError as error:
        if error.errno != errno.EINVAL:  # an offset before the beginning of the file
            raise
        raise ValueError("not an intact archive") from None


def _check_pickle(file: IO[bytes] | mmap.mmap) -> None:
    for code, argument, _ in pickletools.genops(file):
        storage = isinstance(argument, str) and argument.startswith("torch ") and argument.endswith("Storage")
        if code.name == "STACK_GLOBAL" or (code.name in ("GLOBAL", "INST") and not storage and argument not in _NAMED):
            raise ValueError(f"it names {argument!a:.100}")


def _check_tensors(content: object) -> None:
    """Raise a ValueError for tensors that are not plain, or have fewer numbers in the file than their shape states."""
    for tensor in _tensors(content):
        plain = tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_meta
        if not plain or tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise ValueError("a tensor lacks its numbers")


def _tensors(content: object) -> Iterator[Tensor]:
    waiting, seen = [content], set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, Mapping | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            waiting.extend(value.values() if isinstance(value, Mapping) else value)
