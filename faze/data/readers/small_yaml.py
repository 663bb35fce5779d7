"""Read small YAML files of other programs: a screen, or a camera that OpenCV calibrated."""

import reprlib
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from faze.base.errors import UserError
from faze.base.files import reading

_REMEDY = "write it again as YAML"


class _Loader(yaml.SafeLoader):
    """Also accept matrices that OpenCV wrote, as mappings with rows, cols and data."""


for _kind in ("matrix", "nd-matrix"):
    _Loader.add_constructor(
        f"tag:yaml.org,2002:opencv-{_kind}", lambda loader, node: loader.construct_mapping(node, deep=True)
    )


def read_small_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file, with or without OpenCV's first line `%YAML:1.0`.

    Raises:
        UserError: The file is missing or not a mapping of keys.
    """
    with reading(path, _REMEDY):
        return _parse(path.read_text(encoding="utf-8-sig"), path)


def as_array(value: object) -> NDArray[np.float64]:
    """Convert a number, or a list of numbers or of such lists, to an array.

    Raises:
        ValueError: It is something else.
    """
    try:
        return np.array(value, np.float64)
    except (TypeError, OverflowError) as error:
        raise ValueError(error) from None


def shown(value: object) -> str:
    """Show the beginning of a value in a message."""
    return reprlib.repr(value)[:60]


def _parse(text: str, path: Path) -> dict[str, Any]:
    if text.startswith("%YAML:"):  # OpenCV's form of the directive is not YAML
        text = text.partition("\n")[2]
    found = _Loader(text).get_single_data()
    if not isinstance(found, dict):
        raise UserError(f"{path}: contains no keys and values: {_REMEDY}")
    return found
