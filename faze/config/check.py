"""From a mapping to a frozen dataclass: every error at once, in the words of the person who wrote the YAML.

Knows nothing of faze's own parameters (`faze.config.parameters` declares them) and needs the standard library and yaml
only.
"""

import dataclasses
import difflib
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from faze.base.errors import UserError


class ConfigError(UserError):
    """All that is wrong with a configuration: one line per fault."""


@dataclass(frozen=True)
class Range:
    """Inclusive bounds of a number; None is unbounded."""

    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        if self.high is None:
            return f"at least {self.low}"
        return f"between {self.low} and {self.high}"

    def __contains__(self, value: float) -> bool:
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


@dataclass(frozen=True)
class MayBeEmpty:
    """Marks a list that may hold nothing."""


@dataclass(frozen=True)
class Fault:
    """One thing wrong: the dotted key it concerns and a sentence."""

    key: str
    sentence: str


def check_value(key: str, value: Any, kind: Any) -> Iterator[Fault]:
    """Yield what is wrong with one value against its declared type."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated and isinstance(args[1], MayBeEmpty):
        if value not in ([], ()):
            yield from check_value(key, value, args[0])
    elif origin is Annotated:
        yield from _check_range(key, value, args[0], args[1])
    elif origin is Literal:
        if value not in args or isinstance(value, bool) != any(isinstance(a, bool) for a in args):
            yield Fault(key, f"{value!r} is not one of {', '.join(map(str, args))}{nearest(value, args)}")
    elif origin in (Union, types.UnionType):
        yield from _check_union(key, value, args)
    elif origin in (list, tuple):
        yield from _check_list(key, value, args[0])
    elif kind is float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            yield Fault(key, _not_a_number(value, "a number"))
    elif kind is int:
        if isinstance(value, bool) or not isinstance(value, int):
            yield Fault(key, _not_a_number(value, "a whole number"))
    elif not isinstance(value, kind):
        yield Fault(key, f"{value!r} is not {_NAMES[kind]}")


def _check_union(key: str, value: Any, kinds: Sequence[Any]) -> Iterator[Fault]:
    """A kind, or nothing, or one of some words."""
    words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    if (value is None and type(None) in kinds) or (isinstance(value, str) and value in words):
        return
    kind = next(kind for kind in kinds if kind is not type(None) and get_origin(kind) is not Literal)
    either = f", or {', '.join(words)}{nearest(value, words)}" if words else ""
    yield from (Fault(fault.key, f"{fault.sentence}{either}") for fault in check_value(key, value, kind))


_NAMES = {str: "text", bool: "true or false"}


def _check_range(key: str, value: Any, kind: Any, allowed: Range) -> Iterator[Fault]:
    faults = list(check_value(key, value, kind))
    yield from faults
    if not faults and value is not None and value not in allowed:
        yield Fault(key, f"{value!r} must be {allowed}")


def _check_list(key: str, value: Any, kind: Any) -> Iterator[Fault]:
    if not isinstance(value, list | tuple):
        yield Fault(key, f"{value!r} is not a list: write [{value}]")
        return
    if not value:
        yield Fault(key, "the list is empty")
    if len(set(map(str, value))) < len(value):
        yield Fault(key, f"{list(value)} names something twice")
    for i, item in enumerate(value):
        yield from check_value(f"{key}[{i}]", item, kind)


def _not_a_number(value: Any, wanted: str) -> str:
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            return f"{value!r} is not {wanted}"
        return f"YAML reads {value} as text; write {yaml_number(number)}"
    return f"{value!r} is not {wanted}"


def yaml_number(number: float) -> str:
    """Write a number so that YAML 1.1 reads it as one (1e-05 needs its dot)."""
    text = repr(number)
    mantissa, e, exponent = text.partition("e")
    return text if not e or "." in mantissa else f"{mantissa}.0e{exponent}"


def nearest(name: Any, known: Sequence[Any]) -> str:
    """Say which known name was probably meant; empty when none is near."""
    match = difflib.get_close_matches(str(name), [str(k) for k in known], n=1, cutoff=0.5)
    return f"; did you mean {match[0]}?" if match else ""


def check_mapping(key: str, mapping: Any, kinds: Mapping[str, Any], complete: bool = True) -> Iterator[Fault]:
    """Yield what is wrong with a mapping: unknown keys, missing keys (if it must be complete), bad values."""
    dot = f"{key}." if key else ""
    if not isinstance(mapping, Mapping):
        yield Fault(key, f"{mapping!r} is not a section of keys and values")
        return
    for name, value in mapping.items():
        if name not in kinds:
            yield Fault(f"{dot}{name}", f"unknown key{nearest(name, list(kinds))}")
        elif dataclasses.is_dataclass(kinds[name]):
            yield from check_mapping(f"{dot}{name}", value, fields_of(kinds[name]))
        else:
            yield from check_value(f"{dot}{name}", value, kinds[name])
    if complete:
        for name in kinds:
            if name not in mapping:
                yield Fault(f"{dot}{name}", "missing")


def fields_of(section: type) -> dict[str, Any]:
    """Field name -> declared type, Annotated ranges kept."""
    return get_type_hints(section, include_extras=True)


def build(section: type, mapping: Mapping[str, Any]) -> Any:
    """Make a frozen dataclass from a checked mapping; lists become tuples."""
    values = {}
    for name, kind in fields_of(section).items():
        value = mapping[name]
        if dataclasses.is_dataclass(kind):
            value = build(kind, value)
        elif isinstance(value, list):
            value = tuple(value)
        elif kind is float or (get_origin(kind) is Annotated and get_args(kind)[0] is float):
            value = float(value)
        values[name] = value
    return section(**values)


def report(faults: Sequence[Fault], paths: Sequence[Path | str] = ()) -> str:
    """One line per fault, each with the file and line where its key stands."""
    return "\n".join(f"{_place(fault.key, paths)}{fault.key}: {fault.sentence}" for fault in faults)


def _place(key: str, paths: Sequence[Path | str]) -> str:
    names = key.split("[")[0].split(".")
    for path in reversed(list(paths)):
        line = _line_of(names, yaml.compose(Path(path).read_text(encoding="utf-8")))
        if line is not None:
            return f"{path}:{line}: "
    return ""


def _line_of(names: Sequence[str], node: Any) -> int | None:
    line = None
    for name in names:
        if not isinstance(node, yaml.MappingNode):
            return None
        for key, value in node.value:
            if key.value == name:
                line, node = key.start_mark.line + 1, value
                break
        else:
            return None
    return line
