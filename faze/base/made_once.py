"""What several runs of an ablation would make alike is made once: the first makes it, the others take it over.

Who made it and makes it again, as a job does of whose many outputs one is missing, keeps it.

A record, results/<name>/made_once/<key>.json, leads from all that decides an output to the files that were made of it
first. Its lock lets a second maker wait for the first. A file that is gone, or no longer the one that was made, is not
taken. Standard library only.
"""

import contextlib
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from faze.base.files import whole_file, whole_folder
from faze.base.output_lock import sole_writer


class _Torn(Exception):
    """What was copied is not what was made."""


def key_of(stage: str, *parts: object) -> str:
    """Name what a stage makes of these: everything that decides its output, and nothing else."""
    return f"{stage}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"


def content(path: Path) -> str:
    """Hash a file, or all files in a folder with their names; hidden ones are the workflow's own marks."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))
        within = [(str(file.relative_to(path)), content(file)) for file in files]
        return hashlib.sha256(repr(within).encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def same_file(path: Path) -> tuple[str, int, int]:
    """Identify a file too large to be read for its identity: where it lies, its size, when it was written."""
    stat = path.stat()
    return str(path.resolve()), stat.st_size, stat.st_mtime_ns


@contextlib.contextmanager
def made_once(
    records: Path | None, key: str, outputs: Sequence[Path], into: Sequence[Path] | None = None
) -> Iterator[bool]:
    """Keep or take over what was made of the same, or let the block make the outputs and record them at its end.

    Args:
        records: folder of the records; None: nothing is taken over.
        key: names what is made (`key_of`).
        outputs: files or folders that are there when the block has ended.
        into: where the other run's are copied to, and none is kept; the outputs themselves, if not said.

    Yields:
        Whether they are there; otherwise the block makes them.
    """
    if records is None:
        yield False
        return
    record = records / f"{key}.json"
    with sole_writer(record):
        taken = _take_over(record, outputs, into)
        yield taken
        if not taken:
            made = {os.path.relpath(path, records.parent): content(path) for path in outputs}
            with whole_file(record) as temporary:
                temporary.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


def _take_over(record: Path, outputs: Sequence[Path], into: Sequence[Path] | None) -> bool:
    """Copy what a record names, or keep the outputs if it names them."""
    try:
        made = json.loads(record.read_text(encoding="utf-8"))
        donors = [(record.parent.parent / path, digest) for path, digest in made.items()]
    except (OSError, ValueError, AttributeError, TypeError):
        return False
    known = [path.resolve() for path in outputs]
    if not into and known == [path.resolve() for path, _ in donors]:
        return _kept(donors)
    if len(donors) != len(outputs) or any(path.resolve() in known for path, _ in donors):
        return False
    for (donor, digest), target in zip(donors, into or outputs, strict=True):
        if not _copied(donor, digest, target):
            return False
    print(f"{outputs[-1]}: the same as {donors[-1][0]}, taken over", file=sys.stderr)
    return True


def _kept(outputs: Sequence[tuple[Path, str]]) -> bool:
    """Keep outputs that are whole; their time is now, or the workflow would find them older than what they are of."""
    if not all(path.exists() and content(path) == digest for path, digest in outputs):
        return False
    for path, _ in outputs:
        path.touch()
    print(f"{outputs[-1][0]}: made of the same before, kept", file=sys.stderr)
    return True


def _copied(donor: Path, digest: str, target: Path) -> bool:
    """Copy a file or folder, whole or not at all; not linked, since its time of writing is its own."""
    whole, copy = (whole_folder, _copy_folder) if donor.is_dir() else (whole_file, shutil.copyfile)
    try:
        with whole(target) as temporary:
            copy(donor, temporary)
            if content(temporary) != digest:
                raise _Torn
    except (FileNotFoundError, _Torn):
        return False
    return True


def _copy_folder(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(".*"), dirs_exist_ok=True)
