"""YAML files of parameters, each laid over the one before."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from faze.config.check import ConfigError

# In a checkout a link to config/config.yaml, the one that people read and change; a wheel gets a copy of it.
DEFAULTS = Path(__file__).with_name("config.yaml").resolve()


def merge(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Lay one mapping over another: mappings merge key by key, everything else is replaced."""
    merged = dict(base)
    for key, value in override.items():
        both = isinstance(merged.get(key), Mapping) and isinstance(value, Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def read_yaml(*paths: Path | str) -> dict[str, Any]:
    """Read YAML files, each laid over the one before.

    Raises:
        ConfigError: a file is missing, is not YAML (with the line), or is not a mapping.
    """
    merged: dict[str, Any] = {}
    for path in paths:
        try:
            mapping = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ConfigError(f"{path}: no such config file") from None
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f":{mark.line + 1}" if mark else ""
            raise ConfigError(f"{path}{where}: not YAML: {getattr(error, 'problem', error)}") from None
        if mapping is not None and not isinstance(mapping, Mapping):
            raise ConfigError(f"{path}: holds no keys and values")
        merged = merge(merged, mapping or {})
    return merged
