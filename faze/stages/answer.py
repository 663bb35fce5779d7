"""Rule `answer`: a tier's proof, measurement and errors -> a page of its own, and a run in MLflow.

The tier is compared with the baseline and with its previous record in MLflow, that is, with earlier code or values.
"""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from faze import tracking
from faze.base import code_hash
from faze.base.files import whole_folder
from faze.base.result_paths import ResultPaths
from faze.base.run_log import LoggedRun, read_run
from faze.benchmark.proof import is_same_training, sketch_first_steps
from faze.config.parameters import DTED, TRAINING
from faze.config.stage_config import Resolved
from faze.evaluation.records import NO_ERRORS, Record, final_errors, list_changes, make_record
from faze.report import answer
from faze.stages.track import read_data_set
from faze.training.train import load_workload


def main(
    *,
    config: Resolved,
    data: Path | None = None,
    proof: Path,
    measured: Path,
    errors: list[Path] = (),
    results: Path,
    out: Path,
) -> None:
    """Write the page of a tier, and mirror the tier's runs in MLflow; without `errors`, the tier is not trained."""
    paths, tier = ResultPaths(results.resolve()), config.tier
    proof, measured = json.loads(proof.read_bytes()), json.loads(measured.read_bytes())
    store = tracking.Store(config.tracking, paths.root.parent)
    record = make_record(paths, config, measured, tier, bool(errors))
    tables, notes = [], [measured["disturbed"]]
    if "failed" in proof:
        is_other = "a different experiment from" if proof["number"] is not None else "not shown to be the same as"
        notes.append(f"{tier} is {is_other} the baseline: {proof['failed']}.")
    if tier != (baseline := next(iter(measured["tiers"]))):
        rows = answer.measured_rows(record["baseline"], record["speed"])
        of_baseline, note = baseline_errors(paths, config, data, measured, baseline)
        rows += answer.error_rows(of_baseline.to_dict("list"), record["errors"])
        tables.append(answer.Table("Compared with the baseline", [baseline, tier], rows, note))
    tables.append(compare_with_previous(store, record, measured))
    with whole_folder(out) as folder:
        (folder / "index.html").write_text(answer.render(record, measured, tables, notes), encoding="utf-8")
    mirror(store, paths, config, record, measured["tiers"][tier], out)
    print(f"answer: open {out / 'index.html'}")


def baseline_errors(
    paths: ResultPaths, config: Resolved, data: Path | None, measured: dict[str, Any], baseline: str
) -> tuple[pd.DataFrame, str]:
    """Return the baseline's errors, and a sentence about its code; none if it was another experiment with that code."""
    logs = [paths.run_log(baseline, seed) for seed in config.run.seeds]
    if not all(log.exists() for log in logs):
        return NO_ERRORS, "No errors are compared, because the baseline has not been trained."
    start, sections = read_run(logs[0]).start, (*TRAINING, "workload", "engine")
    code = f"The baseline was trained with the code of commit `{start['machine']['commit']}`"
    values = {key: value for key, value in start["config"].items() if key.split(".")[0] in sections}
    if values != measured["values"][baseline]:
        return NO_ERRORS, f"{code} and with other values, so errors are not compared."
    first = json.loads((paths.root / f"benchmark/proofs/{baseline}.json").read_bytes())["first_steps"]
    same = is_same_training(first, sketch_first_steps(config, data))
    if not first:  # the network cannot run in float64
        same = start["fingerprint"] == code_hash.fingerprint("faze.stages.train") + load_workload(config, data).code
    if same:
        return final_errors(paths, config, baseline), f"{code}. With the current code, its first steps are the same."
    return NO_ERRORS, f"{code}. With the current code, its first steps are not the same, so errors are not compared."


def compare_with_previous(store: tracking.Store, record: Record, measured: dict[str, Any]) -> answer.Table:
    """Compare a tier with its last record of other code or values."""
    records = store.records(ablation=record["name"], tier=record["tier"])
    changed = [old for old in records if any(old[key] != record[key] for key in ("sources", "config"))]
    if not changed:
        return answer.Table("Before and after", [], [], "There is no run of this tier with other code or values.")
    before, change, note = changed[0], measured.get("change"), ""
    rows = answer.compare_records(before, record)
    if change and change["state"] == before["config_hash"]:
        paired = answer.measured_rows(change["before"], change["after"])
        rows = paired + [row for row in rows if not row.quantity.startswith(("Speed", "Peak"))]
        speedup, rounds = change["after"]["speedup"], len(change["after"]["peaks_gib"])
        reach = 100 * (speedup["high"] / speedup["ratio"] - 1)
        note = f"These {rounds} rounds can show changes of speed of more than about {reach:.0f} %."
    elif before["config_hash"] != record["config_hash"]:
        failed = measured.get("previous_failed", "they were not measured in the same rounds")
        note = f"Speed and memory are compared only relative to the baseline: {failed}."
    columns = [f"before ({before['machine']['commit']})", f"after ({record['machine']['commit']})"]
    return answer.Table("Before and after", columns, rows, note, list_changes(before, record))


def mirror(
    store: tracking.Store, paths: ResultPaths, config: Resolved, record: Record, row: dict[str, Any], page: Path
) -> None:
    """Mirror the runs of a trained tier in MLflow, or the measurement of a tier that is not trained."""
    errors, tier = pd.DataFrame(record["errors"]), config.tier
    speed = {"speed/step_ms": row["step_ms"], "memory/peak_gib": row["peak_gib"]}
    trained, gaze, seeds = len(errors) > 0, config.workload == DTED, config.run.seeds
    data_sets = [read_data_set(name, paths.store(name)) for name in config.datasets if trained and gaze]
    places = tracking.places(list(dict.fromkeys([*config.run.tiers, tier])), seeds if trained else seeds[:1])
    for place in [place for place in places if place.tier == tier]:
        log, checkpoint = paths.run_log(tier, place.seed), paths.checkpoint(tier, place.seed) if trained else None
        means = errors[errors["seed"] == place.seed].groupby("metric", sort=False)["error"].mean().to_dict()
        found, files = {"metrics": means | speed}, {"report/index.html": page / "index.html"}
        files |= {"run.jsonl": log} if trained else {}
        outcome = tracking.Outcome(found, "report/index.html", files, data_sets, checkpoint, record)
        run = read_run(log) if trained else LoggedRun(record, record["time"], row["switches"])
        store.mirror(run, place, outcome)
