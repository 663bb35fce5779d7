"""Read small YAML files of other programs: a screen, or a camera that OpenCV calibrated."""

from pathlib import Path
from typing import Any

import yaml

from faze.base.errors import UserError
from faze.base.files import decode_text
from faze.base.untrusted import read_untrusted

_MOST_BYTES = 1 << 20
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


def _parse(content: bytes, path: Path) -> dict[str, Any]:
    if len(content) > _MOST_BYTES:
        raise UserError(f"{path}: has {len(content)} bytes, more than any such file: {_REMEDY}")
    text = decode_text(content, "strict")
    if text.startswith("%YAML:"):  # OpenCV's form of the directive is not YAML
        text = text.partition("\n")[2]
    found = yaml.load(text, _Loader)
    if not isinstance(found, dict):
        raise UserError(f"{path}: contains no keys and values: {_REMEDY}")
    return found
