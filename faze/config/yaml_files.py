"""YAML files of parameters, each laid over the one before."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from faze.config.check import ConfigError, Fault, short

# In a checkout a link to config/config.yaml, the one that people read and change; a wheel gets a copy of it.
DEFAULTS = Path(__file__).with_name("config.yaml").resolve()
PAPER = Path(__file__).with_name("paper.yaml").resolve()  # the same of config/paper.yaml
# Of a file, each alias (*name) counted as what it stands for: a page of aliases of aliases stands for billions.
MOST_NODES, DEEPEST = 100_000, 50
_LONGEST_KEY = 500  # with all sections above it


def read_yaml(*paths: Path | str) -> dict[str, Any]:
    """Read YAML files, each laid over the one before.

    Raises:
        ConfigError: a file is missing, is not YAML (with the line), is not a mapping, or gives a key twice.
    """
    merged: dict[str, Any] = {}
    for path in paths:
        mapping, node = _read(path)
        if mapping is not None and not isinstance(mapping, Mapping):
            raise ConfigError(f"{path}: holds no keys and values")
        lines: dict[str, int] = {}
        for key, line in _keys_below(node, ""):  # YAML itself would keep the last of two values for a key, in silence
            if len(key) > _LONGEST_KEY:
                raise ConfigError(f"{path}:{line}: a key of {len(key)} characters is none of faze's")
            if key in lines:
                raise ConfigError(f"{path}:{line}: {key}: stands in line {lines[key]} already; take one of them out")
            lines[key] = line
        merged = merge(merged, mapping or {})
    return merged


def _read(path: Path | str) -> tuple[Any, yaml.Node | None]:
    """Read a file: what it holds, and its tree with the lines."""
    try:
        loader = yaml.SafeLoader(Path(path).read_text(encoding="utf-8"))
        node = loader.get_single_node()
        if node is None:
            return None, None
        _count_nodes(node, {}, 0)
        return loader.construct_document(node), node
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such config file") from None
    except (OSError, MemoryError):
        raise
    except Exception as error:  # PyYAML lets through what int, float or a date say to a text that is none
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}" if mark else ""
        words = " ".join(str(getattr(error, "problem", None) or error).split())
        raise ConfigError(f"{path}{where}: not YAML: {short(words)}") from None


def _count_nodes(node: yaml.Node, counted: dict[int, int], depth: int) -> int:
    """Count the nodes below one, aliases as often as they stand there.

    Raises:
        ValueError: they are too many or too deep, or one holds itself.
    """
    if depth > DEEPEST:
        raise ValueError(f"nested more than {DEEPEST} deep")
    if id(node) not in counted:
        counted[id(node)] = MOST_NODES  # until it is counted: within itself it has no end
        parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
        below = parts if isinstance(node, yaml.CollectionNode) else ()
        counted[id(node)] = 1 + sum(_count_nodes(part, counted, depth + 1) for part in below)
    if counted[id(node)] > MOST_NODES:
        raise ValueError(f"its aliases stand for more than {MOST_NODES} values")
    return counted[id(node)]


def keys_of(text: str) -> Iterator[tuple[str, int]]:
    """Yield every dotted key of a YAML file with the number of its line, in the order of the file."""
    yield from _keys_below(yaml.compose(text, yaml.SafeLoader), "")


def _keys_below(node: yaml.Node | None, prefix: str) -> Iterator[tuple[str, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield f"{prefix}{key.value}", key.start_mark.line + 1
            yield from _keys_below(value, f"{prefix}{key.value}.")


def merge(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Lay one mapping over another: mappings merge key by key, everything else is replaced."""
    merged = dict(base)
    for key, value in override.items():
        both = isinstance(merged.get(key), Mapping) and isinstance(value, Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def refuse(faults: Sequence[Fault], paths: Sequence[Path | str]) -> None:
    """Raise a ConfigError if there are faults: one line for each, with the file and line where its key stands."""
    if faults:
        places = {key: f"{path}:{line}: " for path in paths for key, line in keys_of(Path(path).read_text("utf-8"))}
        elsewhere = f"{paths[0]}: " if len(paths) == 1 else ""  # what is missing has no line
        raise ConfigError("\n".join(f"{places.get(fault.key.split('[')[0], elsewhere)}{fault}" for fault in faults))


def flatten(mapping: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{'a': {'b': 1}} -> {'a.b': 1}; lists are values."""
    flat: dict[str, Any] = {}
    for key, value in mapping.items():
        nested = dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value
        if isinstance(nested, Mapping):
            flat |= flatten(nested, f"{prefix}{key}.")
        else:  # a dataclass holds tuples, YAML lists
            flat[f"{prefix}{key}"] = list(value) if isinstance(value, tuple) else value
    return flat


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """{'a.b': 1} -> {'a': {'b': 1}}."""
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        for name in reversed(key.split(".")):
            value = {name: value}
        nested = merge(nested, value)
    return nested
