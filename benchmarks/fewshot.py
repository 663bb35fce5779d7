"""Few-shot learning timed against the released sequential procedure, interleaved in one run on a CPU.

    python benchmarks/fewshot.py adapt sweep own memory

adapt   165 people (150 GazeCapture, 15 MPIIGaze; meta_synth's people, tiled) x 10 repeats x 1,000 steps, the error on
        500 query samples measured 51 times, for every k. The sequential side adapts to some of the same calibrations.
sweep   everything for k = 1...18: 100,000 outer steps of MAML with drawing and validation, then `adapt` for every k.
        Our side runs completely, in parts that alternate with the sequential side; only the latter is extrapolated.
own     the whole sweep, once for each of --learners, on meta_synth's own 25 test people: seconds and error curve.
memory  peak memory and time of 1,650 to 29,700 adaptations, each number in a separate process.

Our side uses the given number of threads. The sequential side uses one thread, which is its fastest setting, or two
processes with one thread each. If the machine has other load, use --cpu-time to measure processor time instead, which
for our side is divided by its number of threads. Results for two processes are then not reported.
"""

import argparse
import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from fewshot_sequential import Clock, Sequential, adaptation_of, meta_training_of, network_of

from faze.benchmark.meters import MemoryPeak
from faze.benchmark.rows import ratio_interval
from faze.config.check import build
from faze.config.parameters import Fewshot, FewshotSection
from faze.config.yaml_files import read_yaml
from faze.data.store.codes import CodeStore
from faze.engine import machine
from faze.fewshot.fine_tuning import fine_tuned_errors_deg
from faze.fewshot.interface import Adaptation, MetaTraining
from faze.fewshot.kernel import kernel_for
from faze.fewshot.learners import LEARNERS
from faze.fewshot.meta_training import OuterState, ResumeFile, meta_train
from faze.fewshot.mlp import InitialNetworks, Weights, random_weights
from faze.fewshot.person_codes import PersonCodes, TaskDraws, draw_calibrations, read_people, unadapted_error_deg

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = Path(os.environ.get("FAZE_GOLDEN_DIR", ROOT.parent / "shared" / "golden")) / "meta_synth"
EVERY, STEPS, PEOPLE, REPEATS, VAL_PEOPLE = 20, 1000, 165, 10, 50
PARTS, SEQUENTIAL_STEPS = 10, 200  # of the sweep's meta-training


def settings(**changes: object) -> Fewshot:
    """Return the paper's settings from config/paper.yaml, with the released number of measurements."""
    merged = read_yaml(ROOT / "config" / "config.yaml", ROOT / "config" / "paper.yaml")["fewshot"]
    of_paper = dataclasses.replace(build(FewshotSection, merged), record_steps=tuple(range(EVERY, STEPS, EVERY)))
    return dataclasses.replace(of_paper, **changes)


def people(name: str, count: int | None = None) -> list[PersonCodes]:
    """Return the people in a file, repeated until there are `count` of them."""
    codes = CodeStore(GOLDEN / f"{name}_predictions.h5", default_split="test")
    found, _ = read_people(codes, "test", needed=518, reason="the paper's protocol")
    return [
        dataclasses.replace(found[i % len(found)], name=f"{i:05d}", dataset=name) for i in range(count or len(found))
    ]


def everyone() -> list[PersonCodes]:
    return people("gc_test", PEOPLE - 15) + people("mpi")


def adaptation_to(persons: Sequence[PersonCodes], k: int, threads: int, repeats: int = REPEATS) -> Adaptation:
    of_k = settings(shots=(k,))
    return Adaptation(draw_calibrations(persons, of_k, repeats=repeats), of_k, threads)


def quick_start() -> Weights:
    """Return an initial network for adaptation, briefly meta-trained for k = 9."""
    short = settings(shots=(9,), outer_steps=500, validate_every_steps=500)
    return train_ours(short, people("gc_train"), lambda *_: None, ResumeFile()).best


def train_ours(
    to_there: Fewshot, train: Sequence[PersonCodes], validate: Callable, resume_file: ResumeFile
) -> OuterState:
    """Meta-train up to the last outer step of the settings, resuming from the file if it exists."""
    initial = InitialNetworks(to_there.shots, random_weights(len(to_there.shots), 6, 64, 0))
    return meta_train("maml", initial, TaskDraws(train, to_there, seed=0), to_there, validate, resume_file)


def measure_adaptation(
    shots: Sequence[int], blocks: int, threads: int, clock: Clock
) -> dict[int, dict[str, list[float]]]:
    """Return the seconds for all adaptations by k: on our side, sequentially, and in two sequential processes."""
    persons, start, sequential, times = everyone(), quick_start(), Sequential(clock), {}
    with sequential.pool:
        for k in shots:
            adaptation, networks = adaptation_to(persons, k, threads), InitialNetworks([k], start)
            sequential.seconds_of_two(sequential_work(adaptation, networks, 0))  # imports are not timed
            fine_tuned_errors_deg(networks, dataclasses.replace(adaptation, calibrations=adaptation.calibrations[:64]))
            played = [play_block(block, adaptation, networks, sequential) for block in range(blocks)]
            times[k] = {name: [block[name] for block in played] for name in played[0]}
            difference = max(times[k].pop("difference"))
            print(
                f"k = {k:2d}: {ratios(times[k])}; largest difference of an error {difference:.4f} degrees", flush=True
            )
    return times


def sequential_work(adaptation: Adaptation, networks: InitialNetworks, place: int) -> Callable:
    options = {"steps": STEPS, "lr": adaptation.settings.adapt_lr, "every": EVERY}
    return adaptation_of(network_of(networks.weights), adaptation.calibrations[place], **options)


def play_block(
    block: int, adaptation: Adaptation, networks: InitialNetworks, sequential: Sequential
) -> dict[str, float]:
    """Run both sides in alternating order; return the seconds for all, and the largest difference in their errors."""
    count, clock = len(adaptation.calibrations), partial(sequential.clock, adaptation.threads)
    place = block * 397 % count
    work = sequential_work(adaptation, networks, place)
    played = {}

    def ours() -> None:
        began = clock()
        played["errors"] = fine_tuned_errors_deg(networks, adaptation)[place]
        played["ours"] = clock() - began

    def theirs() -> None:
        played["sequential"] = sequential.seconds(work) * count
        played["two"] = sequential.seconds_of_two(work) * count / 2

    for play in (ours, theirs) if block % 2 else (theirs, ours):
        play()
    played["difference"] = float(np.abs(played.pop("errors") - work()[1]).max())
    return played


def ratios(found: dict[str, list[float]]) -> str:
    ours, one = np.median(found["ours"]), np.median(found["sequential"])
    said = {
        name: "{ratio:.0f}x ({low:.0f} to {high:.0f})".format(**ratio_interval(found[name], found["ours"]))
        for name in ("sequential", "two")
        if np.isfinite(found[name]).all()
    }
    of_two = f", of two processes {said['two']}" if "two" in said else ""
    per_step = 1e3 * one / (PEOPLE * REPEATS * STEPS)
    return (
        f"ours {ours:.2f} s = {1e3 * ours / STEPS:.2f} ms per step of all; sequential {one:.0f} s = {per_step:.3f} ms "
        f"per step of one; {said['sequential']}{of_two}"
    )


def measure_sweep(shots: Sequence[int], outer_steps: int, blocks: int, threads: int, clock: Clock) -> None:
    """Print the seconds of the whole sweep, and how many times faster it is than the sequential side."""
    train, val, sequential = people("gc_train"), people("gc_val", VAL_PEOPLE), Sequential(clock)
    paper = settings(shots=tuple(shots), record_steps=())
    validation = Adaptation(draw_calibrations(val, paper, repeats=1), paper, threads)
    ours, per_step, of_two = 0.0, [], []

    def validate(weights: Weights, scales: Weights) -> list[float]:
        errors = fine_tuned_errors_deg(InitialNetworks(shots, weights, scales), validation)
        return errors[:, -1].reshape(len(shots), -1).mean(1).tolist()

    with tempfile.TemporaryDirectory() as folder, sequential.pool:
        for part in range(PARTS):
            until, k = outer_steps * (part + 1) // PARTS, shots[part * len(shots) // PARTS]
            to_there = dataclasses.replace(paper, outer_steps=until)
            began = clock(1)  # the outer loop has one thread; so has, by this clock, the little validation
            state = train_ours(to_there, train, validate, ResumeFile(Path(folder) / "work" / "resume.pt"))
            ours += clock(1) - began
            work = meta_training_of(train, val, k=k, steps=SEQUENTIAL_STEPS)
            per_step.append(sequential.seconds(work) / SEQUENTIAL_STEPS)
            of_two.append(sequential.seconds_of_two(work) / 2 / SEQUENTIAL_STEPS)
            print(
                f"  {until} outer steps of all k: ours {ours:.1f} s; sequential, 1,000 of k = {k}: "
                f"{1e3 * per_step[-1]:.2f} s" + said_of_two(1e3 * of_two[-1], "{:.2f} s"),
                flush=True,
            )
    one_training, two_training = (outer_steps * len(shots) * float(np.mean(taken)) for taken in (per_step, of_two))
    print(
        f"meta-training, {outer_steps} outer steps, {len(shots)} values of k, {VAL_PEOPLE} val people: ours {ours:.1f} "
        f"s, sequential {one_training:.0f} s: {one_training / ours:.0f}x{said_of_two(two_training / ours)}; "
        f"val error {np.round(state.history[-1]['val_deg'], 3).tolist()}"
    )
    times = measure_adaptation(shots, blocks, threads, clock)
    mine, one, two = (sum(np.median(found[name]) for found in times.values()) for name in ("ours", "sequential", "two"))
    print(
        f"whole sweep: ours {ours + mine:.0f} s (adaptation {mine:.0f} s), sequential {one_training + one:.0f} s = "
        f"{(one_training + one) / 3600:.1f} h: {(one_training + one) / (ours + mine):.0f}x"
        + said_of_two((two_training + two) / (ours + mine))
    )


def said_of_two(value: float, how: str = "{:.0f}x") -> str:
    return f", of two processes {how.format(value)}" if np.isfinite(value) else ""


def measure_own(learners: Sequence[str], shots: Sequence[int], outer_steps: int, threads: int) -> None:
    """Print each learner's seconds and mean error by k, on people who are not tiled."""
    paper = settings(shots=tuple(shots), outer_steps=outer_steps, record_steps=())
    test = {name: people(name) for name in ("gc_test", "mpi")}
    for name, persons in test.items():
        errors = [unadapted_error_deg(person, paper.query_entries) for person in persons]
        print(f"unadapted, {name}: {np.mean(errors):.2f} degrees")
    for learner in learners:
        began = time.perf_counter()
        learned = LEARNERS[learner].meta_train(MetaTraining(people("gc_train"), people("gc_val"), paper, 0, threads))
        learnt = time.perf_counter()
        curves = {}
        for name, persons in test.items():
            adaptation = Adaptation(draw_calibrations(persons, paper, repeats=REPEATS), paper, threads)
            errors = LEARNERS[learner].errors(learned, adaptation).adapted_deg
            curves[name] = errors.reshape(len(shots), -1).mean(axis=1)
        ended = time.perf_counter()
        count = len(shots) * REPEATS * sum(map(len, test.values()))
        print(f"{learner}: {learnt - began:.1f} s to learn, {ended - learnt:.1f} s for {count} calibrations")
        for name, curve in curves.items():
            print(
                f"  {name}: " + ", ".join(f"{k}: {error:.2f}" for k, error in zip(shots, curve, strict=True)),
                flush=True,
            )


def measure_memory(threads: int, clock: Clock) -> None:
    """Print the time and peak memory of growing numbers of adaptations, each number in a separate process."""
    for repeats in (1, 2, 6, 18):
        command = [sys.executable, __file__, "peak", "--repeats", str(10 * repeats), "--threads", str(threads)]
        command += ["--cpu-time"] if clock.of_processor else []
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="", flush=True)


def print_peak(repeats: int, threads: int, clock: Clock) -> None:
    persons, networks = everyone(), InitialNetworks([9], random_weights(1, 6, 64, 0))
    peak, began = MemoryPeak(torch.device("cpu")), clock(threads)
    adaptation = adaptation_to(persons, 9, threads, repeats)
    fine_tuned_errors_deg(networks, adaptation)
    taken, count = clock(threads) - began, len(adaptation.calibrations)
    print(
        f"{count} adaptations, k = 9: {taken:.2f} s, {1e3 * taken / count:.3f} ms each, peak "
        f"{peak.read()['peak_gib']:.3f} GiB above {PEOPLE} people's codes"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="+", choices=("adapt", "sweep", "own", "memory", "peak"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--shots", type=int, nargs="+", default=list(range(1, 19)))
    parser.add_argument("--outer-steps", type=int, default=100_000)
    parser.add_argument("--learners", nargs="+", default=["maml", "reference", "offset"], help="of the part own")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--cpu-time", action="store_true", help="processor time, beside other work")
    arguments = parser.parse_args()
    clock = Clock(arguments.cpu_time)
    torch.set_num_threads(arguments.threads)
    if arguments.parts == ["peak"]:
        return print_peak(arguments.repeats, arguments.threads, clock)
    print(", ".join(f"{name} {fact}" for name, fact in machine.describe().items()))
    kernel = type(kernel_for(random_weights(1, 6, 64, 0), "selu")).__name__
    what = "processor time" if arguments.cpu_time else "wall time"
    print(f"{arguments.threads} threads, {arguments.blocks} blocks, {kernel}; {what}; medians, t intervals of ratios")
    if "adapt" in arguments.parts:
        measure_adaptation(arguments.shots, arguments.blocks, arguments.threads, clock)
    if "sweep" in arguments.parts:
        measure_sweep(arguments.shots, arguments.outer_steps, arguments.blocks, arguments.threads, clock)
    if "own" in arguments.parts:
        measure_own(arguments.learners, arguments.shots, arguments.outer_steps, arguments.threads)
    if "memory" in arguments.parts:
        measure_memory(arguments.threads, clock)


if __name__ == "__main__":
    main()
