"""What several runs would make alike is made once: the first makes it, the others take it over.

Who made it and makes it again, as a job does of whose many outputs one is missing, keeps it.

A record, <records>/<key>.json, leads from all that decides an output to the files that were made of it, by up to four
runs. Its lock lets a second maker wait for the first. A file that is gone, or no longer the one that was made, is not
taken. The runs of an ablation share results/<name>/output_cache; ablations share `shared_records`. Standard library only.
"""

import contextlib
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from faze.base.cache_folder import cache_folder
from faze.base.files import parse_json, reason_of, whole_file, whole_folder
from faze.base.output_lock import output_lock

SHARED_VARIABLE = "FAZE_OUTPUT_CACHE"  # another folder of records for all ablations, or none
MOST_RECORDS = 1000  # of all ablations: some hundred bytes each
_MOST_RUNS = 4


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


def content_within(path: Path, most_bytes: int) -> str | None:
    """Hash as `content` does, but nothing that is larger: None."""
    size = 0
    for file in path.rglob("*") if path.is_dir() else [path]:
        size += file.stat().st_size
        if size > most_bytes:
            return None
    return content(path)


def shared_records() -> Path | None:
    """Name the folder of records that all ablations of this user share, and throw out its oldest records.

    $FAZE_OUTPUT_CACHE names another; where that is empty, or nothing can be written there, ablations share nothing: None.
    """
    named = os.environ.get(SHARED_VARIABLE)
    if named == "":
        return None
    folder = Path(named).absolute() if named else cache_folder("output_cache")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        records = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        for old in records[: max(len(records) - MOST_RECORDS, 0)]:
            old.unlink(missing_ok=True)
            (folder / f".{old.name}.lock").unlink(missing_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


@contextlib.contextmanager
def output_cache(
    records: Path | None, key: str, outputs: Sequence[Path], into: Sequence[Path] | None = None
) -> Iterator[bool]:
    """Keep or take over what was made of the same, or let the block make the outputs and record them at its end.

    Where no record can be written, as on a full disk, the outputs are made and nothing is recorded.

    Args:
        records: folder of the records; None: nothing is taken over.
        key: names what is made (`key_of`).
        outputs: files or folders that are there when the block has ended.
        into: where the other run's are copied to, and none is kept; the outputs themselves, if not said.

    Yields:
        Whether they are there; otherwise the block makes them.
    """
    with contextlib.ExitStack() as stack:
        if records is not None:
            try:
                stack.enter_context(output_lock(records / f"{key}.json"))
            except OSError as error:
                print(f"{records}: nothing is taken over or recorded: {error.strerror}", file=sys.stderr)
                records = None
        if records is None:
            yield False
            return
        record = _Record(records / f"{key}.json")
        paths = [path.resolve() for path in outputs]
        runs = record.keep_or_copy(outputs, into)
        yield runs is not None
        if runs is None:
            record.write([{path: content(path) for path in paths}])
        elif into is None and not any(list(run) == paths for run in runs):
            record.write([*runs, dict(zip(paths, runs[0].values(), strict=True))])


class _Record:
    """Who has made the same: for each run the paths of its outputs, in their order, and their hashes."""

    def __init__(self, path: Path) -> None:
        self._path, self._root = path, path.resolve().parents[1]  # paths are relative: results may move

    def keep_or_copy(self, outputs: Sequence[Path], into: Sequence[Path] | None) -> list[dict[Path, str]] | None:
        """Keep the outputs if they are recorded and whole, or copy those of another run.

        What is recorded and not whole is made again by who made it, not copied.

        Returns:
            The runs from the one that was taken from on, or None: nothing was kept or copied.
        """
        runs, paths = self._read(), [path.resolve() for path in outputs]
        if any(path in paths for run in runs for path in run):
            own = next((run for run in runs if list(run) == paths), None)
            return runs if into is None and own and _kept(own) else None
        for position, run in enumerate(runs):
            if len(run) == len(outputs) and all(map(_copied, run, run.values(), into or outputs)):
                print(f"{outputs[-1]}: the same as {list(run)[-1]}, taken over", file=sys.stderr)
                return runs[position:]
        return None

    def write(self, runs: list[dict[Path, str]]) -> None:
        """Record the runs; of too many the first, which are the oldest."""
        named = [{os.path.relpath(path, self._root): digest for path, digest in run.items()} for run in runs]
        try:
            with whole_file(self._path) as temporary:
                temporary.write_text(json.dumps(named[:_MOST_RUNS], indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            print(f"{self._path}: not recorded: {error.strerror}", file=sys.stderr)

    def _read(self) -> list[dict[Path, str]]:
        try:
            runs = parse_json(self._path.read_text(encoding="utf-8"))
            return [{Path(os.path.normpath(self._root / path)): digest for path, digest in run.items()} for run in runs]
        except (OSError, ValueError, AttributeError, TypeError):
            return []


def _kept(outputs: Mapping[Path, str]) -> bool:
    """Keep outputs that are whole; their time is now, or the workflow would find them older than what they are of."""
    if not all(path.exists() and content(path) == digest for path, digest in outputs.items()):
        return False
    for path in outputs:
        path.touch()
    print(f"{list(outputs)[-1]}: made of the same before, kept", file=sys.stderr)
    return True


def _copied(donor: Path, digest: str, target: Path) -> bool:
    """Copy a file or folder, whole or not at all; not linked, since its time of writing is its own."""
    if target.resolve().is_relative_to(donor):  # it would be copied into itself, without end
        return False
    try:
        whole, copy = (whole_folder, _copy_folder) if donor.is_dir() else (whole_file, shutil.copyfile)
        with whole(target) as temporary:
            copy(donor, temporary)
            if content(temporary) != digest:
                raise _Torn
    except (ValueError, _Torn):  # ValueError: a record that names no path
        return False
    except OSError as error:
        return not reason_of(error)  # a disk that is full is raised
    return True


def _copy_folder(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(".*"), dirs_exist_ok=True)
