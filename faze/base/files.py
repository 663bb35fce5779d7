"""Write output files atomically, so that each is complete or absent, and report input files that cannot be read."""

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from faze.base.errors import UserError


@contextlib.contextmanager
def whole_file(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path next to `path`; rename it to `path` if the block succeeds, and remove it otherwise."""
    path = Path(path)
    temporary = _temporary(path)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())  # otherwise, a crash of the machine could leave an empty file at `path`
        temporary.replace(path)
    except OSError as error:
        error.filename, error.strerror = error.filename or str(path), error.strerror or str(error)
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_folder(path: Path | str) -> Iterator[Path]:
    """Yield a temporary folder next to `path`, which replaces `path` and its contents if the block succeeds."""
    path = Path(path)
    temporary = _temporary(path)
    temporary.mkdir()
    try:
        yield temporary
        shutil.rmtree(path, ignore_errors=True)
        temporary.replace(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _temporary(path: Path) -> Path:
    """Return a new temporary path, after removing the temporary files that killed processes left behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{path.name}.writing-*"):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)
    return path.with_name(f".{path.name}.writing-{uuid.uuid4().hex[:8]}{path.suffix}")


@contextlib.contextmanager
def reading(path: Path | str, remedy: str = "recreate it or download it again") -> Iterator[None]:
    """Convert any exception that a parser raises on an invalid file into a one-sentence UserError."""
    try:
        yield
    except (UserError, MemoryError):
        raise
    except Exception as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(f"{path}: cannot be read ({reason}): {remedy}") from error
