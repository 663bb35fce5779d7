"""The proofs of benchmarks/gpu.sh: units of its plan at toy sizes on a CPU, and code errors that a proof must detect.

The errors: weights that do not move, a learning rate frozen by a graph, batches that a graph ignores, parts that are
not averaged, momentum without Nesterov. Comparing only the losses of the first step would miss all of these errors
except the parts that are not averaged.
"""

import ast
import dataclasses
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest
import torch

from faze.benchmark import weight_changes as moves
from faze.config.parameters import Engine
from faze.engine.parallel import check_chunks
from faze.engine.step import Step, launch_eagerly
from faze.training.dted_training import build_step, build_training
from faze.training.feed import build_feed
from faze.training.loop import Training

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "gpu"))
import alone  # noqa: E402
import operations  # noqa: E402
import proof  # noqa: E402
import records  # noqa: E402
import table  # noqa: E402
import trajectory  # noqa: E402
import units  # noqa: E402

spec = importlib.util.spec_from_file_location("gpu_script", ROOT / "benchmarks" / "gpu" / "__main__.py")
gpu = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gpu)

# --- the plan --------------------------------------------------------------------------------------------------------

# One unit of each kind, and a switch that is inactive on a CPU. The trainings take a minute longer: they, and all other
# units, run in `make oldest`.
SOME = ("start/ddp", "check/fused_sgd", "check/amp", "time/talk-1", "step/fused_sgd", "switch/recompute", "switch/tf32")


def call(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [ROOT / "benchmarks" / "gpu.sh", "--tiny", "--budget-s", "3000", "--out", out, *arguments]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(command, env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=3000)


def test_tiny_run_of_each_kind_of_unit_is_right(tmp_path: Path) -> None:
    """Only the proofs themselves need CUDA; switches without effect on a CPU go through the same code."""
    ended = call(tmp_path, "--only", *SOME)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    planned = list(units.plan(units.settings(tiny=True)))
    assert {unit.kind for unit in planned} - {name.split("/")[0] for name in SOME} == {"people", "train"}
    assert f"\n{len(SOME)} of {len(planned)} done\n" in ended.stdout and "failed" not in ended.stdout
    found = json.loads((tmp_path / "gpu.json").read_text())["machines"].values()
    assert [list(results) for results in found] == [[unit.name for unit in planned if unit.name in SOME]]
    page = (tmp_path / "gpu.md").read_text()
    for name in SOME:
        kind, subject = name.split("/")
        assert kind in ("start", "time") or f"| {subject} |" in page, name
    assert page.count("| baseline_again | shows the noise |") == 1 and "talk: 1 round of fresh processes" in page
    assert "own: no round has been measured" in page
    assert re.search(r"\| fused_sgd \| on baseline: .*optimizer fused_sgd.* \| passed \|", page)
    assert re.search(r"\| amp \|.*the same; precision is inactive: this CPU", page)
    assert re.search(r"\| tf32 \|.*the same; tf32 is inactive: only CUDA devices have TF32", page)
    assert re.search(r"\| recompute \|.*\| the same \|", page)


def test_plan_of_another_workload_runs_its_own_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The units of DT-ED's data and switches are left out; BatchNorm makes parts of a batch another experiment."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests" / "shared"))
    some = ("start/ddp", "check/fused_sgd", "check/amp", "time/talk-1", "train/baseline")
    ended = call(tmp_path, "--workload", "tiny_workload:Tiny", "--only", *some)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    planned = list(units.plan(units.settings(True, "tiny_workload:Tiny")))
    assert {unit.kind for unit in planned} == {"start", "check", "time", "train"}
    assert f"\n{len(some)} of {len(planned)} done\n" in ended.stdout
    page = (tmp_path / "gpu.md").read_text()
    assert "| tier | accuracy, % | seconds |" in page and re.search(r"\| baseline \| [5-9]\d\.\d\d \|", page)
    assert re.search(r"\| fused_sgd \| on baseline: .*optimizer fused_sgd.* \| passed \|", page)
    assert re.search(r"\| amp \|.*the same; precision is inactive: this CPU", page)


def write_records(out: Path, results: dict[str, dict]) -> None:
    """Write results of this code and machine."""
    config = units.settings(tiny=True)
    made = records.Records(out / "gpu.json", {unit.name: units.identity(unit, config) for unit in units.plan(config)})
    for name, result in results.items():
        made.add(name, result, 1.0)


def test_a_tier_without_a_passed_proof_is_neither_timed_nor_shown(tmp_path: Path) -> None:
    times = {"step_ms": 1.0}
    failed = {"failed": "float64 differ by more than rounding: weights of encoder"}
    write_records(tmp_path, {"check/fused_sgd": failed, "time/talk-1": {"tiers": {"baseline": times}, **failed}})
    ended = call(tmp_path, "--only", "time/talk-1")
    assert ended.returncode == 1 and "time/talk-1 failed: fused_sgd is not proved" in ended.stdout
    assert "talk: no round has been measured" in (tmp_path / "gpu.md").read_text()


def test_a_tier_that_fails_its_proof_later_loses_its_time() -> None:
    row = {"blocks_ms": [[10.0, 10.0]], "peak_gib": 1.0, "switches": [{"switch": "a", "wanted": "x", "acted": "x"}]}
    row["switches"][0]["reason"] = ""
    tiers = {"baseline": [row], "fast": [row | {"blocks_ms": [[5.0, 5.1]]}], "baseline_again": [row]}
    shown = list(table._rows(tiers, {}))
    assert shown[1][3].startswith("1.98 (") and shown[1][-1] == "passed"
    hidden = list(table._rows(tiers, {"fast": "weights of encoder"}))
    assert hidden[1] == ["fast", "", "", "", "", "", "weights of encoder"]


def test_a_unit_that_hangs_is_recorded_and_the_next_ones_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: such a unit was repeated first by every call, and an answer that it had written was thrown away."""
    ran = []

    def hang(unit, config, out, limit_s, **_):
        ran.append(unit.name)
        return {"failed": f"stopped after {limit_s:.0f} s"}, False

    monkeypatch.setattr(gpu, "run", hang)
    monkeypatch.setattr(gpu, "make_data", lambda *_: None)
    monkeypatch.setattr(gpu.children, "prepare", lambda *_, **__: None)  # it changes this process's environment
    arguments = ["gpu.sh", "--tiny", "--budget-s", "1000", "--out", str(tmp_path), "--only", "check/amp", "check/ddp"]
    for _ in range(3):
        monkeypatch.setattr(sys, "argv", arguments)
        assert gpu.main() == gpu.FAILED
    assert sorted(ran) == ["check/amp", "check/amp", "check/ddp", "check/ddp"]  # not repeated for ever
    assert "| check/amp | 2 | stopped after 150 s |" in (tmp_path / "gpu.md").read_text()


def test_an_answer_counts_although_its_process_hangs(tmp_path: Path) -> None:
    answer, words = tmp_path / "answer.json", tmp_path / "words.txt"
    words.write_text("NCCL waits\n")
    assert units._result(answer, words, None, 60) == {"failed": "stopped after 60 s: NCCL waits"}
    assert units._result(answer, words, 3, 60) == {"failed": "NCCL waits"}
    answer.write_text('{"float32": {}}')
    assert units._result(answer, words, None, 60) == {"float32": {}, "note": "did not end"}
    assert units._result(answer, words, 3, 60) == {"float32": {}, "note": "ended with exit code 3"}
    assert units._result(answer, words, 0, 60) == {"float32": {}}


def test_processes_that_do_not_meet_cost_only_the_tier_that_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "devices", lambda: 8)
    config = units.settings(tiny=False)
    for ddp in (True, False):
        checks = [unit for unit in units.plan(config, ddp=ddp) if unit.kind == "check"]
        tiers = {unit.subject: unit.engines[unit.subject] for unit in checks}
        needing = [tier for tier, engine in tiers.items() if engine.parallel == "ddp"]
        assert len(needing) == (len(tiers) - 1 if ddp else 1) and "ddp" in needing


def test_the_talks_tiers_are_timed_within_eight_minutes() -> None:
    """The limits of FIRST_GUESS_S apply until a unit of the same kind has been timed."""
    planned = list(units.plan(units.settings(tiny=False)))
    first = [unit.name for unit in planned[: [unit.name for unit in planned].index("time/talk-3") + 1]]
    proofs = [f"check/{tier}" for tier in units.GROUPS["talk"]]
    assert first == ["start/ddp", *proofs, *(f"time/talk-{number}" for number in "123")]
    assert sum(records.FIRST_GUESS_S[name.split("/")[0]] for name in first) <= 8 * 60
    for unit in planned:
        if unit.kind == "time":
            proofs = [f"check/{tier}" for tier in unit.engines if not tier.startswith("baseline")]
            before = [other.name for other in planned[: planned.index(unit)]]
            assert set(proofs) <= set(before), unit.name


# --- each operation in low precision ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("precision", "switches"), [("bf16", {}), ("fp16", {}), ("bf16", {"recompute": True})])
def test_each_operation_only_rounds_its_result(precision: str, switches: dict) -> None:
    training = built(precision=precision, force=True, **switches)
    moves.set_scale(training.step)
    with operations.OperationErrors(proof.LOW[precision]) as errors:
        training.step(next(training.feed(range(1))), training.weights(0))
    found = errors.summary()
    assert "failed" not in found and 0.3 < found["error"] < operations.MOST and not found["unchecked"]
    assert {"aten.convolution.default", "aten.convolution_backward.default"} <= errors.errors.keys()


def test_an_operation_that_is_wrong_in_low_precision_is_found() -> None:
    """The error is 2 %, which training in bf16 would hide."""

    @torch.library.custom_op("faze_tests::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * (2.04 if x.dtype == torch.bfloat16 else 2.0)

    with operations.OperationErrors(torch.bfloat16) as errors:
        doubled(torch.randn(100).bfloat16()) + 1
    assert errors.summary()["failed"] == "wrong operations: faze_tests.doubled.default"


def test_every_value_of_every_switch_has_a_proof_of_its_own() -> None:
    baseline = trajectory.tier("baseline", parallel="single")
    changes = {**alone.SAME, **alone.OTHERWISE, **alone.LAST}.values()
    proved = {(name, str(value)) for change in changes for name, value in change.items()}
    proved |= {(name, str(getattr(baseline, name))) for name in vars(baseline)}  # in all others
    for field in dataclasses.fields(Engine):
        for value in get_args(field.type) if not hasattr(field.type, "__metadata__") else ():
            if field.name != "device":  # one unit compares it with the CPU
                assert (field.name, str(value)) in proved, (field.name, value)
        assert field.name == "device" or len({value for name, value in proved if name == field.name}) > 1, field.name


def test_what_is_imported_before_processes_are_forked_leaves_cuda_alone() -> None:
    """Forking is refused after CUDA has been initialised. Regression: a module queried the number of devices."""
    program = """
import torch
def touched(*given, **named):
    raise SystemExit("CUDA was touched")
for name in ("is_available", "device_count", "_lazy_init", "init", "get_device_properties", "is_bf16_supported"):
    setattr(torch.cuda, name, touched)
import proof, units, table, torch._dynamo
"""
    path = os.pathsep.join([str(ROOT), str(ROOT / "benchmarks" / "gpu")])
    preload = re.search(r"set_forkserver_preload\((\[.*?\])\)", (ROOT / "benchmarks/gpu/children.py").read_text())[1]
    assert all(name in program for name in ast.literal_eval(preload))
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("devices", [1, 2, 8])
def test_each_gpu_has_whole_chunks_in_every_unit(devices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: with two GPUs, the global batch had only one chunk, which DataParallel cannot divide."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=139 * 2**30))
    c = units.settings(tiny=False)
    for unit in units.plan(c):
        if unit.kind in ("time", "step"):
            batch, chunk, parts = c["train"]["global_batch"], 256, 4 if unit.kind == "step" else 1
            check_chunks(batch * parts, chunk, devices * parts)
    assert c["train"]["global_batch"] == 256 * devices


@pytest.mark.parametrize(("gib", "parts"), [(139, 4), (122, 4), (121, 2), (24, 2), (600, 8)])
def test_the_whole_batch_of_the_proof_fits(gib: int, parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=gib * 2**30))
    assert units.step_parts({"loss": {"chunk_pairs": 256}}) == parts


# --- what makes a proof fail -----------------------------------------------------------------------------------------


TRAIN = dataclasses.replace(trajectory.TRAIN, clip_norm=0.0)  # clipping would hide a gradient that is too long


def built(**switches) -> Training:
    chosen = trajectory.setup(trajectory.tier("baseline", **switches), train=TRAIN)
    return build_training(chosen, build_step(chosen), build_feed(trajectory.people(), chosen), None)


def changed(training: Training, change: Callable[[Step], Step]) -> Training:
    return dataclasses.replace(training, step=change(training.step))


def moved(training: Training, **how) -> moves.Moved:
    return proof.move(training, 2, trajectory.LOSS.ramp_pairs, **how)


@pytest.fixture(scope="module")
def baseline(one_thread: None) -> list[moves.Moved]:
    """Return the result of the baseline, followed by nudged repetitions that measure its noise."""
    share = moves.ROUNDING["fp32"]
    return [moved(built())] + [moved(built(), nudge=(share, seed)) for seed in proof.NUDGES]


def verdict(training: Training, baseline: list[moves.Moved], number_format: str = "fp32") -> dict:
    return moves.compare(moved(training), baseline[0], baseline[1:], number_format)


@pytest.mark.parametrize("switches", [{}, {"optimizer": "fused_sgd"}, {"accumulate": 2}, {"recompute": True}])
def test_the_same_experiment_passes(switches, baseline) -> None:
    found = verdict(built(**switches), baseline)
    assert "failed" not in found and found["cosine"] > 0.999999 and abs(found["length"] - 1) < 1e-5


def frozen_rate(step: Step) -> Step:
    """Simulate a graph that keeps the learning rate with which it was captured."""
    rates = [group["lr"] for group in step.groups]

    def launch(step, *given):
        for group, rate in zip(step.groups, rates, strict=True):
            group["lr"] = rate
        return launch_eagerly(step, *given)

    return dataclasses.replace(step, launch=launch)


def no_update(step: Step) -> Step:
    return dataclasses.replace(step, launch=lambda step, batch, w, clock: step.add_gradients(batch, w, clock))


def stale_batches(step: Step) -> Step:
    """Simulate a graph, captured in the fourth step, that always uses the batch with which it was captured."""
    seen: list[dict] = []

    def launch(step, batch, *given):
        seen.append(batch)
        return launch_eagerly(step, batch if len(seen) < 4 else seen[3], *given)

    return dataclasses.replace(step, launch=launch, settling_steps=4)


def without_nesterov(step: Step) -> Step:
    for group in step.groups:
        group["nesterov"] = False
    return step


@pytest.mark.parametrize("broken", [frozen_rate, no_update, stale_batches, without_nesterov])
def test_another_experiment_fails(broken, baseline) -> None:
    assert "weights of encoder" in verdict(changed(built(), broken), baseline)["failed"]


def test_parts_that_are_added_up_fail(baseline) -> None:
    """Simulate a loss that is not divided by the number of parts."""
    training = built(accumulate=2)
    for parameter in training.step.model.parameters():
        parameter.register_hook(lambda gradient: 2 * gradient)
    found = verdict(training, baseline)
    assert "weights of encoder" in found["failed"] and "gradient" in found["failed"]


@pytest.mark.parametrize("part", ["encoder.initial.conv1", "encoder.block2.compo1", "decoder.last.conv3", "gaze1"])
def test_a_lost_gradient_fails(part, baseline) -> None:
    """Regression: compiled fused normalisation lost the gradient of most tensors in torch 2.11."""
    training = built()
    (parameter, *_) = [weight for name, weight in training.module.named_parameters() if name.startswith(part)]
    parameter.register_hook(torch.zeros_like)
    assert f"weights of {part.split('.')[0].rstrip('1')}" in verdict(training, baseline)["failed"]


@pytest.mark.parametrize(("multiple", "fails"), [(0.5, False), (2, True), (10, True)])
@pytest.mark.parametrize("part", ["encoder", "fc_dec", "gaze"])
def test_a_fault_just_beyond_the_tolerance_fails(part, multiple, fails, baseline) -> None:
    """Plant a fault of a multiple of ten times the noise, which is what rounding may do."""
    wanted, noise = baseline[0], baseline[1:]
    least = max(moves.ROUNDING["fp32"], *(moves._distances(each, wanted)[1] for each in noise))
    tolerance = 10 * max(least, *(moves._distances(each, wanted)[0][part] for each in noise))
    change = wanted.weights[part]
    aside = change.roll(1) - (change.roll(1) @ change) / (change @ change) * change

    def faulty(length: float) -> moves.Moved:
        return dataclasses.replace(wanted, weights=wanted.weights | {part: change + length * aside})

    unit = moves._distances(faulty(1.0), wanted)[0][part]
    result = moves.compare(faulty(multiple * tolerance / unit), wanted, noise, "fp32")
    assert result.get("failed") == (f"differ by more than rounding: weights of {part}" if fails else None)


def test_nothing_passes_that_does_not_move_however_coarse_the_format(baseline) -> None:
    """No tolerance may allow this. Regression: only losses were compared, within 5e-2 in bf16, at learning rate 0."""
    noise = [moved(built(), nudge=(0.5, 1))]
    found = moves.compare(moved(changed(built(), no_update)), baseline[0], noise, "bf16")
    assert found["tolerance"] == moves.MOST and "weights of" in found["failed"]


def test_a_settled_step_begins_where_an_unsettled_one_does(baseline) -> None:
    """The comparison starts from the initial weights, whatever the number of steps before a graph is captured."""
    settling = changed(built(optimizer="fused_sgd"), lambda step: dataclasses.replace(step, settling_steps=3))
    settled = moved(settling)
    for part, change in moved(built(optimizer="fused_sgd")).weights.items():
        assert torch.equal(settled.weights[part], change)
