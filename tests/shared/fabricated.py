"""A small results/<name> tree of a finished ablation, with known true errors."""

import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image, ImageDraw
from stores import PersonStrips, write_strips

from faze.base.geometry import mean_angle_deg, vector_from_pitchyaw
from faze.base.result_paths import ResultPaths
from faze.config.stage_config import Resolved, resolve
from faze.config.validation import merge, read_config
from faze.data.codes import write_codes

DATASETS = ("mpiigaze", "gazecapture")
SOURCES = dict(zip(DATASETS, ("MPIIFaceGaze", "GazeCapture"), strict=True))
TIERS = ("baseline", "amp", "ddp", "fused_sgd", "autotune")
KEPT = {"maml": (0.80, 0.62, 0.55, 0.49), "offset": (1.05, 0.75, 0.66, 0.60)}  # share of the unadapted error at k
SHOTS = (1, 3, 5, 9)
SPEED, MEMORY = (1.0, 1.003, 0.94, 0.985, 0.98), (1.0, 1.0, 0.58, 0.58, 0.58)  # ratios of each tier
SECONDS = {"learn": 131.2, "adapt": 1.4}  # of the first learner; twice as long for the second, and so on
WANTED = {"precision": ("fp32", "fp16"), "parallel": ("dp", "ddp"), "optimizer": ("sgd", "fused_sgd")}
WANTED |= {"cudnn_benchmark": ("false", "true")}
REASONS = {
    ("precision", "fp16"): "this CPU has no fp16 kernels, autocast would be many times slower",
    ("parallel", "dp"): "DataParallel needs several CUDA devices",
    ("cudnn_benchmark", "true"): "cuDNN runs on CUDA devices only",
}
ACTED = {"dp": "one device", "ddp": "2 processes, gloo", "sgd": "torch SGD, for loop"}


@dataclass(frozen=True)
class Fabricated:
    """A fabricated ablation; the baseline's unadapted error is about 4.6 degrees and varies between people."""

    tiers: Sequence[str] = TIERS
    seeds: Sequence[int] = (0,)
    people: tuple[int, ...] = (15, 12)  # test people of each data set
    entries: int = 150
    query: int = 60
    shift_deg: float = 0.0  # of every tier but the baseline
    person_spread_deg: float = 0.03  # of the differences to the baseline; 0 = bit-identical errors
    seed_spread_deg: float = 0.02
    idle: bool = True  # a CPU: most switches cannot act
    controls: Sequence[str] = ()  # noise controls, with the first seed
    untrained: Collection[str] = ()  # tiers that are only measured
    one_round: bool = False  # of the benchmark
    pixel_sources: Mapping[str, str] = field(default_factory=lambda: SOURCES)

    def write(self, root: Path) -> ResultPaths:
        """Write everything that evaluate and report read."""
        paths = ResultPaths(root)
        for dataset, count in zip(self.pixel_sources, self.people, strict=True):
            self._write_store(paths, dataset, count)
        trained = [tier for tier in self.tiers if tier not in self.untrained]
        for run in [*itertools.product(trained, self.seeds), *((control, self.seeds[0]) for control in self.controls)]:
            self._write_run(paths, *run)
        self._write_benchmark(paths)
        paths.estimator_errors.parent.mkdir()
        error = {"split": "test", "people": 3, "gaze_deg": 3.0, "head_deg": 2.0}
        errors = [error | {"dataset": dataset} for dataset in self.pixel_sources]
        paths.estimator_errors.write_text(json.dumps({"errors": errors}))
        return paths

    def config(self, stage: str, **changed: object) -> Resolved:
        """Return the configuration of a stage; `changed` contains section__key=value."""
        datasets = [{"name": name, "layout": "gazecapture", "splits": "test"} for name in self.pixel_sources]
        datasets[0]["splits"] = "stated"
        changes = {
            "run": {"tiers": list(self.tiers), "seeds": list(self.seeds), "controls": list(self.controls)},
            "tiers": {tier: {"train": False} for tier in self.untrained},
            "fewshot": {"query_entries": self.query, "shots": list(SHOTS), "learners": list(KEPT)},
            "preprocess": {"datasets": datasets},
        }
        for key, value in changed.items():
            section, _, name = key.partition("__")
            changes = merge(changes, {section: {name: value}})
        return Resolved(resolve(read_config(changes=changes), stage))

    def _write_run(self, paths: ResultPaths, tier: str, seed: int) -> None:
        rng = np.random.default_rng([[*self.tiers, *self.controls].index(tier), seed])
        moved = tier != self.tiers[0]
        step = self.shift_deg + self.seed_spread_deg * rng.normal() if moved else 0.0
        rows = []
        for dataset, count in zip(self.pixel_sources, self.people, strict=True):
            people = []
            for i, person in _persons(dataset, count):
                change = step + self.person_spread_deg * rng.normal() if moved else 0.0
                arrays = _codes(dataset, i, seed, self.entries, change)
                people.append((person, "test", arrays))
                rows += self._adapted(person, dataset, _query_error(arrays, self.query), change)
            write_codes(paths.codes(tier, seed, dataset), dataset, people, pixel_source=self.pixel_sources[dataset])
        for learner, of_learner in pd.DataFrame(rows).groupby("learner"):
            path = paths.errors(tier, seed, str(learner))
            path.parent.mkdir(parents=True, exist_ok=True)
            table = pa.Table.from_pandas(of_learner, preserve_index=False)
            seconds = {what: took * (1 + [*KEPT].index(learner)) for what, took in SECONDS.items()}
            pq.write_table(table.replace_schema_metadata({"seconds": json.dumps(seconds)}), path)
        counts = dict(zip(self.pixel_sources, self.people, strict=True))
        write_pairs(paths.run(tier, seed, "redirected_pairs.parquet"), counts, rng)
        _write_log(paths.run_log(tier, seed), self._switches(tier), tier, seed, rng)
        _write_walks(paths.walks(tier, seed), tier)

    def _adapted(self, person: str, dataset: str, error: float, change: float) -> list[dict]:
        """Return a person's rows in each learner's file: at k, its share of the baseline's error plus the change."""
        rows, of_person = [], {"person": person, "dataset": dataset, "split": "test"}
        for learner, kept in KEPT.items():
            rows.append({"learner": learner, "k": 0, "repeat": 0, "error_deg": error})
            for k, share in zip(SHOTS, kept, strict=True):
                for repeat, wave in enumerate((-0.2 / k, 0.2 / k)):
                    adapted = share * (error - change) + change + wave
                    rows.append({"learner": learner, "k": k, "repeat": repeat, "error_deg": adapted})
        return [of_person | row for row in rows]

    def _switches(self, tier: str) -> list[dict[str, str]]:
        switches = []
        for position, (name, (off, on)) in enumerate(WANTED.items(), start=1):
            wanted = on if tier in self.tiers[position:] else off
            acted, reason = ACTED.get(wanted, wanted), REASONS.get((name, wanted), "") if self.idle else ""
            switches.append({"switch": name, "wanted": wanted, "acted": acted, "reason": reason})
        return switches

    def _write_benchmark(self, paths: ResultPaths) -> None:
        tiers = {}
        for tier, speed, memory in zip(self.tiers, SPEED, MEMORY, strict=False):
            step_ms, spread = 412.0 / speed, 0.012 if tier != self.tiers[0] else 0.0
            peaks = [gib / memory for gib in (0.436, 0.426, 0.446, 0.43, 0.44)][: 1 if self.one_round else 5]
            speedup, of_all = ([speed, speed * (1 - wide), speed * (1 + wide)] for wide in (spread, 2 * spread))
            row = {"step_ms": step_ms, "step_ms_quartiles": [0.985 * step_ms, 1.02 * step_ms], "warmup_s": 6.5}
            row |= {"processes": 1, "threads": 2}
            row |= {"images_per_s": 2 * 16 / step_ms * 1e3, "peak_gib": peaks[0], "memory_ratio": memory}
            row |= {"peaks_gib": peaks, "peak_gib_low": min(peaks), "peak_gib_high": max(peaks)}
            row["phases_ms"] = {"data": 1.0, "forward": 140.0, "backward": 255.0, "optimizer": 8.0}
            row["speedup"] = dict(zip(("ratio", "low", "high"), speedup, strict=True))
            of_all = dict(zip(("ratio", "low", "high"), of_all, strict=True))
            row["simultaneous"] = {"comparisons": len(self.tiers) - 1, "speedup": of_all}
            idle = self.idle and tier == "amp"
            row["same_as_baseline"] = "inactive on this machine, so the step is the same" if idle else None
            row |= {"tflops": 0.31 * speed, "share_of_matmul_roof": 0.27 * speed}
            row |= {"gbytes_per_s": 13.6 * speed, "share_of_copy_roof": 0.52 * speed, "joules_per_step": None}
            row |= {"unsteady_rounds": 2 if tier == "ddp" else 0, "switches": self._switches(tier)}
            tiers[tier] = row | {"pays_off_after_pairs": 5120.0 if speed > 1 else None}
        over = {"confidence": 0.95, "over": "blocks" if self.one_round else "rounds"}
        whole = {"rounds": 1 if self.one_round else 5, "speed_interval": over, "machine": MACHINE, "roof": ROOF}
        paths.benchmark.parent.mkdir(parents=True, exist_ok=True)
        paths.benchmark.write_text(json.dumps(whole | {"tiers": tiers}))
        paths.proofs.write_text("{}")

    def _write_store(self, paths: ResultPaths, dataset: str, count: int) -> None:
        splits = {"test": count} if dataset == "mpiigaze" else {"train": 3, "val": 2, "test": count}
        people = []
        for split, number in splits.items():
            for i, person in _persons(dataset, number, split):
                arrays = _codes(dataset, i, 0, 6)
                labels = np.concatenate([arrays["gaze"], arrays["head"]], axis=1)
                pixels = np.stack([_draw_eyes(label, i) for label in labels])
                people.append(PersonStrips(person, split, pixels, labels))
        write_strips(paths.store(dataset), dataset, people, pixel_source=self.pixel_sources[dataset])
        rejects = "person,file_name,reason\n" + 2 * "p01,p01/0003.jpg,unreadable image\n"
        paths.store(dataset).with_name(f"{dataset}_rejects.csv").write_text(rejects)


ROOF = {"copy_gbytes_per_s": {"median": 26.2}, "matmul_tflops": {"fp32": {"median": 0.29}, "bf16": {"median": 2.12}}}
MACHINE = {"processor": "AMD EPYC 7B13", "cores": "2", "memory_gib": "23.5", "python": "3.11.2", "torch": "2.13.0+cpu"}
MACHINE |= {"system": "Linux-6.1.0-x86_64-with-glibc2.36", "commit": "99ae179c0ffe+", "apex": "absent"}


def _persons(dataset: str, count: int, split: str = "test") -> list[tuple[int, str]]:
    start = {"train": 100, "val": 200, "test": 300}[split]
    return [(i, f"p{i:02d}" if dataset == "mpiigaze" else f"{start + i:05d}") for i in range(count)]


def _codes(dataset: str, person: int, seed: int, entries: int, change_deg: float = 0.0) -> dict[str, np.ndarray]:
    """Return codes whose unadapted error is `change_deg` larger than the baseline's, to first order."""
    number = DATASETS.index(dataset) if dataset in DATASETS else sum(dataset.encode())
    rng = np.random.default_rng([number, person, seed])
    bias = np.random.default_rng([number, person]).normal(size=2) * 0.052
    head = rng.normal(size=(entries, 2)) * 0.15
    gaze = 0.35 * head + rng.normal(size=(entries, 2)) * (0.14, 0.2)
    off = bias + rng.normal(size=(entries, 2)) * 0.028
    off *= 1 + np.radians(change_deg) / np.hypot(*off.T).mean()
    z_gaze = rng.normal(size=(entries, 2, 3))
    return {"z_gaze": z_gaze, "gaze": gaze, "head": head, "gaze_hat": vector_from_pitchyaw(gaze + off)}


def _query_error(arrays: dict[str, np.ndarray], query: int) -> float:
    gaze, gaze_hat = (arrays[name].astype(np.float32)[-query:].astype(np.float64) for name in ("gaze", "gaze_hat"))
    return mean_angle_deg(vector_from_pitchyaw(gaze), gaze_hat)


def _write_log(path: Path, switches: list[dict], tier: str, seed: int, rng: np.random.Generator) -> None:
    config = {"model.image_height_px": 32, "model.image_width_px": 128, "augment.flip": False}
    start = {"stage": "train", "name": "x", "tier": tier, "seed": seed, "config": config, "machine": MACHINE}
    events = [{"event": "start", **start}, *({"event": "switch", **switch} for switch in switches)]
    events += [{"event": "note", "text": "left out because of too few entries (data.min_entries): 00107"}]
    for pairs in range(1200, 12001, 1200):
        error = 4.3 + 14 * np.exp(-pairs / 2200) + 0.1 * rng.normal()
        events += [{"event": "metrics", "step": pairs, "values": {"train/loss": 2.0, "val/gaze_deg": error}}]
    events += [{"event": "end", "seconds": 240.0}]
    lines = [json.dumps({"time": 1.7e9 + 20 * i, **event}) for i, event in enumerate(events)]
    path.write_text("\n".join(lines) + "\n")


def _draw_eyes(label: np.ndarray, person: int) -> np.ndarray:
    """Draw a strip of two plain eyes that look along the label."""
    strip = Image.new("RGB", (256, 64), (150 + person % 90, 130, 110))
    draw = ImageDraw.Draw(strip)
    for centre in (64, 192):
        draw.ellipse((centre - 28, 18, centre + 28, 46), fill=(240, 240, 238))
        x, y = centre - 60 * np.sin(label[1]), 32 - 40 * np.sin(label[0])
        draw.ellipse((x - 11, y - 11, x + 11, y + 11), fill=(90, 60, 40))
    return np.asarray(strip)


SIMILARITIES = ("l1", "psnr", "ssim", "ms_ssim")
# Of fabricated redirected strips: error in degrees, and share of what was asked that turned.
REDIRECTED = {"real": (3.0, 1.0), "not_turned": (3.5, 0.0), "redirected": (5.0, 0.8)}


def write_pairs(path: Path, counts: Mapping[str, int], rng: np.random.Generator, pairs: int = 6) -> None:
    """Write invented estimates for redirected strips."""
    parts = []
    for dataset, count in counts.items():
        for _, person in _persons(dataset, count):
            own, wanted = rng.normal(0, 0.15, (2, pairs, 4))
            for variant, (error, share) in REDIRECTED.items():
                seen = own + share * (wanted - own) + np.radians(rng.normal(0, error / 1.3, own.shape))
                rows = pd.DataFrame({"dataset": dataset, "person": person, "pair": range(pairs), "variant": variant})
                for kind, angles in (("own", own), ("wanted", wanted), ("seen", seen)):
                    rows[[f"{kind}_{name}" for name in ("gaze_pitch", "gaze_yaw", "head_pitch", "head_yaw")]] = angles
                similarity = {} if variant == "real" else {"l1": 0.3, "psnr": 14.0, "ssim": 0.4, "ms_ssim": 0.5}
                parts.append(rows.assign(**{name: similarity.get(name, np.nan) for name in SIMILARITIES}))
    pd.concat(parts, ignore_index=True).to_parquet(path, index=False)


def _write_walks(folder: Path, tier: str) -> None:
    folder.mkdir(parents=True)
    Image.fromarray(_draw_eyes(np.zeros(4), 0)).save(folder / "contact_sheet.png")
    asked, walks = np.linspace(-45, 45, 7), []
    for gain, dataset, person in ((0.5, "mpiigaze", "p00"), (0.6, "gazecapture", "00300")):
        for walk in ("gaze yaw", "gaze pitch", "head yaw", "head pitch"):
            rows = {"dataset": dataset, "person": person, "walk": walk, "asked_deg": asked, "seen_deg": gain * asked}
            walks.append(pd.DataFrame(rows))
        (folder / f"{dataset}_{person}.mp4").write_bytes(b"\0\0\0\x18ftypisom" + tier.encode())
    pd.concat(walks).to_csv(folder / "angles.csv", index=False)
