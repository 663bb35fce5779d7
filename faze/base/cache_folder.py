"""The folder for files that can be recreated, such as the kernels of torch.compile."""

import os
from pathlib import Path


def cache_folder(name: str) -> Path | None:
    """Return a folder of faze in the user's cache: $XDG_CACHE_HOME/faze/NAME, else ~/.cache/faze/NAME.

    Return None if it cannot be written to: a folder with a predictable name elsewhere could be another user's, and code
    would be loaded from it.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    existing = next(path for path in (cache, *cache.parents) if path.exists())
    if cache.parts[0] == "~" or not os.access(existing, os.W_OK):  # "~" remains if the user has no home
        return None
    return cache / "faze" / name
