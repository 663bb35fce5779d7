"""Files that torch writes: tensors and plain values under names.

They come from strangers too, so three things are looked at besides what torch itself refuses: that nothing in them is
packed to be larger than the file, that they name nothing but tensors, and that each tensor has its numbers in the file.
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

_BUILT = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_parameter")
# What a pickle of tensors names; torch's own list has more, such as bytearray, which a word makes as large as it wants.
_NAMED = {"collections OrderedDict", "torch Size", "torch device", "torch.nn.parameter Parameter"} | {
    f"torch._utils {name}" for name in _BUILT
}
_PICKLES = 5  # of a file that is older than zip: marks, the content, the keys of its tensors


def read_mapping(path: Path | str, map_location: torch.device | str = "cpu") -> Mapping[str, object]:
    """Read the mapping in a torch file; only tensors and plain values are unpickled, never code.

    Raises:
        UserError: the file is missing, torn or foreign.
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
    except Exception as error:  # the unpickler fails on foreign bytes with whatever error they lead it to
        reason = str(error).strip().split("\n")[0][:200] or "it ends too early"
        raise UserError(f"{path}: no whole torch file of plain tensors ({reason}); write or fetch it again") from None
    if not isinstance(content, Mapping) or not all(isinstance(key, str) for key in content):
        raise UserError(f"{path}: holds no mapping of names to tensors")
    return content


def is_format(content: Mapping[str, object], number: int) -> bool:
    """Whether a mapping that was read says that it is of a format; a stranger's may say it by a tensor."""
    found = content.get("format")
    return isinstance(found, int) and found == number


def _check_packing(file: IO[bytes]) -> None:
    """Refuse what unpacks to more than the file, or names what is no tensor, with a ValueError."""
    if file.read(4) != b"PK\3\4":
        # Mapped, since reading takes memory for as many bytes as a pickle says before it finds them missing.
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for _ in range(_PICKLES):
                _check_pickle(content)
        return
    size = file.seek(0, io.SEEK_END)
    try:
        with zipfile.ZipFile(file) as archive:
            records = archive.infolist()
            if any(r.compress_type != zipfile.ZIP_STORED for r in records) or sum(r.file_size for r in records) > size:
                raise ValueError("its records are packed")
            for record in records:
                if record.filename.endswith(".pkl"):
                    _check_pickle(io.BytesIO(archive.read(record)))
    except OSError as error:
        if error.errno != errno.EINVAL:  # a place before the file's beginning
            raise
        raise ValueError("no whole archive") from None


def _check_pickle(file: IO[bytes] | mmap.mmap) -> None:
    for code, argument, _ in pickletools.genops(file):
        storage = isinstance(argument, str) and argument.startswith("torch ") and argument.endswith("Storage")
        if code.name == "STACK_GLOBAL" or (code.name in ("GLOBAL", "INST") and not storage and argument not in _NAMED):
            raise ValueError(f"it names {argument!a:.100}")


def _check_tensors(content: object) -> None:
    """Refuse tensors that say more numbers than they hold, or are of another kind than plain ones."""
    for tensor in _tensors(content):
        plain = tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_meta
        if not plain or tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise ValueError("a tensor without its numbers")


def _tensors(content: object) -> Iterator[Tensor]:
    waiting, seen = [content], set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, Mapping | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            waiting.extend(value.values() if isinstance(value, Mapping) else value)
