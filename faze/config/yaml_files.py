"""Read YAML files of parameters, each overriding the previous ones, and report the faults of their values."""

import difflib
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from faze.base.errors import UserError

DEFAULTS = Path(__file__).with_name("config.yaml").resolve()  # a link to config/config.yaml, which a wheel contains
Fault = tuple[str, str]  # a dotted key, such as preprocess.datasets.0.path, and a sentence
MISSING = "missing"


class _Loader(yaml.SafeLoader):
    """YAML 1.2's scalars: 1e-3 is a number, and the key `on` is a word."""

    yaml_implicit_resolvers = {
        first: [(tag, form) for tag, form in known if tag != "tag:yaml.org,2002:bool"]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("true|false"), list("tf"))
_EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")
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


def faults_of(error: ValidationError, known: Collection[str]) -> Iterator[Fault]:
    """Yield what pydantic found, with the nearest known key or value."""
    for fault in error.errors(include_url=False):
        key, kind, value = ".".join(map(str, fault["loc"])), fault["type"], fault["input"]
        if kind == "too_short" and value:  # since pydantic does not count the faulty ones
            continue
        if kind == "extra_forbidden":
            yield key, f"unknown key{nearest(str(fault['loc'][-1]), known)}"
        elif kind == "literal_error":
            allowed = re.findall("'(.*?)'", fault["ctx"]["expected"])
            yield key, f"{value!r:.80} is not one of {', '.join(allowed)}{nearest(str(value), allowed)}"
        else:
            yield key, MISSING if kind == "missing" else f"{fault['msg']}, not {value!r:.80}"


def nearest(name: str, known: Collection[str]) -> str:
    """Suggest the known name that was probably meant; return "" if none is similar."""
    match = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {match[0]}?" if match else ""


def refuse(faults: Iterable[Fault], paths: Sequence[Path | str]) -> None:
    """Raise a UserError if there are faults: a line for each, with the file and line of its key."""
    places: dict[str, str] = {}
    for path in paths:
        own = dict(_places(yaml.compose(Path(path).read_text(encoding="utf-8")), path))
        kept = {key: place for key, place in places.items() if re.sub(r"\.\d.*", "", key) not in own}
        places = kept | own  # a list replaces an earlier one
    lines = []
    for key, sentence in faults:
        stated = key  # pydantic appends the names of types
        while stated and stated not in places:
            stated = stated.rpartition(".")[0]
        shown = key if sentence == MISSING or not stated else stated
        lines.append(f"{places.get(stated, '')}{shown}: {sentence}")
    if lines:
        raise UserError("\n".join(lines))


def _places(node: yaml.Node | None, path: Path | str, prefix: str = "") -> Iterator[Fault]:
    """Yield each dotted key of a file with `file:line: `."""
    named = isinstance(node, yaml.MappingNode)
    for number, item in enumerate(node.value if isinstance(node, yaml.CollectionNode) else ()):
        key, value = item if named else (item, item)
        name = f"{prefix}{key.value if named else number}"
        yield name, f"{os.path.relpath(path)}:{key.start_mark.line + 1}: "
        yield from _places(value, path, f"{name}.")
