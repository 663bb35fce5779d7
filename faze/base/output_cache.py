"""Reuse outputs that were made earlier from the same inputs. Standard library only.

`output_cache` copies what another run has made: identical training runs within an ablation, rendered frames and
preprocessed strips across ablations. Its folder contains records, not data: <folder>/<key>.json names the outputs of
up to four runs and their hashes. A file that has been removed or changed is not copied. While one run makes an output,
other runs that need the same one wait. `existing_output` leaves a stage's own output as it is if its inputs have not
changed.
"""

import contextlib
import hashlib
import importlib.metadata
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from faze.base import code_hash
from faze.base.files import cache_folder, parse_json, reason_of, whole_file, whole_folder
from faze.base.locks import output_lock

FOLDER_VARIABLE = "FAZE_OUTPUT_CACHE"  # another folder of records for all ablations; empty: ablations share nothing
MOST_RECORDS = 1000  # of all ablations: some hundred bytes each
MOST_RUNS = 4
Run = Mapping[Path, str]  # output -> its hash


class _Changed(Exception):
    """A copy's hash differs from the recorded one."""


def key_of(stage: str, *parts: object) -> str:
    """Return a key for all that determines an output: the parts, the stage's code, and the torch and numpy versions.

    A part that represents a file is the file's content, never its path or modification time.
    """
    versions = [importlib.metadata.version(package) for package in ("torch", "numpy")]
    decisive = (code_hash.fingerprint(f"faze.stages.{stage}"), versions, *parts)
    return f"{stage}-{hashlib.sha256(repr(decisive).encode()).hexdigest()[:16]}"


def content(path: Path) -> str:
    """Hash a file, or the names and contents of a folder's files except hidden ones, which belong to the workflow."""
    if path.is_dir():
        files = [(str(file.relative_to(path)), content(file)) for file in _files(path)]
        return hashlib.sha256(repr(files).encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file() and not file.name.startswith("."))


def content_within(path: Path, most_bytes: int) -> str | None:
    """Hash as `content` does; return None for a file or folder of more than `most_bytes`."""
    size = 0
    for file in path.rglob("*") if path.is_dir() else [path]:
        size += file.stat().st_size
        if size > most_bytes:
            return None
    return content(path)


def shared_folder() -> Path | None:
    """Return the folder of records that all ablations of this user share, after removing its oldest records.

    Return None if ablations share nothing: FAZE_OUTPUT_CACHE is empty, or the folder cannot be written to.
    """
    named = os.environ.get(FOLDER_VARIABLE)
    if named == "":
        return None
    folder = Path(named).absolute() if named else cache_folder("output_cache")
    if folder is None:
        return None
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
    folder: Path | None, key: str, outputs: Sequence[Path], copies: Sequence[Path] | None = None
) -> Iterator[bool]:
    """Copy outputs that another run has recorded under this key; otherwise let the block make and record them.

    A run whose own outputs are recorded recreates them. If no record can be written, as on a full disk, the outputs are
    made but not recorded.

    Args:
        folder: folder of the records; None if nothing is to be copied.
        key: key of everything that determines the outputs (`key_of`).
        outputs: files or folders that exist when the block has ended.
        copies: destination of the other run's outputs, if not `outputs`. Copies are not recorded.

    Yields:
        Whether the outputs were copied.
    """
    with contextlib.ExitStack() as stack:
        if folder is not None:
            try:
                stack.enter_context(output_lock(folder / f"{key}.json"))
            except OSError as error:
                print(f"{folder}: no output is reused or recorded: {error.strerror}", file=sys.stderr)
                folder = None
        if folder is None:
            yield False
            return
        record, own = folder / f"{key}.json", [path.resolve() for path in outputs]
        runs = _read(record)
        if any(path in run for run in runs for path in own):
            runs = []
        while runs and not _copied(runs[0], copies or outputs):
            runs = runs[1:]
        yield bool(runs)
        if not runs:
            _write(record, [{path: content(path) for path in own}])
        elif copies is None:
            _write(record, [*runs, dict(zip(own, runs[0].values(), strict=True))])


@contextlib.contextmanager
def existing_output(key: str, outputs: Sequence[Path], keep: bool) -> Iterator[bool]:
    """Keep outputs that an earlier run made under the same key and that are unchanged; otherwise let the block run.

    Kept outputs are touched, so that Snakemake does not consider them older than their inputs. A hidden file beside the
    first output records the key and the hashes. Without `keep`, it is neither read nor written.

    Yields:
        Whether the outputs were kept.
    """
    note = outputs[0].with_name(f".{outputs[0].name}.inputs")
    found = {"key": key, "outputs": [content(path) if path.is_file() else None for path in outputs]}
    try:
        kept = keep and parse_json(note.read_text(encoding="utf-8")) == found
    except (OSError, ValueError):
        kept = False
    if kept:
        for path in outputs:
            path.touch()
        print(f"{outputs[0]}: up to date, reusing existing output", file=sys.stderr)
    yield kept
    if keep and not kept:
        with whole_file(note) as temporary:
            made = {"key": key, "outputs": [content(path) for path in outputs]}
            temporary.write_text(json.dumps(made) + "\n", encoding="utf-8")


def _read(record: Path) -> list[Run]:
    """Read a record; its paths are relative to the parent of the records' folder, since results may be moved."""
    root = record.resolve().parents[1]
    try:
        runs = parse_json(record.read_text(encoding="utf-8"))
        return [{Path(os.path.normpath(root / path)): digest for path, digest in run.items()} for run in runs]
    except (OSError, ValueError, AttributeError, TypeError):
        return []


def _write(record: Path, runs: Sequence[Run]) -> None:
    root = record.resolve().parents[1]
    named = [{os.path.relpath(path, root): digest for path, digest in run.items()} for run in runs[:MOST_RUNS]]
    try:
        with whole_file(record) as temporary:
            temporary.write_text(json.dumps(named, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        print(f"{record}: not recorded: {error.strerror}", file=sys.stderr)


def _copied(run: Run, targets: Sequence[Path]) -> bool:
    """Copy a run's outputs, each completely or not at all; not as links, since each copy has its own timestamp."""
    if len(run) != len(targets):
        return False
    for (source, digest), target in zip(run.items(), targets, strict=True):
        if target.resolve().is_relative_to(source):  # the copy would contain itself, without end
            return False
        try:
            with whole_folder(target) if source.is_dir() else whole_file(target) as temporary:
                for file in _files(source) if source.is_dir() else [source]:
                    target_file = temporary / file.relative_to(source)
                    target_file.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(file, target_file)  # without the mode, which is another umask's
                if content(temporary) != digest:
                    raise _Changed
        except (ValueError, _Changed):  # ValueError: the record names an impossible path
            return False
        except OSError as error:
            return not reason_of(error)  # a full disk is raised
    print(f"{targets[-1]}: reusing {list(run)[-1]}, which was made from the same inputs", file=sys.stderr)
    return True
