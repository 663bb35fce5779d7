"""Files that torch writes: mappings from names to tensors and plain values."""

import io
import stat
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from faze.base.errors import UserError
from faze.base.files import whole_file
from faze.base.untrusted import untrusted


def write_mapping(path: Path | str, content: Mapping[str, object]) -> None:
    """Write a mapping atomically, from memory: on a full disk, torch itself would raise a RuntimeError."""
    memory = io.BytesIO()
    torch.save(content, memory)
    with whole_file(path) as temporary:
        temporary.write_bytes(memory.getbuffer())


def read_mapping(path: Path | str, map_location: torch.device | str = "cpu") -> Mapping[str, object]:
    """Read the mapping in a torch file; only tensors and plain values are unpickled, never code.

    Raises:
        UserError: the file is missing or damaged, or contains anything else.
    """
    try:
        content = _load(path, map_location)
    except MemoryError:
        raise UserError(
            f"{path}: needs more memory than is available; if the file should be small, download it again"
        ) from None
    if not isinstance(content, Mapping) or not all(isinstance(key, str) for key in content):
        raise UserError(f"{path}: contains no mapping from names to tensors")
    return content


def _load(path: Path | str, map_location: torch.device | str) -> object:
    with untrusted(path, "the torch file"):
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise UserError(f"{path}: not a file")
        _check_records(path)
        try:
            content = torch.load(path, map_location=map_location, weights_only=True)
        except Exception as error:
            if type(error).__name__ != "UnpicklingError":
                raise
            # Torch's own message advises to run the file's code.
            raise ValueError(
                "it is not a torch file, or contains objects other than tensors and plain values"
            ) from None
        if not all(_is_plain(tensor) for tensor in _tensors(content)):
            raise ValueError("a tensor is not stored in full")
    return content


def _check_records(path: Path | str) -> None:
    """Reject a file with damaged records or compressed ones, which could unpack to any size.

    Raises:
        ValueError: A record is damaged or compressed.
    """
    if not zipfile.is_zipfile(path):  # the published weights are in torch's older format, which is no archive
        return
    with zipfile.ZipFile(path) as archive:
        if any(record.compress_type != zipfile.ZIP_STORED for record in archive.infolist()):
            raise ValueError("its records are compressed")
        if damaged := archive.testzip():  # torch writes the CRC-32 of each record, but does not verify it
            raise ValueError(f"its record {damaged} is corrupt (checksum mismatch)")


def _is_plain(tensor: Tensor) -> bool:
    plain = tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_meta
    return plain and tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()


def is_format(content: Mapping[str, object], number: int) -> bool:
    """Return whether the value of "format" is this number; in a foreign file, the value may be a tensor."""
    found = content.get("format")
    return isinstance(found, int) and found == number


def _tensors(content: object) -> Iterator[Tensor]:
    waiting, seen = [content], set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, Mapping | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            waiting.extend(value.values() if isinstance(value, Mapping) else value)
