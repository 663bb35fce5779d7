"""Read a configuration, check its values, tiers, combinations of values, and paths, and report all faults at once."""

import difflib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from faze.base.errors import UserError
from faze.config.parameters import CONTROLS, DTED, RENDERED, WITHOUT_CODES, Config, DataSet, Tier
from faze.config.stage_config import flatten, given_tiers, learners, listed, named, resolve_tier
from faze.weights import network_path

DEFAULTS = Path(__file__).with_name("config.yaml").resolve()  # a link to config/config.yaml, so wheels contain it
SPLITS = ("stated", "test", "leave_one_person_out")  # any other value is the path of a JSON file
Fault = tuple[str, str]  # a dotted key, such as preprocess.datasets.0.path, and a sentence


class _Loader(yaml.SafeLoader):
    """A YAML 1.1 loader, except that 1e-3 is a number and only true and false are booleans, so the key `on` is text."""

    yaml_implicit_resolvers = {
        first: [(tag, form) for tag, form in known if tag != "tag:yaml.org,2002:bool"]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("(true|false)$"), list("tf"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), None)


def read_yaml(*paths: Path | str) -> dict[str, Any]:
    """Read and merge YAML files; later files override individual values in earlier ones."""
    merged: dict[str, Any] = {}
    for path in paths:
        try:
            text = Path(path).read_text(encoding="utf-8")
            mapping = yaml.load(text, _Loader) or {}
            keys = [key for key, _ in _places(yaml.compose(text), path)]
        except (OSError, yaml.YAMLError, ValueError) as error:  # ValueError: not UTF-8
            raise UserError(f"{path}: cannot be read: {' '.join(str(error).split())}") from None
        if not isinstance(mapping, dict):
            raise UserError(f"{path}: must contain keys and values")
        if twice := {key for key in keys if keys.count(key) > 1}:
            raise UserError(f"{path}: {', '.join(sorted(twice))}: given twice; keep only one")
        merged = merge(merged, mapping)
    return merged


def merge(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Override one mapping with another: nested mappings are merged key by key, and other values are replaced."""
    merged = dict(base)
    for key, value in override.items():
        both = isinstance(merged.get(key), Mapping) and isinstance(value, Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def read_config(overrides: Sequence[Path | str] = (), changes: Mapping[str, Any] | None = None) -> Config:
    """Read the defaults, the override files and further changes; report all faults at once, with file, line and key."""
    paths = [DEFAULTS, *overrides]
    try:
        config = Config.model_validate(merge(read_yaml(*paths), changes or {}))
    except ValidationError as error:
        known = {part for key in flatten(read_yaml(DEFAULTS)) for part in key.split(".")}
        refuse(faults_of(error, known | {*DataSet.model_fields, *Tier.model_fields}), paths)
    if overrides and "name" not in read_yaml(*overrides):
        raise UserError(f"{overrides[-1]}: needs a `name`, or its results would mix with those of the defaults")
    refuse([*_tiers(config)] or [*_combinations(config), *_datasets(config), *_missing(config)], paths)
    return config


def _tiers(config: Config) -> Iterator[Fault]:
    """Check that all listed tiers are defined, that the baseline is first, and that each builds on an earlier tier."""
    first, tiers = next(iter(config.tiers)), named(config)
    others = [tier for tier in config.tiers if tier not in (first, *tiers)]
    for number, tier in enumerate([*tiers, *others]):
        if tier in CONTROLS:
            yield "tiers", f"{tier} is the name of a noise control: rename the tier"
        elif tier not in config.tiers:
            yield "run.tiers", f"{tier} is not defined under tiers{nearest(tier, config.tiers)}"
        elif tier in tiers[:number]:
            yield "run.tiers", f"{tier} is listed twice"
        elif (tier == first) != (number == 0):
            yield "run.tiers", f"{first} sets every switch, so list it first"
        elif config.tiers[tier].given and len(config.tiers[tier].model_dump(exclude_unset=True)) > 1:
            yield f"tiers.{tier}", "a given network is not trained: remove every other key"
        elif (on := config.tiers[tier].on) and on not in (before := [first, *tiers, *others][: number + 1]):
            yield f"tiers.{tier}.on", f"{on} is not before {tier} in run.tiers{nearest(on, before)}"


def _combinations(config: Config) -> Iterator[Fault]:
    """Check for combinations of values that would fail late or silently mean something else."""
    batch, chunk, model = config.train.global_batch, config.loss.chunk_pairs, config.model
    for tier in listed(config) if config.workload == DTED else ():
        engine = resolve_tier(config, tier)
        processes = max(engine.processes, 1) if engine.parallel == "ddp" else 1
        if batch % (processes * engine.accumulate * chunk):
            parts = f"{processes} processes x accumulate {engine.accumulate} x loss.chunk_pairs {chunk}"
            yield "train.global_batch", f"{batch} is not a multiple of {parts} (tier {tier})"
            break
    height, width, times = config.preprocess.height_px, config.preprocess.width_px, 2 ** (model.blocks + 1)
    if model.image_height_px * width != model.image_width_px * height or height % model.image_height_px:
        yield "model.image_height_px", f"the image must be the {width} x {height} strip shrunk by an integer factor"
    sides = model.image_height_px, model.image_width_px
    if any(side % times for side in sides) or max(sides) == times:  # normalisation needs more than one pixel
        yield "model.image_height_px", f"both sides must be multiples of 2^(model.blocks + 1) = {times}, and one larger"
    if len(set(config.run.seeds)) < len(config.run.seeds):
        yield "run.seeds", "contains a seed twice"
    for tier in given_tiers(config):
        if any(data.folds for data in config.preprocess.datasets):
            yield f"tiers.{tier}.given", "leave_one_person_out trains a network for each fold: use other splits"
        if any(data.layout == "strips" for data in config.preprocess.datasets):
            yield f"tiers.{tier}.given", "sees patches of raw frames: replace or remove data sets with `layout: strips`"
        if not learners(config, tier):
            yield "fewshot.learners", f"{tier} has no codes: add one of {', '.join(WITHOUT_CODES)}"
    if not config.train.pairs and not config.train.start:
        yield "train.pairs", "is 0, but train.start names no weights to evaluate: set one of the two"


def _datasets(config: Config) -> Iterator[Fault]:
    """Check the data sets, and that rendered people have enough frames."""
    datasets, key = config.preprocess.datasets, "preprocess.datasets"
    for number, data in enumerate(datasets):
        if not data.path and data.layout not in RENDERED:
            yield f"{key}.{number}", f"has no path; only {' and '.join(RENDERED)} can be rendered"
        if (data.splits == "leave_one_person_out") != (data.folds is not None):
            yield f"{key}.{number}.folds", "must be set if, and only if, splits is leave_one_person_out"
        if data.splits == "stated" and data.layout.startswith("mpii"):
            yield f"{key}.{number}.splits", f"{data.layout} needs `splits`: {', '.join(SPLITS[1:])}, or a JSON file"
    trained = [data.name for data in datasets if data.splits != "test"]
    if len(trained) != 1 or len({data.name for data in datasets}) < len(datasets):
        yield key, f"names must differ, and all but one data set must have `splits: test`; these do not: {trained}"
    if len(datasets) > 1 and any(data.folds for data in datasets):
        yield key, "leave_one_person_out allows no other data set"
    needed = max(config.fewshot.shots) + config.fewshot.query_entries
    if not all(data.path for data in datasets) and config.synthetic.frames_per_person < needed:
        yield "synthetic.frames_per_person", f"must be at least {needed}, fewshot.query_entries + max(fewshot.shots)"


def _missing(config: Config) -> Iterator[Fault]:
    """Check that every file and folder named in the configuration exists."""
    named = {"train.start": config.train.start}
    for number, data in enumerate(config.preprocess.datasets):
        splits = None if data.splits in SPLITS else data.splits
        for name, path in {"path": data.path, "supplementary": data.supplementary, "splits": splits}.items():
            named[f"preprocess.datasets.{number}.{name}"] = path
        if data.layout == "gazecapture" and data.path and not data.supplementary:
            named["landmarks.model"] = config.landmarks.model
    for key, path in named.items():
        if path is not None and not network_path(path).exists():
            remedy = " (make landmarker downloads it)" if key == "landmarks.model" else ""
            yield key, f"no such file or folder: {path}{remedy}"


def faults_of(error: ValidationError, known: Collection[str]) -> Iterator[Fault]:
    """Yield the faults that pydantic found, suggesting the nearest known key or value for each."""
    for fault in error.errors(include_url=False):
        key, kind, value = ".".join(map(str, fault["loc"])), fault["type"], fault["input"]
        if kind == "missing":
            yield key.rpartition(".")[0], f"lacks {fault['loc'][-1]}"
        elif kind == "extra_forbidden":
            yield key, f"unknown key{nearest(str(fault['loc'][-1]), known)}"
        elif kind != "too_short" or not value:  # pydantic does not count faulty items
            allowed = re.findall("'(.*?)'", fault["msg"])
            yield key, f"{fault['msg']}, not {value!r:.80}{nearest(str(value), allowed)}"


def nearest(name: str, known: Collection[str]) -> str:
    """Suggest the known name that was probably meant, or return "" if none is similar."""
    match = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {match[0]}?" if match else ""


def refuse(faults: Iterable[Fault], paths: Sequence[Path | str]) -> None:
    """Raise a UserError that states the file, line and key of each fault, if there are any."""
    places: dict[str, str] = {}
    for path in paths:
        own = dict(_places(yaml.compose(Path(path).read_text(encoding="utf-8")), path))
        kept = {key: place for key, place in places.items() if re.sub(r"\.\d.*", "", key) not in own}
        places = kept | own  # a list replaces an earlier one
    lines = []
    for key, sentence in faults:
        stated = key  # pydantic appends type names to keys
        while stated and stated not in places:
            stated = stated.rpartition(".")[0]
        lines.append(f"{places.get(stated, '')}{stated or key}: {sentence}")
    if lines:
        raise UserError("\n".join(lines))


def _places(node: yaml.Node | None, path: Path | str, prefix: str = "") -> Iterator[Fault]:
    """Yield each dotted key in a file with its position, `file:line: `."""
    named = isinstance(node, yaml.MappingNode)
    for number, item in enumerate(node.value if isinstance(node, yaml.CollectionNode) else ()):
        key, value = item if named else (item, item)
        name = f"{prefix}{key.value if named else number}"
        yield name, f"{os.path.relpath(path)}:{key.start_mark.line + 1}: "
        yield from _places(value, path, f"{name}.")
