"""The stamp of a person's folder: it changes when the folder's annotation does, or when a frame comes or goes."""

import hashlib
from pathlib import Path


def stamp_of(folder: Path) -> str:
    """Hash times and sizes of what lies in the folder; a frame that is written over keeps the stamp."""
    if not folder.is_dir():
        return "none"
    # MPIIGaze's annotation lies beside the frames of each day, and cameras in a folder of their own.
    found = [path for pattern in ("*", "*/*.txt", "*/*.mat") for path in folder.glob(pattern)]
    stats = sorted(
        (str(path), path.stat().st_mtime_ns, path.is_file() and path.stat().st_size) for path in found if path.exists()
    )
    return hashlib.sha256(repr(stats).encode()).hexdigest()[:8]
