"""The way of a parameter from config.yaml to the stage that uses it.

config.yaml -> read() -> validate() -> climb() the ladder -> resolve() one stage's file -> load() in that stage.
Defaults stand in config/config.yaml alone. The same validator serves the Snakefile and the stages. Standard library and
yaml only: the Snakefile imports this at every start.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from faze.config.check import ConfigError, Fault, build, check_mapping, fields_of, nearest, report, yaml_number
from faze.config.parameters import META_LEARNERS, PARTS, SECTIONS, STAGES, Engine

# Folders beside those of the tiers, under results/<name>/.
RESERVED = ("raw", "data", "benchmark", "evaluation", "report", "tracking", "configs", "logs", "benchmarks")
LADDERS = ("engines", "leave_one_out")  # sections of a resolved file that hold several tiers' switches
WITHOUT = "without_"  # begins the names of the leave-one-outs


def merge(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Lay one mapping over another: mappings merge key by key, everything else is replaced."""
    merged = dict(base)
    for key, value in override.items():
        both = isinstance(merged.get(key), Mapping) and isinstance(value, Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def read(*paths: Path | str) -> dict[str, Any]:
    """Read YAML files, each laid over the one before.

    Raises:
        ConfigError: a file is missing, is not YAML (with the line), or is not a mapping.
    """
    merged: dict[str, Any] = {}
    for path in paths:
        try:
            mapping = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ConfigError(f"{path}: no such config file") from None
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f":{mark.line + 1}" if mark else ""
            raise ConfigError(f"{path}{where}: not YAML: {getattr(error, 'problem', error)}") from None
        if mapping is not None and not isinstance(mapping, Mapping):
            raise ConfigError(f"{path}: holds no keys and values")
        merged = merge(merged, mapping or {})
    return merged


def validate(mapping: Mapping[str, Any], paths: Sequence[Path | str] = ()) -> dict[str, Any]:
    """Check a whole configuration and hand it back.

    Args:
        mapping: the merged configuration.
        paths: the files it came from, to name file and line of each fault.

    Raises:
        ConfigError: with every fault at once, one line each.
    """
    kinds: dict[str, Any] = {"name": str, "tiers": dict, **SECTIONS}
    faults = list(check_mapping("", mapping, kinds))
    faults += _check_ladder(mapping.get("tiers"), mapping.get("run"))
    if not faults:
        faults += _check_combinations(mapping)
    if faults:
        raise ConfigError(report(faults, paths))
    return dict(mapping)


def _check_ladder(tiers: Any, run: Any) -> Iterator[Fault]:
    """The first rung states every switch, the others some; only defined rungs are run."""
    if not isinstance(tiers, Mapping) or not tiers:
        return
    for position, (tier, change) in enumerate(tiers.items()):
        yield from check_mapping(f"tiers.{tier}", change, fields_of(Engine), complete=position == 0)
        if str(tier).startswith(WITHOUT):
            yield Fault(f"tiers.{tier}", f"names that begin with {WITHOUT!r} are those of the leave-one-outs")
        if not _names_a_folder(str(tier)) or tier in RESERVED:
            yield Fault(
                f"tiers.{tier}", f"a tier names a folder: letters, digits, - and _, and not {', '.join(RESERVED)}"
            )
    wanted = run.get("tiers") if isinstance(run, Mapping) else None
    for tier in wanted if isinstance(wanted, list | tuple) else ():
        if tier not in tiers:
            yield Fault("run.tiers", f"{tier!r} is not defined under tiers{nearest(tier, list(tiers))}")


def _names_a_folder(name: str) -> bool:
    return name.replace("_", "").replace("-", "").isalnum()


def _check_combinations(c: Mapping[str, Any]) -> Iterator[Fault]:
    """What no single value shows: combinations that would fail later, or silently mean something else."""
    if not _names_a_folder(c["name"]):
        yield Fault("name", f"{c['name']!r} must be letters, digits, - and _: it names a folder")
    for tier in c["run"]["tiers"]:
        engine = climb(c["tiers"], tier)
        yield from _check_batch(tier, engine, c)
        yield from _check_switches(tier, engine)
    model, height, width = c["model"], c["preprocess"]["height_px"], c["preprocess"]["width_px"]
    if model["image_height_px"] * width != model["image_width_px"] * height:
        yield Fault("model.image_width_px", f"must keep the {width} x {height} strip's aspect")
    if height % model["image_height_px"] or model["image_height_px"] % 32:
        yield Fault("model.image_height_px", f"must be a multiple of 32 that divides {height}")
    if not (c["preprocess"]["mpiifacegaze"] and c["preprocess"]["gazecapture"]):
        yield from _check_people(c["synthetic"], c["fewshot"])
    yield from _check_steps(c["fewshot"])


def _check_people(synthetic: Mapping[str, Any], fewshot: Mapping[str, Any]) -> Iterator[Fault]:
    """Synthetic people have enough frames for calibration beside the query, and for a meta-training task."""
    frames, shots = synthetic["frames_per_person"], max(fewshot["shots"])
    of_tasks = META_LEARNERS & set(fewshot["learners"])
    for query in ("query_entries", "meta_query") if of_tasks else ("query_entries",):
        if frames < shots + fewshot[query]:
            yield Fault(
                "synthetic.frames_per_person",
                f"{frames} is fewer than the largest of fewshot.shots, {shots}, plus fewshot.{query}, {fewshot[query]}",
            )
    if frames < fewshot["min_entries"]:
        yield Fault("fewshot.min_entries", f"{fewshot['min_entries']} is more than synthetic.frames_per_person")
    if of_tasks and synthetic["gazecapture_train_people"] < fewshot["tasks"]:
        yield Fault("fewshot.tasks", f"{fewshot['tasks']} is more than synthetic.gazecapture_train_people")


def _check_steps(fewshot: Mapping[str, Any]) -> Iterator[Fault]:
    """The released gradient knows one inner step; what is recorded lies within the adaptation."""
    if "reference" in fewshot.get("learners", ()) and fewshot["inner_steps"] != 1:
        yield Fault("fewshot.inner_steps", f"{fewshot['inner_steps']} is not 1, as the learner reference needs")
    late = [step for step in fewshot["record_steps"] if step > fewshot["adapt_steps"]]
    if late:
        yield Fault("fewshot.record_steps", f"{late} come after fewshot.adapt_steps, {fewshot['adapt_steps']}")


def _check_batch(tier: str, engine: Engine, c: Mapping[str, Any]) -> Iterator[Fault]:
    batch, chunk = c["train"]["global_batch"], c["loss"]["chunk_pairs"]
    processes = max(engine.processes, 1) if engine.parallel == "ddp" else 1
    if batch % (processes * chunk):
        yield Fault(
            "train.global_batch",
            f"{batch} is not a multiple of {processes} processes x loss.chunk_pairs {chunk} (tier {tier})",
        )


def _check_switches(tier: str, engine: Engine) -> Iterator[Fault]:
    if engine.parallel == "ddp" and engine.static_graph and engine.accumulate > 1:
        yield Fault(
            f"tiers.{tier}",
            f"static_graph does not go with accumulate {engine.accumulate}: torch's DistributedDataParallel fails in "
            "the first step (pytorch#187732); set static_graph false or accumulate 1",
        )
    both = sorted(set(engine.keep_fp32) & set(engine.force_low))
    if both:
        yield Fault(f"tiers.{tier}", f"keep_fp32 and force_low both name {', '.join(both)}; take it out of one of them")


def climb(tiers: Mapping[str, Mapping[str, Any]], tier: str) -> Engine:
    """Add up the rungs from the first to this one: the switches of a tier."""
    switches: dict[str, Any] = {}
    for rung, change in tiers.items():
        switches.update(change)
        if rung == tier:
            return build(Engine, switches)
    raise ConfigError(f"tier {tier!r} is not defined under tiers: {', '.join(tiers)}")


def leave_one_out(tiers: Mapping[str, Mapping[str, Any]], tier: str) -> dict[str, Engine]:
    """The switches of a tier with the change of one rung taken back, for every rung above the first.

    What a later rung changes too stays as that one has it: such a variant is the tier itself.

    Returns:
        `without_<rung>` -> switches, in the order of the ladder.
    """
    climb(tiers, tier)  # or say that it is not defined
    rungs = list(tiers)[: list(tiers).index(tier) + 1]
    rest = {out: [rung for rung in rungs if rung != out] for out in rungs[1:]}
    return {f"{WITHOUT}{out}": climb({rung: tiers[rung] for rung in left}, left[-1]) for out, left in rest.items()}


def topmost(config: Mapping[str, Any]) -> str:
    """The rung of run.tiers that stands highest on the ladder."""
    return max(config["run"]["tiers"], key=list(config["tiers"]).index)


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
    nested = unflatten(read(path))
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
        faults += _check_steps(nested["fewshot"])
    if faults:
        raise ConfigError(report(faults, [path]))
    built: dict[str, Any] = {s: build(kind, nested[s]) for s, kind in plain.items()}
    for ladder, rungs in ladders.items():
        built[ladder] = {rung: build(Engine, switches) for rung, switches in rungs.items()}
    return Resolved(stage, nested["name"], nested["tier"], nested["seed"], built, flatten(unflatten(read(path))))
