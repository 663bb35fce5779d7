"""Few-shot learning against the released sequential procedure, on a CPU, interleaved in one run.

    python benchmarks/fewshot.py adapt sweep own memory

adapt   165 people (150 GazeCapture, 15 MPIIGaze; meta_synth's people, tiled) x 10 repeats x 1,000 steps, the error on
        500 query samples measured 51 times, for every k; the sequential side adapts some of the same calibrations.
sweep   all of it for k = 1...18: 100,000 outer steps of MAML with drawing and validation, then `adapt` for every k.
        Ours is run whole, in parts between which the sequential side takes its turns; only that side is extrapolated.
own     the whole sweep of each of --learners once on meta_synth's own 25 test people: seconds and curve.
memory  peak and time of 1,650 to 29,700 adaptations, each in a process of its own.

Ours has the threads given, the sequential side one, which is its fastest, or two processes of one thread each. Beside
other work, --cpu-time counts processor time instead: ours over its threads; of two processes nothing is then said.
"""

import argparse
import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from baselines import fewshot as baseline

from faze.benchmark.intervals import ratio_interval
from faze.benchmark.memory_peak import MemoryPeak
from faze.config.check import build
from faze.config.parameters import Fewshot, FewshotSection
from faze.config.yaml_files import read_yaml
from faze.data.store.codes import CodeStore
from faze.engine import machine
from faze.fewshot.draws import Calibration, PersonCodes, TaskDraws, draw_calibrations, read_people
from faze.fewshot.fine_tuning import InitialNetworks, fine_tuned_errors_deg
from faze.fewshot.kernel import kernel_for, single_threaded_operations
from faze.fewshot.learners import LEARNERS, MetaTraining, unadapted_error_deg
from faze.fewshot.meta_training import OuterState, ResumeFile, meta_train
from faze.fewshot.mlp import Weights, random_weights

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = Path(os.environ.get("FAZE_GOLDEN_DIR", ROOT.parent / "shared" / "golden")) / "meta_synth"
EVERY, STEPS, PEOPLE, REPEATS, VAL_PEOPLE = 20, 1000, 165, 10, 50
PARTS, SEQUENTIAL_STEPS = 10, 200  # of the sweep's meta-training


def settings(**changes: object) -> Fewshot:
    """The paper's, as config/paper.yaml has them, with the released number of measurements."""
    merged = read_yaml(ROOT / "config" / "config.yaml", ROOT / "config" / "paper.yaml")["fewshot"]
    of_paper = dataclasses.replace(build(FewshotSection, merged), record_steps=tuple(range(EVERY, STEPS, EVERY)))
    return dataclasses.replace(of_paper, **changes)


def people(name: str, count: int | None = None) -> list[PersonCodes]:
    """Of one file, or as many by tiling."""
    codes = CodeStore(GOLDEN / f"{name}_predictions.h5", default_split="test")
    found = read_people(codes, "test", needed=518, reason="the paper's protocol").persons
    return [
        dataclasses.replace(found[i % len(found)], name=f"{i:05d}", dataset=name) for i in range(count or len(found))
    ]


def sequential_network(weights: Weights) -> baseline.GazeNetwork:
    """The first of the networks as the sequential side has it."""
    network = baseline.GazeNetwork(*weights.hidden_weight.shape[1:])
    state = {
        "layer1.weight": weights.hidden_weight[0].T,
        "layer1.bias": weights.hidden_bias[0, 0],
        "layer2.weight": weights.output_weight[0].T,
        "layer2.bias": weights.output_bias[0, 0],
    }
    network.load_state_dict(state)
    return network


def sequential_samples(person: PersonCodes) -> baseline.Samples:
    return baseline.Samples(torch.from_numpy(person.code), torch.from_numpy(person.gaze).float())


@dataclasses.dataclass(frozen=True)
class Clock:
    """Seconds of wall time, or of processor time over the threads at work."""

    of_processor: bool

    def __call__(self, threads: int) -> float:
        """Now, for work on so many threads."""
        return time.process_time() / threads if self.of_processor else time.perf_counter()


class Sequential:
    """The sequential side in this process, or in two at once."""

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        # Fresh interpreters: a fork would inherit our threads' locks.
        self._pool = ProcessPoolExecutor(2, get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,))

    def seconds(self, work: Callable[[], object]) -> float:
        """Of a call, on one thread."""
        with single_threaded_operations():
            began = self._clock(1)
            work()
            return self._clock(1) - began

    def seconds_of_two(self, work: Callable[[], object]) -> float:
        """Of the same call in each of two processes, until both are done."""
        if self._clock.of_processor:
            return float("nan")
        began = time.perf_counter()
        for future in [self._pool.submit(work) for _ in range(2)]:
            future.result()
        return time.perf_counter() - began

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown()


def adapt_sequentially(network: baseline.GazeNetwork, person: PersonCodes, draw: Calibration, lr: float) -> list[float]:
    samples = sequential_samples(person)
    query = baseline.Samples(samples.code[-500:], samples.gaze[-500:])
    return baseline.adapt(network, samples.take(draw.support.tolist()), query, steps=STEPS, lr=lr, every=EVERY)[1]


def quick_start() -> Weights:
    """A network that adaptation starts from: some meta-training for k = 9."""
    short = settings(shots=(9,), outer_steps=500, validate_every_steps=500)
    draw = TaskDraws(people("gc_train"), tasks=5, support=9, query=100, seed=0)
    return meta_train("maml", random_weights(1, 6, 64, 0), draw, short, lambda *_: None, ResumeFile()).best


class Adaptations:
    """All of one k, and both sides' way to make them."""

    def __init__(self, everyone: Sequence[PersonCodes], k: int, start: Weights, threads: int) -> None:
        self._everyone, self._k, self._start, self._threads = everyone, k, start, threads
        self._settings, self._network = settings(shots=(k,)), sequential_network(start)
        self.draws = draw_calibrations(everyone, self._settings, repeats=REPEATS)

    def at_once(self, draws: Sequence[Calibration]) -> np.ndarray:
        """Errors of ours, (M, 51)."""
        start = InitialNetworks([self._k], self._start)
        return fine_tuned_errors_deg(start, self._everyone, draws, self._settings, threads=self._threads)

    def sequentially(self, draw: Calibration) -> Callable[[], list[float]]:
        """What the sequential side does for one of them; can be sent to another process."""
        return partial(adapt_sequentially, self._network, self._everyone[draw.person], draw, self._settings.adapt_lr)


def measure_adaptation(
    shots: Sequence[int], blocks: int, threads: int, clock: Clock
) -> dict[int, dict[str, list[float]]]:
    """Seconds for all adaptations by k, of ours, of the sequential side, and of two processes of it."""
    everyone = people("gc_test", PEOPLE - 15) + people("mpi")
    start, sequential, times = quick_start(), Sequential(clock), {}
    for k in shots:
        adaptations = Adaptations(everyone, k, start, threads)
        sequential.seconds_of_two(adaptations.sequentially(adaptations.draws[0]))  # imports are not timed
        adaptations.at_once(adaptations.draws[:64])
        played = [play_block(block, adaptations, sequential, partial(clock, threads)) for block in range(blocks)]
        times[k] = {name: [block[name] for block in played] for name in played[0]}
        difference = max(times[k].pop("difference"))
        print(f"k = {k:2d}: {ratios(times[k])}; largest difference of an error {difference:.4f} degrees", flush=True)
    sequential.close()
    return times


def play_block(
    block: int, adaptations: Adaptations, sequential: Sequential, clock: Callable[[], float]
) -> dict[str, float]:
    """Both sides, in alternating order; seconds for all, and the largest difference of an error that both measured."""
    place = block * 397 % len(adaptations.draws)
    work = adaptations.sequentially(adaptations.draws[place])
    played = {}

    def ours() -> None:
        began = clock()
        played["errors"] = adaptations.at_once(adaptations.draws)[place]
        played["ours"] = clock() - began

    def theirs() -> None:
        played["sequential"] = sequential.seconds(work) * len(adaptations.draws)
        played["two"] = sequential.seconds_of_two(work) * len(adaptations.draws) / 2

    for play in (ours, theirs) if block % 2 else (theirs, ours):
        play()
    played["difference"] = float(np.abs(played.pop("errors") - work()).max())
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
    """Print the seconds of the whole sweep, and its ratio to the sequential side."""
    train, val, sequential = people("gc_train"), people("gc_val", VAL_PEOPLE), Sequential(clock)
    theirs = [[sequential_samples(person) for person in group] for group in (train, val)]
    ours, per_step, of_two = 0.0, [], []
    with tempfile.TemporaryDirectory() as folder:
        for part in range(PARTS):
            until, k = outer_steps * (part + 1) // PARTS, shots[part * len(shots) // PARTS]
            began = clock(1)  # the outer loop has one thread; so has, by this clock, the little validation
            state = train_ours(train, val, shots, until, ResumeFile(Path(folder) / "work" / "checkpoint.pt"), threads)
            ours += clock(1) - began
            work = partial(train_sequentially, *theirs, k, SEQUENTIAL_STEPS)
            per_step.append(sequential.seconds(work) / SEQUENTIAL_STEPS)
            of_two.append(sequential.seconds_of_two(work) / 2 / SEQUENTIAL_STEPS)
            print(
                f"  {until} outer steps of all k: ours {ours:.1f} s; sequential, 1,000 of k = {k}: "
                f"{1e3 * per_step[-1]:.2f} s" + said_of_two(1e3 * of_two[-1], "{:.2f} s"),
                flush=True,
            )
    sequential.close()
    one_training, two_training = (outer_steps * len(shots) * float(np.mean(taken)) for taken in (per_step, of_two))
    print(
        f"meta-training, {outer_steps} outer steps, {len(shots)} values of k, {VAL_PEOPLE} val people: ours {ours:.1f} "
        f"s, sequential {one_training:.0f} s: {one_training / ours:.0f}x{said_of_two(two_training / ours)}; "
        f"val error {np.round(state.history[-1].val_deg, 3).tolist()}"
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


def train_ours(
    train: Sequence[PersonCodes],
    val: Sequence[PersonCodes],
    shots: Sequence[int],
    until: int,
    checkpoint: ResumeFile,
    threads: int,
) -> OuterState:
    """Meta-train from the checkpoint to an outer step."""
    to_there = settings(shots=tuple(shots), outer_steps=until, record_steps=())
    draw = TaskDraws(train, tasks=to_there.tasks, support=max(shots), query=to_there.meta_query, seed=0)
    draws = draw_calibrations(val, to_there, repeats=1)

    def validate(weights: Weights, scales: Weights) -> list[float]:
        errors = fine_tuned_errors_deg(InitialNetworks(shots, weights, scales), val, draws, to_there, threads=threads)
        return errors[:, -1].reshape(len(shots), -1).mean(1).tolist()

    return meta_train("maml", random_weights(len(shots), 6, 64, 0), draw, to_there, validate, checkpoint)


def train_sequentially(train: list, val: list, k: int, steps: int) -> None:
    baseline.meta_train(baseline.GazeNetwork(), train, val, k=k, steps=steps)


def measure_own(learners: Sequence[str], shots: Sequence[int], outer_steps: int, threads: int) -> None:
    """Print each learner's seconds and mean error by k, on people who are not tiled."""
    paper = settings(shots=tuple(shots), outer_steps=outer_steps, record_steps=())
    test = {name: people(name) for name in ("gc_test", "mpi")}
    for name, persons in test.items():
        errors = [unadapted_error_deg(person, paper.query_entries) for person in persons]
        print(f"unadapted, {name}: {np.mean(errors):.2f} degrees")
    for learner in learners:
        began = time.perf_counter()
        training = MetaTraining(people("gc_train"), people("gc_val"))
        learned = LEARNERS[learner].meta_train(training, paper, seed=0, threads=threads)
        learnt = time.perf_counter()
        curves = {}
        for name, persons in test.items():
            draws = draw_calibrations(persons, paper, repeats=REPEATS)
            errors = LEARNERS[learner].errors(learned, persons, draws, paper, threads=threads).adapted_deg
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
    """Of more and more adaptations, each in a process of its own."""
    for repeats in (1, 2, 6, 18):
        command = [sys.executable, __file__, "peak", "--repeats", str(10 * repeats), "--threads", str(threads)]
        command += ["--cpu-time"] if clock.of_processor else []
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="", flush=True)


def print_peak(repeats: int, threads: int, clock: Clock) -> None:
    torch.set_num_threads(threads)
    everyone = people("gc_test", PEOPLE - 15) + people("mpi")
    start, of_k = random_weights(1, 6, 64, 0), settings(shots=(9,))
    peak, began = MemoryPeak(torch.device("cpu")), clock(threads)
    draws = draw_calibrations(everyone, of_k, repeats=repeats)
    fine_tuned_errors_deg(InitialNetworks([9], start), everyone, draws, of_k, threads=threads)
    taken = clock(threads) - began
    print(
        f"{len(draws)} adaptations, k = 9: {taken:.2f} s, {1e3 * taken / len(draws):.3f} ms each, peak "
        f"{peak.read()['peak_gib']:.3f} GiB above {len(everyone)} people's codes"
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
