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
from faze.config.stage_config import Resolved
from faze.data.strips import SPLITS, read_store


def main(*, config: Resolved, results: Path, out: Path) -> None:
    """Mirror every run of the ablation in MLflow, and print the address of its chart view."""
    paths, runs, report = ResultPaths(results.resolve()), {}, "artifact `report/index.html`"
    summary = json.loads((paths.evaluation / "summary.json").read_text(encoding="utf-8"))
    places = tracking.places(config.run.tiers, config.run.seeds, config.run.controls)
    store = tracking.Store(config.tracking, paths.root.parent)
    data_sets = [read_data_set(name, paths.store(name)) for name in summary["pixel_sources"]]
    for place in places:
        key = (place.tier, place.seed)
        found = next(run for run in summary["runs"] if (run["tier"], run["seed"]) == key)
        files = {"run.jsonl": paths.run_log(*key)}
        for folder in [paths.walks(*key)] + [paths.report] * (place == places[0]):
            visible = [file for file in folder.rglob("[!.]*") if file.is_file()]
            files |= {str(file.relative_to(folder.parent)): file for file in visible}
        outcome = tracking.Outcome(found, report, files, data_sets, paths.checkpoint(*key))
        runs[place.name] = store.mirror(paths.run_log(*key), place, outcome)
        report = f"artifact `report/index.html` of run {places[0].name}"
    address = store.share_view(config.name)
    tracked = {"store": tracking.bare(store.uri), "experiment_id": store.experiment_id, "runs": runs}
    with whole_file(out) as temporary:
        temporary.write_text(json.dumps(tracked | {"address": address}, indent=2) + "\n", encoding="utf-8")
    print(f"Compare the runs in MLflow: {'' if store.is_server else 'make ui, then '}{address}")


def read_data_set(name: str, path: Path) -> Any:
    """Describe a data set, given its strip store; the digest covers people, splits and labels."""
    store = read_store(path)
    members = {"": store.people} | {f"{split}_": store.of_split(split) for split in SPLITS}
    counts = {}
    for split, people in members.items():
        if people:
            counts |= {f"{split}people": len(people), f"{split}strips": sum(len(person.labels) for person in people)}
    return tracking.data_set(name, store.digest(*SPLITS), path, counts)
