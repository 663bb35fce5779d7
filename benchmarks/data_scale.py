"""How each stage's time and memory grow with people and strips, and which limit a large data set reaches first.

    python benchmarks/data_scale.py --sizes 40x250 160x250 640x250 --svg docs/data_scale.svg
    python benchmarks/data_scale.py --raw results/default/raw    # also preprocess, with rendered frames

Each size is PEOPLE x STRIPS, and strips are noise. Four fifths of the people are for training, a tenth each for
validation and testing. Each stage runs as a separate command with one thread. Its CPU seconds, on which other load has
little effect, and its peak memory are measured, including its children's. Lines are fitted to seconds and memory
against the number of strips in the store, and extrapolated to --to.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import psutil
import torch

from faze.config.check import build
from faze.config.parameters import Model
from faze.config.stage_config import resolve, to_lines
from faze.config.tiers import tier_bases
from faze.config.validation import validate
from faze.config.yaml_files import DEFAULTS, merge, read_yaml, unflatten
from faze.data.store.strips import PersonStrips, write_strips
from faze.redirection.estimator import GazeHeadEstimator, TrainedEstimator, save_estimator

TRAIN_PAIRS = 320  # what a training takes to start, beside its steps
SMALL = {"train.pairs": TRAIN_PAIRS, "train.validate_every_pairs": TRAIN_PAIRS, "fewshot.outer_steps": 200}
LEARNERS = ("maml", "bayes")


@dataclass(frozen=True)
class Cost:
    """Measurements of one stage."""

    stage: str
    strips: int  # of which it reads
    cpu_s: float
    peak_gib: float


def measured(stage: str, strips: int, words: Sequence[object]) -> Cost:
    """Run a faze command, and sample its resource use, including its children's, every few hundredths of a second."""
    threads = ["--threads", 1] if stage not in ("inspect", "train") else []
    command = [sys.executable, "-m", "faze", stage, *map(str, [*words, *threads])]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "FAZE_OUTPUT_CACHE": ""}
    seconds: dict[int, float] = {}  # of each process, as last seen
    peak = 0
    with tempfile.TemporaryFile() as output:
        process = psutil.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        while process.poll() is None:
            held = 0
            for each in [process, *process.children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    seconds[each.pid], held = sum(each.cpu_times()[:2]), held + each.memory_info().rss
            peak = max(peak, held)
            time.sleep(0.03)
        if process.returncode:
            output.seek(0)
            raise SystemExit(f"{' '.join(command)} failed:\n{output.read().decode()[-3000:]}")
    cost = Cost(stage, strips, sum(seconds.values()), peak / 2**30)
    print(f"  {stage:12} {cost.cpu_s:9.1f} s of CPU {cost.peak_gib:8.2f} GiB", flush=True)
    return cost


def made_up(people: int, strips: int) -> Iterator[PersonStrips]:
    """Create people whose strips are noise, drawn once and rolled for each person, since drawing takes longest."""
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (strips, 64, 256, 3), dtype=np.uint8)
    for number in range(people):
        split = ("val", "test")[number % 10 - 8] if number % 10 >= 8 else "train"
        labels = rng.normal(0, 0.2, (strips, 4)).astype(np.float32)
        yield PersonStrips(f"{number:06d}", split, None, np.roll(noise, number, 2), labels)


def configs(folder: Path) -> Mapping[str, Path]:
    """Write each stage's config file: the defaults, with a short training run."""
    config = validate(merge(read_yaml(DEFAULTS), unflatten(SMALL)))
    paths, baseline = {}, next(iter(tier_bases(config)))
    for stage in ("preprocess", "train", "encode", "meta_train", "adapt", "redirect"):
        tier = None if stage == "preprocess" else baseline
        dataset = "gazecapture" if stage == "preprocess" else None
        lines = to_lines(resolve(config, stage, tier, 0 if tier else None, dataset))
        paths[stage] = folder / f"{stage}.yaml"
        paths[stage].write_text("\n".join(lines))
    return paths


def stages(folder: Path, people: int, strips: int) -> Iterator[Cost]:
    """Run every stage that reads a whole store or its codes; yield the measurements of each."""
    total, store, of = people * strips, folder / "gazecapture.h5", configs(folder)
    print(f"{people} people x {strips} strips: {total * 64 * 256 * 3 / 2**30:.1f} GiB", flush=True)
    write_strips(store, "gazecapture", made_up(people, strips))
    yield measured("inspect", total, [store, "--out", folder / "page"])
    run = ["--out", folder / "checkpoint.pt", "--run-log", folder / "run.jsonl"]
    yield measured("train", total, ["--config", of["train"], "--data", store, *run])
    codes = folder / "codes.h5"
    files = ["--checkpoint", folder / "checkpoint.pt", "--data", store, "--out", codes]
    yield measured("encode", total, ["--config", of["encode"], *files])
    made = [folder / f"{learner}.pt" for learner in LEARNERS]
    yield measured(
        "meta_train", total, ["--config", of["meta_train"], "--learner", *LEARNERS, "--codes", codes, "--out", *made]
    )
    tables = [folder / f"{learner}.parquet" for learner in LEARNERS]
    files = ["--learner-file", *made, "--codes", codes, "--out", *tables]
    files += ["--trace", *(folder / f"{learner}_trace.parquet" for learner in LEARNERS)]
    yield measured("adapt", total, ["--config", of["adapt"], "--learner", *LEARNERS, *files])
    model = build(Model, read_yaml(DEFAULTS)["model"])
    network = GazeHeadEstimator(16, (model.image_height_px, model.image_width_px)).eval()
    save_estimator(folder / "estimator.pt", TrainedEstimator(network, []))
    files = ["--checkpoint", folder / "checkpoint.pt", "--estimator", folder / "estimator.pt", "--data", store]
    files += ["--out", folder / "redirection.parquet", "--pairs", folder / "pairs.parquet"]
    yield measured("redirect", total, ["--config", of["redirect"], *files])


def preprocess(raw: Path, folder: Path) -> Iterator[Cost]:
    """Preprocess a twentieth, a fifth and all of the rendered GazeCapture people."""
    source, supplementary = raw / "gazecapture", raw / "gazecapture_supplementary.h5"
    people = sorted(path for path in source.iterdir() if path.is_dir())
    for share in (20, 5, 1):
        some = folder / f"raw{share}"
        some.mkdir()
        chosen = people[::share]
        for person in chosen:
            (some / person.name).symlink_to(person.resolve())
        frames = sum(len(list((person / "frames").iterdir())) for person in chosen)
        annotation = folder / f"supplementary{share}.h5"
        with h5py.File(supplementary) as whole, h5py.File(annotation, "w") as part:
            for person in chosen:
                whole.copy(whole[person.name], part, person.name)
        print(f"{len(chosen)} people, {frames} frames", flush=True)
        words = ["--config", configs(folder)["preprocess"], "--raw", some]
        words += ["--supplementary", annotation]
        words += ["--out", folder / f"strips{share}.h5", "--rejects", folder / f"rejects{share}.csv"]
        yield measured("preprocess", frames, words)


def line(costs: Sequence[Cost], what: str, to: int) -> tuple[float, float, float]:
    """Fit `what` = fixed + each x strips; return `fixed`, `each` and the value at `to`."""
    x, y = np.array([cost.strips for cost in costs], float), np.array([getattr(cost, what) for cost in costs])
    each, fixed = np.polyfit(x, y, 1)
    return fixed, each, fixed + each * to


def draw(costs: Mapping[str, Sequence[Cost]], to: int, path: Path) -> None:
    """Plot the time and memory of each stage against the number of strips, measured and extrapolated."""
    from faze.report.style import INK, MARKERS, MUTED, WIDTH, drawing, learner_colors, panels

    with drawing():
        figure, [[times, memory]] = panels(WIDTH, 4.4, 1, 2)
        colors = learner_colors(list(costs))
        for (stage, of), marker in zip(costs.items(), MARKERS, strict=False):
            x = np.array([cost.strips for cost in of], float)
            far = np.geomspace(x.min(), to)
            for axes, what, scale in ((times, "cpu_s", 3600), (memory, "peak_gib", 1)):
                fixed, each, _ = line(of, what, to)
                axes.plot(x, [getattr(cost, what) / scale for cost in of], marker, color=colors[stage], label=stage)
                axes.plot(far, np.maximum(fixed + each * far, 1e-3) / scale, color=colors[stage], lw=1, ls=":")
        for axes, title, unit in ((times, "Time of one thread", "hours of CPU"), (memory, "Memory at its peak", "GiB")):
            axes.set(xscale="log", yscale="log", title=title, xlabel="strips in the store", ylabel=unit)
            axes.xaxis.set_major_formatter("{x:,.0f}")
            axes.yaxis.set_major_formatter("{x:,.6g}")
            axes.axvline(to, color=MUTED, lw=0.8)
            axes.grid(axis="y")
        memory.axhline(24, color=INK, lw=0.8, ls="--")
        memory.annotate("24 GiB", (times.get_xlim()[0], 24), (4, 3), textcoords="offset points", fontsize=8.5)
        times.legend()
        figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["40x250", "160x250", "640x250"])
    parser.add_argument("--raw", type=Path, help="results/NAME/raw of rendered people")
    parser.add_argument("--to", default="100000x1000")
    parser.add_argument("--svg", type=Path)
    args = parser.parse_args()
    found: dict[str, list[Cost]] = {}
    if args.raw:
        with tempfile.TemporaryDirectory() as folder:
            found["preprocess"] = list(preprocess(args.raw, Path(folder)))
    for size in args.sizes:
        people, strips = map(int, size.split("x"))
        with tempfile.TemporaryDirectory() as folder:
            for cost in stages(Path(folder), people, strips):
                found.setdefault(cost.stage, []).append(cost)
    people, strips = map(int, args.to.split("x"))
    print(f"\n| stage | fixed | each 1,000 strips | {people:,} x {strips:,} |\n|---|---|---|---|")
    for stage, costs in found.items():
        (fixed_s, each_s, far_s), (fixed, each, far) = (
            line(costs, what, people * strips) for what in ("cpu_s", "peak_gib")
        )
        print(
            f"| {stage} | {fixed_s:.1f} s, {fixed:.2f} GiB | {1000 * each_s:.3g} s, {1024e3 * each:.3g} MiB | "
            f"{far_s / 3600:.3g} h, {far:.3g} GiB |"
        )
    if args.svg:
        draw(found, people * strips, args.svg)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
