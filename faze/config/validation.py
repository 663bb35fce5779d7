"""Check a whole configuration: every value, the tiers and combinations of values; report all errors at once."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from faze.config.check import (
    Fault,
    as_text,
    build,
    check_mapping,
    fields_of,
    folded,
    names_a_folder,
    nearest,
    short,
    shown,
)
from faze.config.datasets import check_datasets, data_sets, training_set
from faze.config.parameters import CONTROLS, META_LEARNERS, PARTS, SECTIONS, DataSet, Engine, Loss
from faze.config.shipped import SHIPPED
from faze.config.tiers import (
    ON,
    UNTRAINED,
    WEIGHTS,
    at_point,
    check_sweep,
    evaluated_tiers,
    given_weights,
    leave_one_out,
    points,
    resolve_tier,
    split_item,
    switch_tiers,
    tier_bases,
)
from faze.config.workloads import BUILT_IN, DTED, class_path
from faze.config.yaml_files import DEFAULTS, merge, read_yaml, refuse

# Folders beside those of the tiers, under results/<name>/.
RESERVED = (
    *(
        "raw",
        "data",
        "estimator",
        "inspection",
        "benchmark",
        "evaluation",
        "report",
        "sweep",
        "tracking",
        "profile",
        "output_cache",
    ),
    *("weights", "configs", "logs", "benchmarks"),  # the last three of Snakemake's rules
    *CONTROLS,
)


def read_config(overrides: Sequence[Path]) -> dict[str, Any]:
    """Read the defaults and the override files, and check the merged configuration."""
    paths = [DEFAULTS, *overrides]
    return validate(read_yaml(*paths), paths)


def validate(mapping: Mapping[str, Any], paths: Sequence[Path | str] = ()) -> dict[str, Any]:
    """Check a whole configuration and return it, with the tiers of `run.tiers: auto` written out.

    Args:
        mapping: the merged configuration.
        paths: its files, for the file and line of each error.

    Raises:
        ConfigError: the configuration is invalid; one line for each error.
    """
    kinds: dict[str, Any] = {"name": str, "workload": str, "tiers": dict, **SECTIONS}
    faults = list(check_mapping("", mapping, kinds))
    faults += _check_tiers(mapping.get("tiers"))
    if not faults:
        lists = {"run.tiers": mapping["run"]["tiers"]}
        lists |= {f"auto_tiers.{device}": items for device, items in mapping["auto_tiers"].items()}
        faults += [fault for key, items in lists.items() for fault in _check_order(key, items, mapping["tiers"])]
        faults += [
            _undefined("benchmark.paper_width", tier, mapping["tiers"])
            for tier in mapping["benchmark"]["paper_width"]
            if tier not in mapping["tiers"]
        ]
    if not faults:
        trained, given = evaluated_tiers(mapping), given_weights(mapping)
        items = [
            (tier if base is None or tier in given else f"{tier}{ON}{base}") + ("" if tier in trained else UNTRAINED)
            for tier, base in tier_bases(mapping).items()
        ]
        judged = [tier for tier in trained if tier not in given]
        controls = [control for control in CONTROLS if control in mapping["run"]["controls"] and len(judged) > 1]
        mapping = merge(mapping, {"run": {"tiers": items, "controls": controls}})
        faults += [*_check_combinations(mapping), *_check_points(mapping, kinds)]
    refuse(faults, paths)
    return mapping


def _check_tiers(tiers: Any) -> Iterator[Fault]:
    """Check that the first tier sets every switch, and that each can be the name of a folder."""
    if not isinstance(tiers, Mapping) or not tiers:
        return
    taken: dict[str, str] = {}
    for position, (tier, change) in enumerate(tiers.items()):
        if position and isinstance(change, Mapping) and WEIGHTS in change:
            yield from check_mapping(f"tiers.{tier}", {WEIGHTS: change[WEIGHTS]}, {WEIGHTS: str})
            if change[WEIGHTS] == "":
                yield Fault(f"tiers.{tier}.{WEIGHTS}", f"is empty: write the path of a checkpoint, or {SHIPPED}")
            if len(change) > 1:
                yield Fault(f"tiers.{tier}", "has `weights`, so it is only evaluated: remove its switches")
        else:
            kinds = fields_of(Engine) | ({WEIGHTS: str} if position else {})
            yield from check_mapping(f"tiers.{tier}", change, kinds, complete=position == 0)
        if not isinstance(tier, str) or not names_a_folder(tier) or folded(tier) in RESERVED:
            yield Fault(
                f"tiers.{tier}", f"must be letters, digits, - and _, and not {', '.join(RESERVED)}: it names a folder"
            )
        elif (other := taken.setdefault(folded(tier), tier)) != tier:
            yield Fault(
                f"tiers.{tier}",
                f"differs from {other} only in case, so some file systems store both in one folder: rename it",
            )


def _check_order(key: str, items: Sequence[str], tiers: Mapping[str, Any]) -> Iterator[Fault]:
    """Check that the tiers of a list are defined and listed once, and that each builds on one before it."""
    first, before = next(iter(tiers)), []
    for item in items if items != "auto" else ():
        tier, base, trained = split_item(item)
        if tier not in tiers:
            yield _undefined(key, tier, tiers)
        elif tier in before:
            yield Fault(key, f"contains {tier} twice")
        elif WEIGHTS in tiers[tier] and not (before and trained and base is None):
            yield Fault(
                key,
                f"{tier} has `weights`: list it without `{ON.strip()}` and `{UNTRAINED.strip()}`, after the first tier",
            )
        elif base in tiers and WEIGHTS in tiers[base]:
            yield Fault(key, f"{tier} builds on {base}, which has `weights` and changes no switch")
        elif not (before or trained):
            yield Fault(key, f"{tier} is the first tier, with which the others are compared: it must be trained")
        elif tier == first and (before or base is not None):
            yield Fault(key, f"{first} sets every switch: write it first, without a tier that it builds on")
        elif base is not None and base not in (first, *before):
            yield Fault(key, f"{tier} builds on {shown(base)}, which is not before it{nearest(base, [first, *before])}")
        before.append(tier)


def _undefined(key: str, tier: str, tiers: Mapping[str, Any]) -> Fault:
    return Fault(key, f"{shown(tier)} is not defined under tiers{nearest(tier, list(tiers))}")


_NO_WEIGHTS = ("triplet_margin", "ramp_pairs", "chunk_pairs")  # keys of the section loss


def _check_combinations(c: Mapping[str, Any]) -> Iterator[Fault]:
    """Check combinations of values that would fail later, or silently mean something else."""
    if not re.fullmatch(r"\w+(\.\w+)*:\w+", class_path(c["workload"])) and c["workload"] != DTED:
        known = [DTED, *BUILT_IN]
        text = f"{shown(c['workload'])} is neither {', '.join(known)}, nor package.module:Class"
        yield Fault("workload", f"{text}{nearest(c['workload'], known)}")
    if not names_a_folder(c["name"]):
        yield Fault("name", f"{shown(c['name'])} must be letters, digits, - and _: it names a folder")
    yield from _check_start(c)
    engines = {tier: resolve_tier(c, tier) for tier in switch_tiers(c)}
    if c["benchmark"]["leave_one_out"]:
        without = leave_one_out(c)
        *_, top = without
        engines |= {f"{top} without {name}": engine for name, engine in without.items()}
    for tier, engine in engines.items():
        if c["workload"] == DTED:
            yield from _check_batch(tier, engine, c)
        yield from _check_switches(tier, engine)
    if not any(weight for key, weight in c["loss"].items() if key not in _NO_WEIGHTS):
        yield Fault("loss", "every weight is 0, so nothing would be trained")
    model, height, width = c["model"], c["preprocess"]["height_px"], c["preprocess"]["width_px"]
    if model["image_height_px"] * width != model["image_width_px"] * height:
        yield Fault("model.image_width_px", f"must keep the {width} x {height} strip's aspect ratio")
    times = 2 ** (model["blocks"] + 1)
    if height % model["image_height_px"] or model["image_height_px"] % times:
        yield Fault(
            "model.image_height_px", f"must be a multiple of {times} (2^(model.blocks + 1)) that divides {height}"
        )
    elif model["image_width_px"] % times or model["image_height_px"] * model["image_width_px"] <= times**2:
        yield Fault("model.image_width_px", f"must be a multiple of {times} (2^(model.blocks + 1)) above {times}")
    faults = list(check_datasets(c))
    yield from faults
    paths = {} if faults else {name: entry.path for name, entry in data_sets(c).items()}
    if not all(paths.values()):
        training = data_sets(c)[training_set(c)]
        yield from _check_people(c["synthetic"], c["fewshot"], c["data"], None if training.path else training)
    yield from check_steps(c["fewshot"])


def _check_start(c: Mapping[str, Any]) -> Iterator[Fault]:
    """Check the first weights of a training, and that some part is trained."""
    train, blocks = c["train"], range(1, c["model"]["blocks"] + 1)
    if c["workload"] != DTED:
        if train["start"] or train["frozen"] or not train["pairs"]:
            yield Fault("train", "start, frozen and pairs 0 need the workload faze")
        given = [f"tiers.{tier}" for tier in tier_bases(c) if tier in given_weights(c)]
        yield from (Fault(key, "has `weights`, which are evaluated only with the workload faze") for key in given)
        return
    if train["start"] == "":
        yield Fault("train.start", f"is empty: write the path of a checkpoint, {SHIPPED}, or null for random weights")
    if not train["pairs"] and not train["start"]:
        yield Fault("train.pairs", "0 only evaluates the weights of train.start, which is null")
    known = [*PARTS, *(f"{part}.block{number}" for part in PARTS[:2] for number in blocks)]
    for part in train["frozen"]:
        if part not in known:
            yield Fault("train.frozen", f"{shown(part)} is not one of {', '.join(known)}{nearest(part, known)}")
    reached = build(Loss, c["loss"]).reached(c["model"]["backprop_gaze"])
    free = [part for part in PARTS if part not in train["frozen"]]
    if any(reached.values()) and not any(reached[part] for part in free):
        why = f"no term of `loss` reaches {', '.join(free)}" if free else "every part of the network is frozen"
        yield Fault("train.frozen", f"nothing would be trained, because {why}")
    for tier in c["benchmark"]["paper_width"]:
        if tier in given_weights(c):
            yield Fault("benchmark.paper_width", f"{tier} has `weights`, so it has no training steps")


def _check_points(c: Mapping[str, Any], kinds: Mapping[str, Any]) -> Iterator[Fault]:
    """Check each sweep point as a separate configuration."""
    faults = list(check_sweep(c["sweep"]))
    yield from faults
    for point, values in {} if faults else points(c).items():
        if point in c["tiers"]:
            yield Fault(f"tiers.{point}", "is also the name of a sweep point; choose another name")
        of_point = at_point(c, point, values)
        wrong = list(check_mapping("", of_point, kinds)) + list(
            check_mapping("", of_point["tiers"][point], fields_of(Engine), False)
        )
        if not wrong:
            wrong = list(
                _check_combinations(merge(of_point, {"run": {"tiers": [point]}, "benchmark": {"leave_one_out": False}}))
            )
        text = ", ".join(f"{key} {short(as_text(value))}" for key, value in values.items())
        yield from (Fault("sweep", f"{point} ({text}): {fault}") for fault in wrong)


def _check_people(
    synthetic: Mapping[str, Any], fewshot: Mapping[str, Any], data: Mapping[str, Any], rendered: DataSet | None
) -> Iterator[Fault]:
    """Check that rendered people are enough, and have enough frames for calibration, queries and meta-training.

    `rendered` is the training set if its people are rendered.
    """
    frames, shots = synthetic["frames_per_person"], max(fewshot["shots"])
    of_tasks = META_LEARNERS & set(fewshot["learners"])
    phones = rendered is not None and rendered.layout == "gazecapture"
    key = "gazecapture_train_frames" if phones and synthetic["gazecapture_train_frames"] else "frames_per_person"
    people = "gazecapture_train_people" if phones else "mpiigaze_people"
    needs = {"query_entries": "frames_per_person"} | ({"meta_query": key} if of_tasks and rendered else {})
    for query, of_whom in needs.items():
        if synthetic[of_whom] < shots + fewshot[query]:
            yield Fault(
                f"synthetic.{of_whom}",
                f"{synthetic[of_whom]} is less than the largest of fewshot.shots ({shots}) plus fewshot.{query} "
                f"({fewshot[query]})",
            )
    if frames < fewshot["min_entries"]:
        yield Fault("fewshot.min_entries", f"{fewshot['min_entries']} is more than synthetic.frames_per_person")
    if rendered and synthetic[key] < data["min_entries"]:
        yield Fault(
            "data.min_entries",
            f"{data['min_entries']} is more than synthetic.{key}: training would leave everyone out",
        )
    if rendered and not phones and (rendered.folds or 0) > synthetic[people]:
        yield Fault("preprocess.datasets", f"{rendered.folds} folds are more than synthetic.{people}")
    elif of_tasks and rendered and synthetic[people] < fewshot["tasks"]:
        yield Fault("fewshot.tasks", f"{fewshot['tasks']} is more than synthetic.{people}")


def check_steps(fewshot: Mapping[str, Any]) -> Iterator[Fault]:
    """Check the inner steps of the learner `reference`, and that all recorded steps are within the adaptation."""
    if "reference" in fewshot.get("learners", ()) and fewshot["inner_steps"] != 1:
        yield Fault("fewshot.inner_steps", f"{fewshot['inner_steps']} must be 1 for the learner `reference`")
    late = [step for step in fewshot["record_steps"] if step > fewshot["adapt_steps"]]
    if late:
        yield Fault("fewshot.record_steps", f"{late} must not exceed fewshot.adapt_steps, {fewshot['adapt_steps']}")


def _check_batch(tier: str, engine: Engine, c: Mapping[str, Any]) -> Iterator[Fault]:
    """Check the batch size; the number of processes may only be known on the target machine."""
    batch, chunk = c["train"]["global_batch"], c["loss"]["chunk_pairs"]
    processes = max(engine.processes, 1) if engine.parallel == "ddp" else 1
    if batch % (processes * engine.accumulate * chunk):
        parts = f"{processes} processes x accumulate {engine.accumulate} x loss.chunk_pairs {chunk}"
        yield Fault("train.global_batch", f"{batch} is not a multiple of {parts} (tier {tier})")


def _check_switches(tier: str, engine: Engine) -> Iterator[Fault]:
    lists = engine.precision != "fp32" and (engine.keep_fp32 or engine.force_low)
    if engine.compile != "eager" and engine.checkpointing and not engine.recompute and lists:
        yield Fault(
            f"tiers.{tier}",
            "compile and checkpointing cannot be combined with keep_fp32 or force_low, since torch's compiler ignores "
            "number formats of operations in recomputed parts; remove one of the three",
        )
    both = sorted(set(engine.keep_fp32) & set(engine.force_low))
    if both:
        yield Fault(
            f"tiers.{tier}", f"keep_fp32 and force_low both contain {', '.join(both)}; remove it from one of them"
        )
