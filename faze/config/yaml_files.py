"""Read YAML files of parameters, each overriding the previous ones."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from faze.base.errors import UserError

DEFAULTS = Path(__file__).with_name("config.yaml").resolve()  # a link to config/config.yaml, which a wheel contains


class _Loader(yaml.SafeLoader):
    """YAML 1.2's scalars: 1e-3 is a number, and the key `on` is a word."""

    yaml_implicit_resolvers = {
        first: [(tag, form) for tag, form in known if tag != "tag:yaml.org,2002:bool"]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("(true|false)$"), list("tf"))
_EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$")
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789"))


def read_yaml(*paths: Path | str) -> dict[str, Any]:
    """Read YAML files; a later file overrides single values of earlier ones."""
    merged: dict[str, Any] = {}
    for path in paths:
        try:
            mapping = yaml.load(Path(path).read_text(encoding="utf-8"), _Loader) or {}
        except (OSError, yaml.YAMLError, ValueError) as error:  # ValueError: not UTF-8
            raise UserError(f"{path}: cannot be read: {' '.join(str(error).split())}") from None
        if not isinstance(mapping, dict):
            raise UserError(f"{path}: contains no keys and values")
        merged = merge(merged, mapping)
    return merged


def merge(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Override one mapping with another: nested mappings merge key by key, everything else is replaced."""
    merged = dict(base)
    for key, value in override.items():
        both = isinstance(merged.get(key), Mapping) and isinstance(value, Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def flatten(mapping: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten {'a': {'b': 1}} to {'a.b': 1}; lists are values."""
    flat: dict[str, Any] = {}
    for key, value in mapping.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Reverse `flatten`."""
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        for name in reversed(key.split(".")):
            value = {name: value}
        nested = merge(nested, value)
    return nested


def to_lines(flat: Mapping[str, Any]) -> list[str]:
    """Return `key: value` lines, each valid YAML for `read_yaml`."""
    return [f"{key}: {json.dumps(value)}" for key, value in flat.items()]
