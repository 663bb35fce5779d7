"""A stage's own configuration: the file that the workflow writes for it, with only the sections that it declares.

config.yaml -> read_yaml() -> validate() -> resolve_tier() -> resolve() one stage's values -> write() -> load().
"""

import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

from faze.base.files import whole_file
from faze.config.check import ConfigError, build, check_mapping, fields_of, shown, yaml_number
from faze.config.datasets import data_sets, training_folds
from faze.config.parameters import CONTROLS, SHARED, STAGES, Fold, NormalizedCamera
from faze.config.tiers import (
    at_point,
    at_weights,
    evaluated_tiers,
    given_weights,
    leave_one_out,
    points,
    resolve_tier,
    switch_tiers,
    tier_bases,
)
from faze.config.validation import check_steps
from faze.config.workloads import DTED
from faze.config.yaml_files import flatten, read_yaml, refuse, unflatten

# Identity of a file. `name` is None if ablations share the outputs of the stage (SHARED). Only training runs have a
# `control`; elsewhere its name is in `tier`.
IDENTITY = {"stage": str, "name": str | None, "tier": str | None, "seed": int | None, "control": str | None}


def resolve(
    config: Mapping[str, Any],
    stage: str,
    tier: str | None = None,
    seed: int | None = None,
    dataset: str | None = None,
    fold: int = 0,
) -> dict[str, Any]:
    """Return all values on which a stage may depend, by dotted key: its input, provenance and MLflow params.

    `engine` contains the switches of the tier or, for a noise control, those of the baseline. A sweep point overrides
    values in any section. `dataset` contains only the named data set, so that changing another does not re-run its
    preprocessing.
    """
    of_sweep = points(config) if tier is not None or "points" in STAGES[stage] else {}
    if tier in of_sweep:
        config = at_point(config, tier, of_sweep[tier])
    if weights := given_weights(config).get(tier):
        config = at_weights(config, weights)
    flat: dict[str, Any] = {"stage": stage} | ({} if stage in SHARED else {"name": config["name"]})
    if tier is not None:
        flat |= {"tier": tier, "seed": other_seed(config["run"]["seeds"]) if tier == "seed" else seed}
    if stage in ("train", "train_workload"):
        flat |= {"control": tier if tier in CONTROLS else None}
    for section, kind in STAGES[stage].items():
        of_dted = type(None) in get_args(kind)
        if of_dted and config["workload"] != DTED:
            known = None
        elif section == "engine":
            assert tier is not None, f"stage {stage} needs a tier"
            known = resolve_tier(config, next(iter(tier_bases(config))) if tier in CONTROLS else tier)
        elif section == "points":
            known = {point: unflatten(values) for point, values in of_sweep.items()}
        elif section == "engines":
            known = {name: resolve_tier(config, name) for name in switch_tiers(config)}
        elif section == "leave_one_out":
            known = leave_one_out(config) if config["benchmark"]["leave_one_out"] else {}
        elif section == "workload":
            known = config["workload"]
        elif section == "run":
            known = config["run"] | {"tiers": evaluated_tiers(config)}
        elif section == "dataset":
            assert dataset is not None, f"stage {stage} needs a data set"
            known = data_sets(config)[dataset]
        elif section == "fold":
            known = Fold(fold, folds) if (folds := training_folds(config)) else None
        elif section == "datasets":
            known = list(data_sets(config))
        else:
            fields = fields_of(get_args(kind)[0] if of_dted else kind)
            known = {key: value for key, value in config[section].items() if key in fields}
        flat |= flatten({section: known})
    return flat


def camera_of(config: Mapping[str, Any]) -> NormalizedCamera:
    """Return the virtual camera in a checked configuration."""
    return build(NormalizedCamera, {key: config["preprocess"][key] for key in fields_of(NormalizedCamera)})


def other_seed(seeds: Sequence[int]) -> int:
    """Choose a seed for the noise control `seed` that is not among the seeds of the ablation."""
    return next(seed for seed in itertools.count(seeds[0] + 1000) if seed not in seeds)


def to_lines(flat: Mapping[str, Any]) -> list[str]:
    """Return the lines of a resolved file: `key: value`, each valid YAML."""
    return [f"{key}: {yaml_number(v) if isinstance(v, float) else _text(v)}" for key, v in flat.items()]


def _text(value: Any) -> str:
    r"""Format a value as ASCII JSON, writing \U0001f600 instead of surrogate pairs, which YAML does not support."""
    return re.sub(
        r"\\u(d[89ab]..)\\u(d[c-f]..)",
        lambda pair: f"\\U{ord(bytes.fromhex(pair[1] + pair[2]).decode('utf-16-be')):08x}",
        json.dumps(value),
    )


SUM = "# sha256 of "  # start of the first line of a file that the workflow wrote


def write(path: Path, lines: Sequence[str]) -> None:
    """Write a stage's configuration with its checksum, unless the file already has the same content."""
    text = "".join(f"{line}\n" for line in lines)
    text = f"{SUM}what follows: {hashlib.sha256(text.encode()).hexdigest()}\n{text}"
    if not path.is_file() or path.read_text(encoding="utf-8", errors="replace") != text:
        with whole_file(path) as temporary:
            temporary.write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class Resolved:
    """A stage's own configuration: its identity, its sections as frozen dataclasses, and all values by dotted key."""

    stage: str
    name: str | None
    tier: str | None
    seed: int | None
    control: str | None  # the noise control, if the training is one
    sections: Mapping[str, Any]
    flat: Mapping[str, Any]

    def __getattr__(self, section: str) -> Any:
        if section.startswith("__"):  # pickle reads these before `sections` exists
            raise AttributeError(section)
        try:
            return self.sections[section]
        except KeyError:
            raise AttributeError(f"stage {self.stage} does not declare the section {section!r}") from None

    @property
    def hash(self) -> str:
        """Hash of the values: 12 hex digits, independent of their order."""
        return hashlib.sha256("\n".join(sorted(to_lines(self.flat))).encode()).hexdigest()[:12]

    @property
    def values(self) -> Mapping[str, Any]:
        """All values except the name of the tier: runs that differ only in it are the same experiment."""
        return {key: value for key, value in self.flat.items() if key != "tier"}


def load(path: Path | str, stage: str) -> Resolved:
    """Read and check the resolved configuration of one stage.

    Raises:
        ConfigError: the file is for another stage or was modified, or a key is missing, unknown or invalid.
    """
    flat = flatten(read_yaml(path))
    first, _, rest = Path(path).read_text(encoding="utf-8").partition("\n")
    if first.startswith(SUM) and hashlib.sha256(rest.encode()).hexdigest() not in first:
        raise ConfigError(
            f"{path}: was modified after the workflow wrote it; delete it and run the same command again, or delete "
            "its "
            "first line if the change is intended"
        )
    return build_config(flat, stage, path)


def build_config(flat: Mapping[str, Any], stage: str, path: Path | str) -> Resolved:
    """Check the flat keys of a stage (from `resolve`) and build its sections; error messages contain the path."""
    sections = STAGES[stage]
    # Without leave-one-outs, the flat file has no line about them.
    nothing = {section: {} for section, kind in sections.items() if get_origin(kind) is dict}
    nested = {"name": None, "tier": None, "seed": None, "control": None} | nothing | unflatten(flat)
    if nested.get("stage") != stage:
        raise ConfigError(f"{path}: is for stage {shown(nested.get('stage'))}, not {stage!r}")
    faults = list(check_mapping("", nested, IDENTITY | sections))
    if not faults and "fewshot" in sections:
        faults += check_steps(nested["fewshot"])
    refuse(faults, [path])
    built = {section: build(kind, nested[section]) for section, kind in sections.items()}
    return Resolved(stage, nested["name"], nested["tier"], nested["seed"], nested["control"], built, flat)
