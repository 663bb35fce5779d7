"""A run's files -> its artifacts. Files that are there already, to the byte, are not sent again."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from faze.tracking.run_contents import Held
from faze.tracking.store import Store, at_once

if TYPE_CHECKING:
    from mlflow.store.artifact.artifact_repo import ArtifactRepository

FILES = "held_files"  # a tag: the digest of all files, written when the last has arrived
FOLDERS = ("report", "walks", "data", "sweep")  # of ours: what people add to a run elsewhere stays


def upload_artifacts(store: Store, held: Sequence[Held]) -> None:
    """Upload what the records name; what lies in our folders besides is out of date and goes."""
    waiting = []
    for one in held:
        files = _files_of(one.record.artifacts)
        if files and one.run.data.tags.get(FILES) != (digest := _digest(files)):
            waiting.append((one, files, digest))
    repositories = {one.id: repository_of(store, one.run.info.artifact_uri) for one, *_ in waiting}
    uploads = [(one.id, file, name) for one, files, _ in waiting for name, file in files.items()]
    at_once(lambda upload: _upload(repositories[upload[0]], *upload[1:]), uploads)
    for one, files, _ in waiting:
        if not one.is_new:
            _remove_others(repositories[one.id], files)
    at_once(lambda done: store.client.set_tag(done[0].id, FILES, done[2]), waiting)


def repository_of(store: Store, uri: str) -> "ArtifactRepository":
    """Open the place of a run's or a model's files."""
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    return get_artifact_repository(uri, tracking_uri=store.uri)


def _files_of(artifacts: Mapping[str, Path]) -> dict[str, Path]:
    """Name every file as it is to be called in the run; hidden ones are the workflow's own marks."""
    found = {}
    for folder, path in artifacts.items():
        files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
        root = path.parent if path.is_file() else path
        found |= {
            str(PurePosixPath(folder) / file.relative_to(root)): file for file in files if not file.name.startswith(".")
        }
    return found


def _digest(files: Mapping[str, Path]) -> str:
    each = [f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}" for name, file in files.items()]
    return hashlib.sha256("\n".join(each).encode()).hexdigest()[:12]


def _upload(repository: "ArtifactRepository", file: Path, name: str) -> None:
    folder = str(PurePosixPath(name).parent)
    repository.log_artifact(str(file), None if folder == "." else folder)


def _remove_others(repository: "ArtifactRepository", files: Mapping[str, Path]) -> None:
    for folder in FOLDERS:
        for old in set(_names(repository, folder)) - files.keys():
            repository.delete_artifacts(old)


def _names(repository: "ArtifactRepository", folder: str) -> Iterator[str]:
    for item in repository.list_artifacts(folder):
        if item.is_dir:
            yield from _names(repository, item.path)
        else:
            yield item.path
