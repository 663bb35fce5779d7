"""A stage's own configuration: the file that the workflow writes for it, with the sections that it declares only.

config.yaml -> read_yaml() -> validate() -> resolve_tier() -> resolve() one stage's values -> write() -> load().
"""

import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_origin

from faze.base.files import whole_file
from faze.config.check import ConfigError, build, check_mapping, fields_of, shown, yaml_number
from faze.config.data_parameters import RAW, RAW_PATHS
from faze.config.parameters import CONTROLS
from faze.config.stage_parameters import SHARED, STAGES
from faze.config.sweep import at_point, points
from faze.config.tiers import leave_one_out, resolve_tier
from faze.config.validation import check_steps
from faze.config.yaml_files import flatten, read_yaml, refuse, unflatten

# Whose file it is; that of a stage whose outputs ablations share (SHARED) has no name.
# A control is said where it acts, in the training; its name stands where a tier's does everywhere.
IDENTITY = {"stage": str, "name": str | None, "tier": str | None, "seed": int | None, "control": str | None}


def resolve(
    config: Mapping[str, Any],
    stage: str,
    tier: str | None = None,
    seed: int | None = None,
    dataset: str | None = None,
) -> dict[str, Any]:
    """Give all that one stage may know, as flat dotted keys: its input, its provenance and its MLflow params.

    The word tier ends here: `engine` holds the switches that the ladder adds up to, for a noise control those of the
    baseline. A point of a sweep has its own values in every section. No data set is told of the paths of another, so
    that these do not prepare it anew.
    """
    of_sweep = points(config) if tier is not None or "points" in STAGES[stage] else {}
    if tier in of_sweep:
        config = at_point(config, tier, of_sweep[tier])
    flat: dict[str, Any] = {"stage": stage} | ({} if stage in SHARED else {"name": config["name"]})
    if tier is not None:
        flat |= {"tier": tier, "seed": other_seed(config["run"]["seeds"]) if tier == "seed" else seed}
    if stage == "train":
        flat |= {"control": tier if tier in CONTROLS else None}
    tiers = config["tiers"]
    for section, kind in STAGES[stage].items():
        if section == "engine":
            assert tier is not None, f"stage {stage} needs a tier"
            known = resolve_tier(tiers, config["run"]["tiers"][0] if tier in CONTROLS else tier)
        elif section == "points":
            known = {point: unflatten(values) for point, values in of_sweep.items()}
        elif section == "engines":
            known = {rung: resolve_tier(tiers, rung) for rung in config["run"]["tiers"]}
        elif section == "leave_one_out":
            known = leave_one_out(tiers, config["run"]["tiers"][-1]) if config["benchmark"]["leave_one_out"] else {}
        else:
            known = {key: value for key, value in config[section].items() if key in fields_of(kind)}
        flat |= flatten({section: known})
    for other in RAW.keys() - {dataset} if dataset else ():
        flat |= {key: None for part in RAW_PATHS if (key := f"preprocess.{RAW[other]}{part}") in flat}
    return flat


def other_seed(seeds: Sequence[int]) -> int:
    """Choose the seed of the noise control `seed`: none of those that are trained with."""
    return next(seed for seed in itertools.count(seeds[0] + 1000) if seed not in seeds)


def to_lines(flat: Mapping[str, Any]) -> list[str]:
    """One `key: value` line per entry, each YAML by itself: what a resolved file holds."""
    return [f"{key}: {yaml_number(v) if isinstance(v, float) else _text(v)}" for key, v in flat.items()]


def _text(value: Any) -> str:
    r"""Write a value in JSON's letters, all of them ASCII; YAML knows no pairs of surrogates, so \U0001f600."""
    return re.sub(
        r"\\u(d[89ab]..)\\u(d[c-f]..)",
        lambda pair: f"\\U{ord(bytes.fromhex(pair[1] + pair[2]).decode('utf-16-be')):08x}",
        json.dumps(value),
    )


SUM = "# sha256 of "  # begins the first line of a file that the workflow wrote


def write(path: Path, lines: Sequence[str]) -> None:
    """Write a stage's own configuration with its checksum; a file with the same content is left alone."""
    text = "".join(f"{line}\n" for line in lines)
    text = f"{SUM}what follows: {hashlib.sha256(text.encode()).hexdigest()}\n{text}"
    if not path.is_file() or path.read_text(encoding="utf-8", errors="replace") != text:
        with whole_file(path) as temporary:
            temporary.write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class Resolved:
    """A stage's own configuration: whose it is, its declared sections as frozen dataclasses, and all values flat."""

    stage: str
    name: str | None
    tier: str | None
    seed: int | None
    control: str | None  # noise control that the training is
    sections: Mapping[str, Any]
    flat: Mapping[str, Any]

    def __getattr__(self, section: str) -> Any:
        if section.startswith("__"):  # pickle asks before there are sections
            raise AttributeError(section)
        try:
            return self.sections[section]
        except KeyError:
            raise AttributeError(f"stage {self.stage} does not declare the section {section!r}") from None

    @property
    def hash(self) -> str:
        """Identity of these values: 12 hex digits, independent of their order."""
        return hashlib.sha256("\n".join(sorted(to_lines(self.flat))).encode()).hexdigest()[:12]

    @property
    def values(self) -> Mapping[str, Any]:
        """All values but the tier's name: runs that differ in it alone are the same experiment."""
        return {key: value for key, value in self.flat.items() if key != "tier"}


def load(path: Path | str, stage: str) -> Resolved:
    """Read and check one stage's resolved file.

    Raises:
        ConfigError: the file is for another stage, a key is missing, unknown or wrong, or the workflow wrote another.
    """
    flat = flatten(read_yaml(path))
    first, _, rest = Path(path).read_text(encoding="utf-8").partition("\n")
    if first.startswith(SUM) and hashlib.sha256(rest.encode()).hexdigest() not in first:
        raise ConfigError(
            f"{path}: is not what the workflow wrote: delete it and give the same command again, or delete its first "
            "line if you changed the others on purpose"
        )
    return build_config(flat, stage, path)


def build_config(flat: Mapping[str, Any], stage: str, path: Path | str) -> Resolved:
    """Check what a stage may know, as `resolve` gives it, and build its sections; faults name the path."""
    sections = STAGES[stage]
    # The flat file has no line about leave-one-outs where there are none.
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
