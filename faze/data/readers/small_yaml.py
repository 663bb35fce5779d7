"""Read small YAML files of other programs: a screen, or a camera that OpenCV calibrated."""

import reprlib
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.files import decode_text
from faze.base.untrusted import read_untrusted

_MOST_BYTES = 1 << 20
_MOST_NUMBERS = 100  # of a list; a YAML file of a few lines may state billions by reference
_REMEDY = "write it again as YAML"


class _Loader(yaml.SafeLoader):
    """Also accept matrices that OpenCV wrote, as mappings with rows, cols and data."""


for _kind in ("matrix", "nd-matrix"):
    _Loader.add_constructor(
        f"tag:yaml.org,2002:opencv-{_kind}", lambda loader, node: loader.construct_mapping(node, deep=True)
    )


def read_small_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file of at most 1 MiB, with or without OpenCV's first line `%YAML:1.0`.

    Raises:
        UserError: The file is missing, too large or not a mapping of keys.
    """
    return read_untrusted(path, lambda content: _parse(content, path), _REMEDY)


def as_array(value: object, depth: int = 2) -> NDArray[np.float64]:
    """Convert a number, or a list of at most 100 numbers or of such lists, to an array.

    Raises:
        ValueError: It is something else.
    """
    if isinstance(value, list) and depth and len(value) <= _MOST_NUMBERS:
        return np.array([as_array(item, depth - 1) for item in value], np.float64)
    if not isinstance(value, int | float | str) or isinstance(value, bool):
        raise ValueError("not a number")
    try:
        return np.array(float(value))
    except OverflowError:
        raise ValueError("too large") from None


def shown(value: object) -> str:
    """Show the beginning of a value in a message."""
    return reprlib.repr(value)[:60]


def _parse(content: bytes, path: Path) -> dict[str, Any]:
    if len(content) > _MOST_BYTES:
        raise UserError(f"{path}: has {len(content)} bytes, more than any such file: {_REMEDY}")
    text = decode_text(content, "strict")
    if text.startswith("%YAML:"):  # OpenCV's form of the directive is not YAML
        text = text.partition("\n")[2]
    found = _Loader(text).get_single_data()
    if not isinstance(found, dict):
        raise UserError(f"{path}: contains no keys and values: {_REMEDY}")
    return found
