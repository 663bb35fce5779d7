"""A stage's own configuration: the file that the workflow writes for it, with the sections that it declares alone.

config.yaml -> read_yaml() -> validate() -> climb() the ladder -> resolve() one stage's file -> load() in that stage.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faze.config.check import ConfigError, build, check_mapping, fields_of, report, yaml_number
from faze.config.ladder import climb, leave_one_out, topmost
from faze.config.parameters import PARTS, SECTIONS, STAGES, Engine
from faze.config.validation import check_steps
from faze.config.yaml_files import read_yaml

LADDERS = ("engines", "leave_one_out")  # sections of a resolved file that hold several tiers' switches


def resolve(config: Mapping[str, Any], stage: str, tier: str | None = None, seed: int | None = None) -> dict[str, Any]:
    """All that one stage may know, as flat dotted keys: its input, its provenance and its MLflow params.

    The word tier ends here: `engine` holds the switches that the ladder adds up to.
    """
    flat: dict[str, Any] = {"stage": stage, "name": config["name"]}
    if tier is not None:
        flat |= {"tier": tier, "seed": seed}
    for section in STAGES[stage]:
        if section == "engine":
            assert tier is not None, f"stage {stage} needs a tier"
            flat |= flatten({"engine": dataclasses.asdict(climb(config["tiers"], tier))})
        elif section == "engines":
            rungs = {t: dataclasses.asdict(climb(config["tiers"], t)) for t in config["run"]["tiers"]}
            flat |= flatten({"engines": rungs})
        elif section == "leave_one_out":
            wanted = config["benchmark"]["leave_one_out"]
            variants = leave_one_out(config["tiers"], topmost(config)) if wanted else {}
            flat |= flatten(
                {"leave_one_out": {name: dataclasses.asdict(variant) for name, variant in variants.items()}}
            )
        else:
            known = fields_of(PARTS.get((stage, section), SECTIONS[section]))
            flat |= flatten({section: {key: value for key, value in config[section].items() if key in known}})
    return flat


def flatten(mapping: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{'a': {'b': 1}} -> {'a.b': 1}; lists are values."""
    flat: dict[str, Any] = {}
    for key, value in mapping.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:  # a dataclass holds tuples, YAML lists
            flat[f"{prefix}{key}"] = list(value) if isinstance(value, tuple) else value
    return flat


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """{'a.b': 1} -> {'a': {'b': 1}}."""
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *parents, last = key.split(".")
        node = nested
        for name in parents:
            node = node.setdefault(name, {})
        node[last] = value
    return nested


def to_lines(flat: Mapping[str, Any]) -> list[str]:
    """One `key: value` line per entry, each YAML by itself: what a resolved file holds."""
    return [f"{key}: {yaml_number(v) if isinstance(v, float) else json.dumps(v)}" for key, v in flat.items()]


@dataclass(frozen=True)
class Resolved:
    """A stage's own configuration: who it is for, and its declared sections as frozen dataclasses."""

    stage: str
    name: str
    tier: str | None
    seed: int | None
    sections: Mapping[str, Any]
    flat: Mapping[str, Any]

    def __getattr__(self, section: str) -> Any:
        try:
            return self.sections[section]
        except KeyError:
            raise AttributeError(f"stage {self.stage} does not declare the section {section!r}") from None

    @property
    def hash(self) -> str:
        """Identity of these values: 12 hex digits, independent of their order."""
        return hashlib.sha256("\n".join(sorted(to_lines(self.flat))).encode()).hexdigest()[:12]


def load(path: Path | str, stage: str) -> Resolved:
    """Read and check one stage's resolved file.

    Raises:
        ConfigError: the file is for another stage, or a key is missing, unknown or wrong.
    """
    nested = unflatten(read_yaml(path))
    found = nested.get("stage")
    if found != stage:
        raise ConfigError(f"{path}: is for stage {found!r}, not {stage!r}")
    kinds: dict[str, Any] = {"stage": str, "name": str, "tier": str | None, "seed": int | None}
    nested = {"tier": None, "seed": None} | nested
    sections = {"engine": Engine} | SECTIONS
    plain = {s: PARTS.get((stage, s), sections[s]) for s in STAGES[stage] if s not in LADDERS}
    ladders = {ladder: nested.pop(ladder, {}) for ladder in LADDERS if ladder in STAGES[stage]}
    faults = list(check_mapping("", nested, kinds | plain))
    for ladder, rungs in ladders.items():
        for rung, switches in rungs.items():
            faults += check_mapping(f"{ladder}.{rung}", switches, fields_of(Engine))
    if not faults and "fewshot" in plain:
        faults += check_steps(nested["fewshot"])
    if faults:
        raise ConfigError(report(faults, [path]))
    built: dict[str, Any] = {s: build(kind, nested[s]) for s, kind in plain.items()}
    for ladder, rungs in ladders.items():
        built[ladder] = {rung: build(Engine, switches) for rung, switches in rungs.items()}
    return Resolved(stage, nested["name"], nested["tier"], nested["seed"], built, flatten(unflatten(read_yaml(path))))
