"""Read and write files so that each output is complete or absent. Standard library only (POSIX)."""

import codecs
import contextlib
import errno
import glob
import json
import os
import shutil
import stat
import uuid
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from faze.base.errors import UserError

# Errors of a path or of a file itself. Any other error is the machine's, such as a network folder that is gone.
_OF_THE_FILE = {
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG),
    *(errno.EFBIG, errno.ENXIO),
}
MOST_BYTES = 2**28  # of a frame or an annotation file; no data set has any nearly as large
FULL = (errno.ENOSPC, errno.EDQUOT)
UNSUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)  # a file system lacks this operation


def reason_of(error: OSError) -> str | None:
    """Return why a file cannot be read; re-raise errors that are not the file's fault, since a retry may succeed."""
    if error.errno not in _OF_THE_FILE:
        raise error
    return error.strerror


def open_plain(path: Path | str) -> IO[bytes]:
    """Open a foreign file for unbuffered reading; refuse a pipe or device, where reading might never end.

    Raises:
        OSError: it cannot be opened, is not a regular file, or is larger than any file of its kind.
    """
    file = open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    found = os.fstat(file.fileno())
    if stat.S_ISREG(found.st_mode) and found.st_size <= MOST_BYTES:
        return file
    file.close()
    if stat.S_ISREG(found.st_mode):
        raise OSError(errno.EFBIG, f"{found.st_size / 2**20:.0f} MiB is too large", str(path))
    raise OSError(errno.EPERM, "a pipe or a device, not a file", str(path))


def read_plain(path: Path | str) -> bytes:
    """Read a whole foreign file; see `open_plain`."""
    with open_plain(path) as file, named(path):
        return file.read()


def decode_text(data: bytes, errors: str = "surrogateescape") -> str:
    """Decode a foreign text file, with or without the byte order mark that some editors add.

    By default, bytes that are not UTF-8 are preserved, as by os.fsdecode.

    Raises:
        ValueError: the data contain zero bytes, as UTF-16 does, or bytes that `errors` does not accept.
    """
    if b"\0" in data or data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError("it is UTF-16 or not text: save it as UTF-8")
    return data.decode("utf-8-sig", errors)


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; raise ValueError for any error in it, including nesting that is too deep."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


@contextlib.contextmanager
def as_written(path: Path, remedy: str) -> Iterator[None]:
    """Report that a file written by faze is corrupt if the block finds a missing key or a value of the wrong type.

    Raises:
        UserError: the message contains the file, the error and the remedy.
    """
    try:
        yield
    except UserError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path} is corrupt ({type(error).__name__}: {reason}): {remedy}") from error


def read_json(path: Path, keys: Collection[str], remedy: str) -> dict[str, Any]:
    """Read a JSON file that faze wrote.

    Raises:
        UserError: it is missing, incomplete or corrupt; the message contains the remedy.
    """
    if not path.is_file():
        raise UserError(f"{path} is missing: {remedy}")
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except ValueError:
        content = None
    if not isinstance(content, dict) or not content.keys() >= set(keys):
        raise UserError(f"{path} is incomplete, or not a JSON object with the keys {', '.join(keys)}: {remedy}")
    if content.pop("checksum", None) not in (None, _checksum(content)):  # of `write_json`; others have none
        raise UserError(f"{path} is corrupt (checksum mismatch): delete it, and {remedy}")
    return content


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file for `read_json`, with a checksum of its content."""
    content = json.loads(json.dumps(content))  # as it will be read
    path.write_text(json.dumps(content | {"checksum": _checksum(content)}, indent=1) + "\n", encoding="utf-8")


def _checksum(content: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


@contextlib.contextmanager
def named(path: Path | str, errors: Collection[int] = errno.errorcode) -> Iterator[None]:
    """Add the file's name to errors of the system that lack it because the file was already open."""
    try:
        yield
    except OSError as error:
        if error.errno in errors and not error.filename:
            error.filename, error.strerror = str(path), os.strerror(error.errno)
        raise


@contextlib.contextmanager
def whole_file(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` when the block succeeds, remove it otherwise.

    The file's permissions follow the umask.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    temporary.touch(exist_ok=False)
    try:
        with named(path, FULL):
            yield temporary
            _to_disk(temporary)
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _to_disk(path: Path) -> None:
    """Wait until a file is on the disk, if the file system supports that; some need the file to be open for writing."""
    with path.open("r+b") as file:
        try:
            os.fsync(file.fileno())
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise


def check_replaceable(folder: Path, names: Collection[str]) -> None:
    """Refuse to replace a folder with an output unless the folder is absent, empty or an earlier version of it.

    Args:
        folder: the output.
        names: files that identify such an output.

    Raises:
        UserError: the folder contains the working directory, or files that would be lost.
    """
    here = Path.cwd()
    if folder.resolve() in (here, *here.parents):
        raise UserError(
            f"--out {folder} would be replaced entirely, but contains the current directory: run the command from "
            "elsewhere"
        )
    is_output = folder.is_dir() and (all((folder / name).is_file() for name in names) or not any(folder.iterdir()))
    if folder.exists() and not is_output:
        raise UserError(f"--out {folder} exists, but does not contain {' and '.join(names)}: choose a new folder")


@contextlib.contextmanager
def whole_folder(path: Path | str) -> Iterator[Path]:
    """Yield a temporary folder beside `path`; it replaces `path` and its content when the block succeeds.

    Call `check_replaceable` first if the user chooses `path`.
    """
    path = Path(path).resolve()
    temporary, former = _temporary(path), _temporary(path)
    temporary.mkdir(parents=True)
    try:
        with named(path, FULL):
            yield temporary
        if path.exists():
            path.replace(former)
        temporary.replace(path)
    except BaseException:
        if former.exists() and not path.exists():  # interrupted between the two
            former.replace(path)
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(former, ignore_errors=True)


def torn(path: Path) -> list[Path]:
    """List an output's temporary files and folders. If no process is writing it, killed processes left them."""
    return list(path.parent.glob(f"{glob.escape(_prefix(path))}*"))


def _temporary(path: Path) -> Path:
    return path.with_name(f"{_prefix(path)}{uuid.uuid4().hex[:8]}{path.suffix}")


def _prefix(path: Path) -> str:
    """Return the prefix of an output's temporary files, which no other hidden file has."""
    return f".{path.name}.writing-"


def cache_folder(name: str) -> Path | None:
    """Return one of faze's folders in the user's cache: $XDG_CACHE_HOME/faze/NAME, else ~/.cache/faze/NAME.

    Return None if it is not writable. No predictable folder elsewhere is used, because another user could own it and
    code would be loaded from it.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "faze", name)
    # os.path, since Path.exists fails in another user's home; HOME may be root's in a container.
    existing = next(path for path in (folder, *folder.parents) if os.path.exists(path))
    if folder.parts[0] == "~" or not os.access(existing, os.W_OK | os.X_OK):  # "~" remains if the user has no home
        return None
    return folder
