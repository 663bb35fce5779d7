"""The parameters as a JSON schema, for editors that complete and check YAML.

    python -m faze.config.editor_schema >workflow/schemas/config.schema.yaml

It is generated from the dataclasses of `faze.config.parameters` and the comments of config/config.yaml; a test compares
the file with its source. It is for editors only: `faze.config.validation` checks configurations, including
combinations.
"""

import sys
import types
from collections.abc import Mapping
from dataclasses import is_dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml

from faze.config.check import MayBeEmpty, defaults_of, fields_of
from faze.config.parameters import SECTIONS, Engine
from faze.config.tiers import WEIGHTS
from faze.config.yaml_files import DEFAULTS, keys_of

Schema = dict[str, Any]
NAMES = {str: "string", bool: "boolean", int: "integer", float: "number"}


def config_schema(defaults: str) -> Schema:
    """Return the schema of a config file, which may contain any of the parameters and no other key.

    Args:
        defaults: text of config.yaml, whose comments become descriptions.
    """
    notes = comments(defaults)
    tier = section_schema(Engine, "tiers.baseline", notes)
    tier["properties"][WEIGHTS] = {"type": "string"}
    properties = {
        "name": {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"},
        "workload": {"type": "string"},
        "tiers": {"type": "object", "additionalProperties": tier},
        **{name: section_schema(section, name, notes) for name, section in SECTIONS.items()},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "faze",
        "type": "object",
        "additionalProperties": False,
        "properties": {name: _described(schema, notes.get(name)) for name, schema in properties.items()},
    }


def section_schema(section: type, name: str, notes: Mapping[str, str]) -> Schema:
    """Return the schema of a dataclass, with the notes on `name.field` as descriptions of its fields."""
    properties = {
        field: _described(value_schema(kind, f"{name}.{field}", notes), notes.get(f"{name}.{field}"))
        for field, kind in fields_of(section).items()
    }
    return {"type": "object", "additionalProperties": False, "properties": properties}


def value_schema(kind: Any, name: str = "", notes: Mapping[str, str] = MappingProxyType({})) -> Schema:
    """Return the schema of a declared type, as `faze.config.check.check_value` reads it."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated and isinstance(args[1], MayBeEmpty):
        return value_schema(args[0]) | {"minItems": 0}
    if origin is Annotated:
        ends = {"minimum": args[1].low, "maximum": args[1].high}
        return value_schema(args[0]) | {word: end for word, end in ends.items() if end is not None}
    if origin is Literal:
        return {"enum": list(args)}
    if origin in (Union, types.UnionType):
        kinds = [value_schema(kind) for kind in args if kind is not type(None)]
        if len(kinds) > 1:
            return {"anyOf": kinds}
        return kinds[0] | {"type": [kinds[0]["type"], "null"]}
    if origin is dict:
        return {"type": "object", "additionalProperties": value_schema(args[1])}
    if kind is object:
        return {}
    if origin is list and is_dataclass(args[0]):
        entry = section_schema(args[0], f"{name}[0]", notes)
        required = [field for field in fields_of(args[0]) if field not in defaults_of(args[0])]
        return {"type": "array", "minItems": 1, "items": entry | {"required": required}}
    if origin is list:
        return {"type": "array", "minItems": 1, "uniqueItems": True, "items": value_schema(args[0])}
    return {"type": NAMES[kind]}


def _described(schema: Schema, note: str | None) -> Schema:
    return {"description": note} | schema if note else schema


def comments(text: str) -> dict[str, str]:
    """Return the comment on the line of each key, by dotted key."""
    lines = text.splitlines()
    notes = {key: lines[number - 1].partition(" # ")[2].strip() for key, number in keys_of(text)}
    return {key: note for key, note in notes.items() if note}


def main() -> None:
    """Print the schema."""
    print("# Generated for editors: python -m faze.config.editor_schema >workflow/schemas/config.schema.yaml")
    schema = config_schema(DEFAULTS.read_text(encoding="utf-8"))
    yaml.safe_dump(schema, sys.stdout, sort_keys=False, allow_unicode=True, width=120)


if __name__ == "__main__":
    main()
