"""Results of an ablation that was never run, for tracking tests: run logs, evaluation, walks, report."""

import hashlib
import json
import os
from pathlib import Path

from data_sets import DATASETS

from faze.base.result_paths import ResultPaths
from faze.base.run_log import RunLog
from faze.config.stage_config import resolve, to_lines
from faze.config.yaml_files import read_yaml

os.environ.pop("MLFLOW_TRACKING_URI", None)  # a developer's own server is no place for tests

ROOT = Path(__file__).resolve().parents[2]
TIERS = ("baseline", "amp", "ddp", "fused_sgd", "autotune")
PIXEL_SOURCES = {"mpiigaze": "MPIIFaceGaze", "gazecapture": "GazeCapture"}
SPEED = {"baseline": 96.0, "amp": 97.5, "ddp": 131.0, "fused_sgd": 138.0, "autotune": 139.0}


def default_config(results: Path, **tracking: str | None) -> dict:
    mapping = read_yaml(ROOT / "config" / "config.yaml")
    mapping["name"], mapping["run"]["controls"] = results.name, []
    mapping["tracking"] |= tracking
    return mapping


def write_stage_config(results: Path, mapping: dict) -> Path:
    path = results / "tracking" / "track.config.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(to_lines(resolve(mapping, "track"))))
    return path


def start_event(results: Path, tier: str, seed: int, fingerprint: str = "0123456789ab") -> dict:
    flat = resolve(default_config(results), "train", tier, seed)
    return {
        "stage": "train",
        "name": results.name,
        "tier": tier,
        "seed": seed,
        "config": flat,
        "config_hash": hashlib.sha256("\n".join(to_lines(flat)).encode()).hexdigest()[:12],
        "fingerprint": fingerprint,
        "machine": {"processor": "A CPU", "cores": "2", "commit": "1a2b3c4d5e6f", "torch": "2.13.0"},
    }


def write_log(path: Path, start: dict, steps: int = 30, end: bool = True, reused_from: str = "") -> None:
    log = RunLog(path)
    log.event("start", **start)
    if reused_from:
        log.event("reused_from", tier=reused_from)
    fp16 = start["tier"] != "baseline"
    reason = "this CPU has no kernels for fp16; force: true runs it all the same" if fp16 else ""
    log.event("switch", switch="precision", wanted="fp16" if fp16 else "fp32", acted="fp32", reason=reason)
    log.event("switch", switch="accumulate", wanted="2", acted="2 parts", reason="")
    for i in range(1, steps + 1):
        loss = 6.0 / i**0.5 + 0.02 * start["seed"]
        values = {f"train/{term}": loss * w for term, w in (("gaze_angle", 3), ("reconstruction_l1", 0.1))}
        values |= {"train/loss": loss, "train/lr": 0.016, "train/images_per_s": SPEED.get(start["tier"], 96.0) * 0.9}
        values |= {"train/embedding_consistency": float("nan") if i == 1 else loss * 2}
        log.metrics(i * 400, values)
        if i % 7 == 0:
            log.metrics(i * 400, {"val/gaze_deg": 4 + loss})
    if end:
        log.__exit__(None, None, None)
    else:
        log._file.close()


def write_summary(results: Path, tiers: tuple = TIERS, seeds: tuple = (0,), shift: float = 0.0) -> None:
    runs = []
    for position, tier in enumerate(tiers):
        for seed in seeds:
            error = 4.9 + 0.03 * position + 0.1 * seed + shift
            curve = [[k, error / (1 + k) ** 0.4] for k in (0, 1, 3, 5, 9)]
            runs.append({
                "tier": tier,
                "seed": seed,
                "metrics": {
                    "error/mpiigaze_deg": error,
                    "error/gazecapture_deg": error - 0.3,
                    "error/mpiigaze_k9_deg": curve[-1][1],
                    "error/gazecapture_k9_deg": None,
                    "speed/images_per_s": SPEED[tier],
                    "speed/step_ms": 32e3 / SPEED[tier],
                    "memory/peak_gib": 0.61 - 0.03 * position,
                },
                "curves": {
                    f"{d}_{learner}": curve for d in ("mpiigaze", "gazecapture") for learner in ("maml", "offset")
                },
            })  # fmt: skip
    folder = results / "evaluation"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text(json.dumps({"runs": runs, "pixel_sources": PIXEL_SOURCES}))


def write_data_page(paths: ResultPaths, dataset: str, digest: str = "0123456789abcdef") -> None:
    folder = paths.inspection(dataset)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "index.html").write_text(f"<h1>{dataset}</h1>")
    (folder / "table.csv").write_text("person\n")
    people = {"mpiigaze": {"test": 15}, "gazecapture": {"train": 24, "test": 12}}[dataset]
    summary = {
        "dataset": dataset,
        "digest": digest,
        "people": sum(people.values()),
        "strips": 10 * sum(people.values()),
        "splits": [{"split": split, "people": n, "strips": 10 * n, "least": 10} for split, n in people.items()],
        "rejects": {"frames": 3} if dataset == "mpiigaze" else None,
    }
    (folder / "summary.json").write_text(json.dumps(summary))


def write_results(results: Path, tiers: tuple = TIERS, seeds: tuple = (0,), steps: int = 30) -> ResultPaths:
    paths = ResultPaths(results)
    for tier in tiers:
        for seed in seeds:
            write_log(paths.run_log(tier, seed), start_event(results, tier, seed), steps)
            paths.walks(tier, seed).mkdir(parents=True, exist_ok=True)
            (paths.walks(tier, seed) / "contact_sheet.png").write_bytes(b"\x89PNG")
            (paths.walks(tier, seed) / "gaze_p00.mp4").write_bytes(b"video")
    for dataset in DATASETS:
        write_data_page(paths, dataset)
    write_summary(results, tiers, seeds)
    (paths.report / "figures").mkdir(parents=True, exist_ok=True)
    (paths.report / "index.html").write_text("<h1>FAZE</h1>")
    (paths.report / "table.csv").write_text("tier,error\n")
    (paths.report / "figures" / "speed.svg").write_text("<svg/>")
    return paths
