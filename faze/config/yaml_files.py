"""Read YAML files of parameters; each overrides the previous ones."""

import dataclasses
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from faze.base.files import decode_text
from faze.config.check import ConfigError, Fault, short

_LONGEST_LINK = 100  # bytes


def followed(path: Path) -> Path:
    """Follow a link, even one that git stored as text because the file system has no links."""
    path = path.resolve()
    as_text = path.is_file() and path.stat().st_size <= _LONGEST_LINK
    return (path.parent / path.read_text(encoding="utf-8").strip()).resolve() if as_text else path


# In a checkout, a link to config/config.yaml, which people read and change; a wheel contains a copy.
DEFAULTS = followed(Path(__file__).with_name("config.yaml"))
PAPER = followed(Path(__file__).with_name("paper.yaml"))  # config/paper.yaml, in the same way


def read_yaml(*paths: Path | str) -> dict[str, Any]:
    """Read YAML files; each overrides the previous ones.

    Raises:
        ConfigError: a file is missing, is not YAML (with the line), is not a mapping, or contains a key twice.
    """
    merged: dict[str, Any] = {}
    for path in paths:
        mapping, keys = _read(path)
        if mapping is not None and not isinstance(mapping, Mapping):
            raise ConfigError(f"{path}: contains no keys and values")
        lines: dict[str, int] = {}
        for key, line in keys:  # PyYAML would silently use the last of two values for a key
            if key in lines:
                raise ConfigError(f"{path}:{line}: {key}: is already set on line {lines[key]}; remove one of them")
            lines[key] = line
        merged = merge(merged, mapping or {})
    return merged


def _read(path: Path | str) -> tuple[Any, list[tuple[str, int]]]:
    """Read a file's content, and the line of each key."""
    try:
        loader = yaml.SafeLoader(decode_text(Path(path).read_bytes(), "strict"))
        node = loader.get_single_node()
        return (loader.construct_document(node), list(_keys_below(node, ""))) if node else (None, [])
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such config file") from None
    except (OSError, MemoryError):
        raise
    except Exception as error:  # PyYAML passes on what int, float or a date raise for a malformed text
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}" if mark else ""
        text = " ".join(str(getattr(error, "problem", None) or error).split())
        raise ConfigError(f"{path}{where}: not YAML: {short(text)}") from None


def keys_of(text: str) -> Iterator[tuple[str, int]]:
    """Yield every dotted key of a YAML file with the number of its line, in the order of the file."""
    yield from _keys_below(yaml.compose(text, yaml.SafeLoader), "")


def _keys_below(node: yaml.Node | None, prefix: str) -> Iterator[tuple[str, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield f"{prefix}{key.value}", key.start_mark.line + 1
            yield from _keys_below(value, f"{prefix}{key.value}.")
    elif isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            if isinstance(item, yaml.MappingNode):
                key = f"{prefix.removesuffix('.')}[{position}]"
                yield key, item.start_mark.line + 1
                yield from _keys_below(item, f"{key}.")


def merge(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Override one mapping with another: nested mappings merge key by key, everything else is replaced."""
    merged = dict(base)
    for key, value in override.items():
        both = isinstance(merged.get(key), Mapping) and isinstance(value, Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def refuse(faults: Sequence[Fault], paths: Sequence[Path | str]) -> None:
    """Raise a ConfigError if there are errors: one line for each, with the file and line of its key."""
    if faults:
        places: dict[str, str] = {}
        for path in paths:
            found = {key: f"{path}:{line}: " for key, line in keys_of(Path(path).read_text("utf-8"))}
            # A list replaces that of an earlier file.
            places = {key: place for key, place in places.items() if key.split("[")[0] not in found} | found
        places[""] = f"{paths[0]}: " if len(paths) == 1 else ""  # a missing key has no line
        raise ConfigError("\n".join(f"{places[_stated(fault.key, places)]}{fault}" for fault in faults))


def _stated(key: str, places: Container[str]) -> str:
    """Return a key that a file contains: the key itself, the entry of a list that contains it, the list, or ""."""
    entry = key.rpartition("]")[0] + "]"
    return next((known for known in (key, entry, key.split("[")[0]) if known in places), "")


def flatten(mapping: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten a mapping, {'a': {'b': 1}} -> {'a.b': 1}; lists are values."""
    flat: dict[str, Any] = {}
    for key, value in mapping.items():
        nested = dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value
        if isinstance(nested, Mapping):
            flat |= flatten(nested, f"{prefix}{key}.")
        else:  # a dataclass holds tuples, YAML lists
            flat[f"{prefix}{key}"] = list(value) if isinstance(value, tuple) else value
    return flat


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Reverse `flatten`, {'a.b': 1} -> {'a': {'b': 1}}."""
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        for name in reversed(key.split(".")):
            value = {name: value}
        nested = merge(nested, value)
    return nested
