"""A stage's own configuration: the values on which it depends, in a file that the workflow writes for it.

config.yaml -> read_config() -> resolve() -> to_lines() -> load() in the stage.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from faze.config.parameters import CONTROLS, KINDS, STAGES, Config, DataSet, Fold
from faze.config.tiers import controls, listed, resolve_tier, trained_tiers
from faze.config.yaml_files import flatten, read_yaml, to_lines, unflatten


class Resolved:
    """A stage's own configuration: stage, name, tier, seed, control, each section, and `flat`, all by dotted key."""

    def __init__(self, flat: Mapping[str, Any]) -> None:
        self.flat = dict(flat)
        vars(self).update(unflatten(flat))
        for section in STAGES[self.stage]:
            setattr(self, section, TypeAdapter(KINDS[section]).validate_python(vars(self)[section]))

    @property
    def hash(self) -> str:
        """Hash of the values: 12 hex digits, independent of their order."""
        return hashlib.sha256("\n".join(sorted(to_lines(self.flat))).encode()).hexdigest()[:12]


def load(path: Path | str) -> Resolved:
    """Read a stage's own configuration."""
    return Resolved(read_yaml(path))


def resolve(
    config: Config, stage: str, tier: str | None = None, seed: int | None = None, dataset: str = "", fold: int = 0
) -> dict[str, Any]:
    """Return the values on which a stage depends, by dotted key: its input, provenance and MLflow params."""
    if tier == "seed":  # the noise control: a seed that the ablation does not have
        seed = next(other for other in range(config.run.seeds[0] + 1000, 2**63) if other not in config.run.seeds)
    control = tier if tier in CONTROLS else None
    values = {"stage": stage, "name": config.name, "tier": tier, "seed": seed, "control": control}
    folds = training_set(config).folds
    special = {
        "run": lambda: config.run.model_copy(update={"tiers": trained_tiers(config), "controls": controls(config)}),
        "preprocess": lambda: config.preprocess.model_copy(update={"datasets": ()}),
        "dataset": lambda: data_sets(config)[dataset],
        "datasets": lambda: list(data_sets(config)),
        "fold": lambda: Fold(number=fold, folds=folds) if folds else None,
        "engine": lambda: resolve_tier(config, listed(config)[0] if control else tier),
        "engines": lambda: {name: resolve_tier(config, name) for name in listed(config)},
    }
    sections = {name: special[name]() if name in special else getattr(config, name) for name in STAGES[stage]}
    return flatten(values | to_jsonable_python(sections))


def data_sets(config: Config) -> dict[str, DataSet]:
    """Return the data sets by name, in the order of the configuration."""
    return {data.name: data for data in config.preprocess.datasets}


def training_set(config: Config) -> DataSet:
    """Return the data set whose train and val people train the networks."""
    return next(data for data in config.preprocess.datasets if data.splits != "test")
