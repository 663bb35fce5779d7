"""The folder for files that can be made again, such as the kernels of torch.compile."""

import os
import tempfile
from pathlib import Path


def cache_folder(name: str) -> Path:
    """Return a folder of faze in the user's cache: $XDG_CACHE_HOME/faze/NAME, else ~/.cache/faze/NAME."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    there = next(path for path in (cache, *cache.parents) if path.exists())  # the folder, or what would hold it
    if cache.parts[0] == "~" or not os.access(there, os.W_OK):  # "~" stays where the user has no home
        cache = Path(tempfile.gettempdir()) / f"faze-{os.getuid()}"
    return cache / "faze" / name
