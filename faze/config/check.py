"""Check a mapping and build a frozen dataclass from it. All errors are reported at once, by YAML key.

This module does not depend on faze's parameters, which `faze.config.parameters` declares. It uses only the standard
library.
"""

import contextlib
import dataclasses
import difflib
import sys
import types
import unicodedata
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from faze.base.errors import UserError

_LARGEST_FLOAT = sys.float_info.max
_LONGEST_SHOWN = 200  # characters of a value in a sentence
_LONGEST_GUESSED = 100  # characters of a name for which a similar one is suggested
LONGEST_NAME = 100  # bytes of the name of a tier, ablation or data set, which becomes part of longer names


class ConfigError(UserError):
    """All errors in a configuration, one per line."""


@dataclass(frozen=True)
class Range:
    """Inclusive bounds of a number; None means unbounded."""

    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        return f"at least {self.low}" if self.high is None else f"between {self.low} and {self.high}"

    def __contains__(self, value: float) -> bool:
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


@dataclass(frozen=True)
class MayBeEmpty:
    """Mark a list that may be empty."""


@dataclass(frozen=True)
class Fault:
    """An error in a configuration: the dotted key and a sentence."""

    key: str
    sentence: str

    def __str__(self) -> str:
        return f"{short(self.key)}: {self.sentence}"


def check_value(key: str, value: Any, kind: Any) -> Iterator[Fault]:
    """Yield the errors in a value, given its declared type."""
    origin, args = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind):
        yield from check_mapping(key, value, fields_of(kind), optional=defaults_of(kind))
    elif origin is dict:
        yield from check_mapping(key, value, dict.fromkeys(value if isinstance(value, Mapping) else (), args[1]))
    elif origin is Annotated and isinstance(args[1], MayBeEmpty):
        if value not in ([], ()):
            yield from check_value(key, value, args[0])
    elif origin is Annotated:
        yield from _check_range(key, value, args[0], args[1])
    elif origin is Literal:
        if value not in args or isinstance(value, bool) != any(isinstance(a, bool) for a in args):
            yield Fault(key, f"{shown(value)} is not one of {', '.join(map(str, args))}{nearest(value, args)}")
    elif origin in (Union, types.UnionType):
        yield from _check_union(key, value, args)
    elif origin is list:
        yield from _check_list(key, value, args[0])
    elif kind in (int, float):
        # Bounds of finite floats, and of 64-bit integers.
        low, high = (-_LARGEST_FLOAT, _LARGEST_FLOAT) if kind is float else (-(2**63), 2**63 - 1)
        if isinstance(value, bool) or not isinstance(value, int | kind) or not low <= value <= high:
            yield Fault(key, _not_a_number(value, kind))
    elif not isinstance(value, kind):
        yield Fault(key, f"{shown(value)} is not {_NAMES[kind]}")


def _check_union(key: str, value: Any, kinds: Sequence[Any]) -> Iterator[Fault]:
    """Check a value that may be of a given type, None, or one of several words."""
    words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    if (value is None and type(None) in kinds) or (isinstance(value, str) and value in words):
        return
    kind = next(kind for kind in kinds if kind is not type(None) and get_origin(kind) is not Literal)
    either = f", or {', '.join(words)}{nearest(value, words)}" if words else ""
    yield from (Fault(fault.key, f"{fault.sentence}{either}") for fault in check_value(key, value, kind))


_NAMES = {str: "text", bool: "true or false", dict: "a section of keys and values"}


def _check_range(key: str, value: Any, kind: Any, allowed: Range) -> Iterator[Fault]:
    faults = list(check_value(key, value, kind))
    yield from faults
    if not faults and value is not None and value not in allowed:
        yield Fault(key, f"{shown(value)} must be {allowed}")


def _check_list(key: str, value: Any, kind: Any) -> Iterator[Fault]:
    if not isinstance(value, list | tuple):
        yield Fault(key, f"{shown(value)} is not a list: write [{shown(value)}]")
        return
    if not value:
        yield Fault(key, "the list is empty")
    if len(set(map(as_text, value))) < len(value):
        yield Fault(key, f"{shown(list(value))} contains a value twice")
    for i, item in enumerate(value):
        yield from check_value(f"{key}[{i}]", item, kind)


def _not_a_number(value: Any, kind: type[float] | type[int]) -> str:
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            number = float(value)
            remedy = str(int(number)) if kind is int and number.is_integer() else yaml_number(number)
            return f"YAML reads {short(value)} as text; write {remedy}"
    return f"{shown(value)} is not {'a number' if kind is float else 'a whole number'}"


def yaml_number(number: float) -> str:
    """Format a number so that YAML 1.1 parses it as a number (1e-05 needs a dot)."""
    text = repr(number)
    mantissa, e, exponent = text.partition("e")
    return text if not e or "." in mantissa else f"{mantissa}.0e{exponent}"


def shown(value: Any) -> str:
    """Format a value of any type and size for a message."""
    try:
        return short(repr(value))
    except ValueError:  # Python refuses to write numbers of thousands of digits
        return "a number with thousands of digits"


def as_text(value: Any) -> str:
    """Format a value as text, so that different values yield different texts."""
    try:
        return str(value)
    except ValueError:
        return shown(value)


def short(text: str) -> str:
    """Shorten a text, and replace control characters."""
    short = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
    return "".join(letter if letter.isprintable() else "?" for letter in short)


def nearest(name: Any, known: Sequence[Any]) -> str:
    """Suggest the known name that was probably meant; return "" if none is similar."""
    if isinstance(name, str) and len(name) > _LONGEST_GUESSED:
        return ""
    match = difflib.get_close_matches(as_text(name), [str(k) for k in known], n=1, cutoff=0.7)
    return f"; did you mean {match[0]}?" if match else ""


def check_mapping(
    key: str, mapping: Any, kinds: Mapping[str, Any], complete: bool = True, optional: Container[str] = ()
) -> Iterator[Fault]:
    """Yield the errors in a mapping: unknown keys, missing keys (if it must be complete), wrong values."""
    dot = f"{key}." if key else ""
    if not isinstance(mapping, Mapping):
        yield Fault(key, f"{shown(mapping)} is not a section of keys and values")
        return
    for name, value in mapping.items():
        if name not in kinds:
            yield Fault(f"{dot}{as_text(name)}", f"unknown key{nearest(name, list(kinds))}")
        else:
            yield from check_value(f"{dot}{name}", value, kinds[name])
    missing = [name for name in kinds if complete and name not in mapping and name not in optional]
    yield from (Fault(f"{dot}{name}", "missing") for name in missing)


def fields_of(section: type) -> dict[str, Any]:
    """Return the declared type of each field, with its Annotated range."""
    return get_type_hints(section, include_extras=True)


def defaults_of(section: type) -> dict[str, Any]:
    """Return the fields that may be missing, with their defaults: only those of entries of lists."""
    return {f.name: f.default for f in dataclasses.fields(section) if f.default is not dataclasses.MISSING}


def folded(name: str) -> str:
    """Return the form in which a file system that ignores case, as of macOS and Windows, compares names."""
    return unicodedata.normalize("NFC", name).casefold()


def names_a_folder(name: str) -> bool:
    """Return whether a name consists of letters, digits, - and _, and is short enough to be part of longer names."""
    plain = name.replace("_", "").replace("-", "").isalnum() and not name.startswith("-")
    return plain and len(name.encode()) <= LONGEST_NAME


def build(kind: Any, value: Any) -> Any:
    """Build a frozen dataclass from a checked mapping; lists become tuples."""
    if dataclasses.is_dataclass(kind):
        value = defaults_of(kind) | dict(value)
        return kind(**{name: build(field, value[name]) for name, field in fields_of(kind).items()})
    if get_origin(kind) is dict:
        return {key: build(get_args(kind)[1], item) for key, item in value.items()}
    if get_origin(kind) in (Union, types.UnionType) and isinstance(value, Mapping):
        return build(next(one for one in get_args(kind) if dataclasses.is_dataclass(one)), value)
    if isinstance(value, list):
        return tuple(build(get_args(kind)[0], item) if get_origin(kind) is list else item for item in value)
    return float(value) if float in (kind, *get_args(kind)[:1]) else value
