"""Files and folders that are whole or absent. Standard library only (POSIX)."""

import contextlib
import errno
import glob
import json
import os
import shutil
import stat
import tempfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from faze.base.errors import UserError

# Of a path or of a file itself; any other error in reading is the machine's, such as a network folder that is gone.
_OF_THE_FILE = {
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG),
    *(errno.EFBIG, errno.ENXIO),
}
MOST_BYTES = 2**28  # of a frame or a text of annotations; none of any data set is nearly as large
FULL = (errno.ENOSPC, errno.EDQUOT)


def reason_of(error: OSError) -> str | None:
    """Say why a file cannot be read for what it is; any other error, where trying again may help, is raised."""
    if error.errno not in _OF_THE_FILE:
        raise error
    return error.strerror


def open_plain(path: Path | str) -> IO[bytes]:
    """Open a file of others for reading, unbuffered; never a pipe or a device, where reading would not end.

    Raises:
        OSError: it cannot be opened, is none, or is larger than any file of its kind.
    """
    file = open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    found = os.fstat(file.fileno())
    if stat.S_ISREG(found.st_mode) and found.st_size <= MOST_BYTES:
        return file
    file.close()
    if stat.S_ISREG(found.st_mode):
        raise OSError(errno.EFBIG, f"{found.st_size / 2**20:.0f} MiB are too large", str(path))
    raise OSError(errno.EPERM, "a pipe or a device, not a file", str(path))


def read_plain(path: Path | str) -> bytes:
    """Read a whole file of others; see `open_plain`."""
    with open_plain(path) as file:
        return file.read()


def parse_json(text: str | bytes) -> Any:
    """Read JSON; whatever is wrong with it, be it nested too deeply, is a ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


@contextlib.contextmanager
def as_written(path: Path, remedy: str) -> Iterator[None]:
    """Say of a file that faze wrote, and somebody changed, that it is not as it was written.

    Raises:
        UserError: instead of what a key that is missing or a value of another kind leads to; it is its cause.
    """
    try:
        yield
    except UserError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        words = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: is not as faze wrote it ({type(error).__name__}: {words}): {remedy}") from error


def read_json(path: Path, keys: Collection[str], remedy: str) -> dict[str, Any]:
    """Read a JSON file that faze wrote; the remedy says how to make one again that is missing, torn or lacks a key."""
    if not path.is_file():
        raise UserError(f"{path} is missing: {remedy}")
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except ValueError:
        content = None
    if not isinstance(content, dict) or not content.keys() >= set(keys):
        raise UserError(f"{path}: is not whole, or not JSON with {', '.join(keys)}: {remedy}")
    if content.pop("checksum", None) not in (None, _checksum(content)):  # older ones have none
        raise UserError(f"{path}: is not what was written: delete it, and {remedy}")
    return content


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file for read_json, with a checksum of what it holds."""
    held = json.loads(json.dumps(content))  # as it will be read
    path.write_text(json.dumps(held | {"checksum": _checksum(held)}, indent=1) + "\n", encoding="utf-8")


def _checksum(content: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


@contextlib.contextmanager
def full_disk_named(path: Path | str) -> Iterator[None]:
    """Let the error of a disk that is full say which file did not fit: that of an open file does not."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL and not error.filename:
            error.filename, error.strerror = str(path), os.strerror(error.errno)
        raise


@contextlib.contextmanager
def whole_file(path: Path | str) -> Iterator[Path]:
    """Give a temporary path beside `path`; rename it into place when the block ends well, remove it otherwise."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=_prefix(path), suffix=path.suffix, dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        with full_disk_named(path):
            yield temporary
            temporary.chmod(0o644)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def check_replaceable(folder: Path, names: Collection[str]) -> None:
    """Refuse a folder whose place an output is to take, unless it is absent, empty or such an output itself.

    Args:
        folder: of the output.
        names: files by which such an output is known.

    Raises:
        UserError: anything else lies there, which would be lost; or the process is in the folder.
    """
    here = Path.cwd()
    if folder.resolve() in (here, *here.parents):
        raise UserError(f"--out {folder}: is replaced as a whole, and you are in it: start from outside")
    is_output = folder.is_dir() and (all((folder / name).is_file() for name in names) or not any(folder.iterdir()))
    if folder.exists() and not is_output:
        raise UserError(f"--out {folder}: is there already, and holds no {' and '.join(names)}: name a new folder")


@contextlib.contextmanager
def whole_folder(path: Path | str) -> Iterator[Path]:
    """Give a temporary folder beside `path`; it takes the place of `path` and all in it when the block ends well.

    Where a person names `path`, `check_replaceable` comes first.
    """
    path = Path(path).resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary, former = (Path(tempfile.mkdtemp(prefix=_prefix(path), dir=path.parent)) for _ in range(2))
    try:
        yield temporary
        temporary.chmod(0o755)
        was_there = path.exists()
        if was_there:
            path.replace(former)
        try:
            temporary.replace(path)
        except BaseException:
            if was_there and not path.exists():
                former.replace(path)
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(former, ignore_errors=True)


def torn(path: Path) -> list[Path]:
    """List the temporary files and folders of an output, which killed writers left if nobody is writing it."""
    return list(path.parent.glob(f"{glob.escape(_prefix(path))}*"))


def _prefix(path: Path) -> str:
    """Begin the name of a temporary of an output; no hidden file of somebody else's begins so."""
    return f".{path.name}.writing-"
