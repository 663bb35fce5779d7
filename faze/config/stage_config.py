"""The configuration of each stage: the sections that it reads, and the switches of its tier."""

import hashlib
import importlib.metadata
import json
import os
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from faze.base.machine import gpus
from faze.config.parameters import CONTROLS, DTED, KINDS, STAGES, TRAINING, WITHOUT_CODES, Config, DataSet, Engine, Fold

DEVICE = "FAZE_DEVICE"  # cpu or cuda: chosen once for all jobs, which may run on nodes with different devices


class Resolved:
    """A stage's own configuration: stage, name, tier, seed, control, sections and `flat` (all values by dotted key)."""

    def __init__(self, flat: Mapping[str, Any]) -> None:
        self.flat = dict(flat)
        vars(self).update(unflatten(flat))
        for section in set(STAGES[self.stage]) & set(vars(self)):
            setattr(self, section, TypeAdapter(KINDS[section]).validate_python(vars(self)[section]))
        self.hash = hashlib.sha256("\n".join(sorted(to_lines(self.flat))).encode()).hexdigest()[:12]


def resolve(
    config: Config, stage: str, tier: str | None = None, seed: int | None = None, dataset: str = "", fold: int = 0
) -> dict[str, Any]:
    """Return the values that a stage depends on, by dotted key; they are its input, provenance and MLflow params."""
    if tier == "seed":  # the noise control: a seed that the ablation does not use
        seed = next(other for other in range(config.run.seeds[0] + 1000, 2**63) if other not in config.run.seeds)
    control = tier if tier in CONTROLS else None
    values = {"stage": stage, "name": config.name, "tier": tier, "seed": seed, "control": control}
    folds = training_set(config).folds
    measured = dict.fromkeys([listed(config)[0], tier]) if stage == "measure" else listed(config)
    special = {
        "run": lambda: config.run.model_copy(update={"tiers": trained_tiers(config), "controls": controls(config)}),
        "networks": lambda: given_tiers(config),
        "given": lambda: config.tiers[tier].given,
        "fewshot": lambda: config.fewshot.model_copy(update={"learners": learners(config, tier)}),
        "preprocess": lambda: config.preprocess.model_copy(update={"datasets": ()}),
        "dataset": lambda: data_sets(config)[dataset],
        "datasets": lambda: list(data_sets(config)),
        "fold": lambda: Fold(number=fold, folds=folds) if folds else None,
        "baseline": lambda: resolve_tier(config, listed(config)[0]),
        "engine": lambda: resolve_tier(config, listed(config)[0] if control else tier),
        "benchmark": lambda: config.benchmark.model_copy(update={"rounds": 3} if stage == "measure" else {}),
        "engines": lambda: {name: resolve_tier(config, name) for name in measured},
    }
    needless = () if config.workload == DTED else set(TRAINING) - {"train"}
    names = [name for name in STAGES[stage] if name not in needless]
    sections = {name: special[name]() if name in special else getattr(config, name) for name in names}
    return flatten(values | to_jsonable_python(sections))


def data_sets(config: Config) -> dict[str, DataSet]:
    """Return the data sets by name, in the order of the configuration."""
    return {data.name: data for data in config.preprocess.datasets}


def training_set(config: Config) -> DataSet:
    """Return the data set on whose train and val people the networks are trained and validated."""
    return next(data for data in config.preprocess.datasets if data.splits != "test")


def named(config: Config) -> tuple[str, ...]:
    """Return the names in `run.tiers`, in order; if it is auto, return the list for the baseline's device."""
    return config.auto_tiers[auto_device(config)] if config.run.tiers == "auto" else config.run.tiers


def given_tiers(config: Config) -> dict[str, str]:
    """Return the tiers that are networks of other projects, with these; they are neither trained nor measured."""
    return {tier: given.network for tier in named(config) if (given := config.tiers[tier].given)}


def listed(config: Config) -> list[str]:
    """Return the tiers that are measured, in order."""
    return [tier for tier in named(config) if not config.tiers[tier].given]


def learners(config: Config, tier: str | None) -> list[str]:
    """Return the learners used with a tier; networks of other projects have no codes."""
    given = tier is not None and tier not in CONTROLS and config.tiers[tier].given
    return [name for name in config.fewshot.learners if not given or name in WITHOUT_CODES]


def auto_device(config: Config) -> str:
    """Return the baseline's device, cpu or cuda; `auto` means cuda if torch supports CUDA and there is a GPU."""
    device = next(iter(config.tiers.values())).device
    if device != "auto":
        return device
    supported = not importlib.metadata.version("torch").endswith("+cpu")  # importing torch itself takes seconds
    return os.environ.get(DEVICE) or ("cuda" if supported and gpus() else "cpu")


def trained_tiers(config: Config) -> list[str]:
    """Return the tiers that are trained, always including the first; all other tiers are only benchmarked."""
    return [tier for tier in listed(config) if tier == listed(config)[0] or config.tiers[tier].train]


def controls(config: Config) -> list[str]:
    """Return the noise controls, or none if only one tier is trained, as they matter only in comparisons of tiers."""
    return list(config.run.controls) if len(trained_tiers(config)) > 1 else []


def resolve_tier(config: Config, tier: str) -> Engine:
    """Return all switches of a tier, including switches inherited from the tiers that it builds on.

    A tier builds on its `on` or, by default, on the previous tier in the list; a tier that is not listed, on the first.
    """
    first, tiers, switches = next(iter(config.tiers)), listed(config), {}
    while True:
        own = config.tiers[tier].model_dump(exclude={"on", "train", "given"}, exclude_none=True)
        if "optimizer" in own:  # the options of the base belong to its optimiser
            own.setdefault("optimizer_options", {})
        switches = own | switches
        if tier == first:
            return Engine(**switches)
        before = tiers[tiers.index(tier) - 1] if tier in tiers[1:] else first
        tier = config.tiers[tier].on or before


def flatten(mapping: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten {'a': {'b': 1}} to {'a.b': 1}, keeping lists and empty mappings as values."""
    flat: dict[str, Any] = {}
    for key, value in mapping.items():
        nested = isinstance(value, Mapping) and value
        flat |= flatten(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return flat


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Reverse `flatten`."""
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        inner = nested
        *sections, name = key.split(".")
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[name] = value
    return nested


def to_lines(flat: Mapping[str, Any]) -> list[str]:
    """Return a `key: value` line for each value, in a form that `read_yaml` can read."""
    return [f"{key}: {json.dumps(value)}" for key, value in flat.items()]
