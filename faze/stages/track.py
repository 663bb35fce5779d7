"""Rule `track`: run logs, results, walks and report -> one flat MLflow run per tier and seed.

If the MLflow store does not respond, only this rule fails, after everything else has been written. No value is lost;
run the same command again to retry.
"""

import json
from pathlib import Path
from typing import Any

from faze import tracking
from faze.base.files import whole_file
from faze.base.result_paths import ResultPaths
from faze.base.run_log import LoggedRun, read_run
from faze.config.stage_config import Resolved
from faze.data.codes import CodeStore
from faze.data.strips import SPLITS, read_store
from faze.engine import machine
from faze.evaluation.records import make_record


def main(*, config: Resolved, results: Path, out: Path) -> None:
    """Mirror every run and every other measured tier in MLflow, and print the address of the chart view."""
    paths, runs, report = ResultPaths(results.resolve()), {}, "artifact `report/index.html`"
    summary, benchmark = {"runs": [], "pixel_sources": {}}, json.loads(paths.benchmark.read_bytes())
    if (path := paths.evaluation / "summary.json").exists():  # otherwise, nothing was trained
        summary = json.loads(path.read_bytes())
    trained, measured = {(run["tier"], run["seed"]): run for run in summary["runs"]}, benchmark["tiers"]
    tiers = list(dict.fromkeys([*config.run.tiers, *measured]))
    places = tracking.places(tiers, config.run.seeds, config.run.controls)
    places += tracking.places([*tiers, *config.networks], config.run.seeds[:1])[len(tiers) :]
    store = tracking.Store(config.tracking, paths.root.parent)
    data_sets = [read_data_set(name, paths.store(name)) for name in summary["pixel_sources"]]
    for place in places:
        key, row = (place.tier, place.seed), measured.get(place.tier, {})
        if key not in trained and (not row or place.seed != config.run.seeds[0]):
            continue
        is_given = place.tier in config.networks
        is_trained = key in trained and not is_given
        log, checkpoint = paths.run_log(*key), paths.checkpoint(*key)
        files = {"run.jsonl": log} if is_trained else {}
        for folder in [paths.walks(*key)] + [paths.report] * (place == places[0]):
            visible = [file for file in folder.rglob("[!.]*") if file.is_file()]
            files |= {str(file.relative_to(folder.parent)): file for file in visible}
        record = make_record(paths, config, benchmark, place.tier, is_trained) if row else None
        found = trained.get(key) or {"metrics": {"speed/step_ms": row["step_ms"], "memory/peak_gib": row["peak_gib"]}}
        outcome = tracking.Outcome(found, report, files, data_sets, checkpoint if is_trained else None, record)
        if is_given:
            run = describe_given(paths, config, place)
        else:
            run = read_run(log) if is_trained else LoggedRun(record, record["time"], row["switches"])
        runs[place.name] = store.mirror(run, place, outcome)
        report = f"artifact `report/index.html` of run {places[0].name}"
    address = store.share_view(config.name)
    tracked = {"store": tracking.bare(store.uri), "experiment_id": store.experiment_id, "runs": runs}
    with whole_file(out) as temporary:
        temporary.write_text(json.dumps(tracked | {"address": address}, indent=2) + "\n", encoding="utf-8")
    print(f"Compare the runs in MLflow: {'' if store.is_server else 'make ui, then '}{address}")


def describe_given(paths: ResultPaths, config: Resolved, place: tracking.Place) -> LoggedRun:
    """Describe the run of a network of another project, which has no log."""
    codes = paths.codes(place.tier, place.seed, config.datasets[0])
    about = {"stage": "estimate", "name": config.name, "tier": place.tier, "seed": place.seed, "fingerprint": ""}
    about |= {"config": {"given.network": config.networks[place.tier]}, "config_hash": CodeStore(codes).checkpoint}
    return LoggedRun(about | {"time": codes.stat().st_mtime, "machine": machine.describe()}, codes.stat().st_mtime)


def read_data_set(name: str, path: Path) -> Any:
    """Describe a data set, given its strip store; the digest covers people, splits and labels."""
    store = read_store(path)
    members = {"": store.people} | {f"{split}_": store.of_split(split) for split in SPLITS}
    counts = {}
    for split, people in members.items():
        if people:
            counts |= {f"{split}people": len(people), f"{split}strips": sum(len(person.labels) for person in people)}
    return tracking.data_set(name, store.digest(*SPLITS), path, counts)
