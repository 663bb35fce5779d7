"""A run killed through Snakemake, in any way at any time: the same plain command ends with the same weights.

The effect of a kill on the stage is tested in tests/training/test_resume.py. Moments are drawn in pairs, not in
seconds, so that they are the same on a busy machine. Checked by breaking the code: a resume that leaves out the
optimiser's state.
"""

import contextlib
import os
import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import yaml
from checkout import NOTHING, ROOT, Checkout
from processes import family, kill, living, send, until

from faze.base.run_log import read_events

pytestmark = pytest.mark.kills

BATCH, EVERY, PAIRS = 8, 32, 640  # pairs of a step, between two checkpoints, of the training
EARLY = (2 * EVERY, 4 * EVERY)  # the rest lasts longer than Snakemake needs to start
ANY = (2 * EVERY, PAIRS * 6 // 10)
OVERRIDES = {
    "synthetic": {"mpiigaze_people": 1, "gazecapture_train_people": 2, "gazecapture_test_people": 1},
    "train": {
        "pairs": PAIRS,
        "global_batch": BATCH,
        "log_every_pairs": BATCH,
        "validate_every_pairs": PAIRS // 2,
        "checkpoint_every_pairs": EVERY,
    },
}


class End(NamedTuple):
    """The outputs of a run, without its times."""

    weights: dict[str, torch.Tensor]
    metrics: list[tuple[int, dict[str, float]]]


class Training:
    """One tier's training, its command, and every process that the command has started."""

    def __init__(self, checkout: Checkout, tier: str, logs: Path) -> None:
        self.checkout, self.logs = checkout, logs
        self.folder = checkout.folder / "results/kill" / tier / "seed0"
        self.out, self.work = self.folder / "checkpoint.pt", self.folder / "train.work"
        self.target = str(self.out.relative_to(checkout.folder))
        self.processes: set[int] = set()

    def start(self) -> None:
        """Start the plain command in a separate process group."""
        self.log = self.logs / f"{len(self.processes)}.log"
        self.snakemake = self.checkout.start("--cores", "all", self.target, log=self.log)
        self.processes.add(self.snakemake.pid)

    def reached(self) -> int:
        """Return the number of pairs at the last log line of the running training process."""
        with contextlib.suppress(FileNotFoundError):
            return (self.work / "run.jsonl").read_text(encoding="utf-8").count('"event": "metrics"') * BATCH
        return 0

    def writes(self) -> bool:
        """Return whether a checkpoint is being written, that is, still has its temporary name."""
        return bool(list(self.work.glob(".checkpoint.pt.*")))

    def wait_for(self, pairs: int) -> None:
        """Wait until this many pairs are logged; record the running processes."""

        def there() -> bool:
            failed = self.snakemake.poll() not in (None, -signal.SIGKILL)
            return self.reached() >= pairs or self.out.exists() or failed

        until(there, f"{pairs} pairs")
        for process in list(self.processes):
            self.processes |= family(process)
        assert self.reached() >= pairs and not self.out.exists(), f"nothing is tested: {self.read_log()[-4000:]}"

    def stop_while_writing(self) -> None:
        """Stop every process between the creation of a checkpoint's temporary file and its renaming."""

        def caught() -> bool:
            if not self.writes():
                return False
            send(self.processes, signal.SIGSTOP)
            until(lambda: set(living(self.processes).values()) == {"T"}, "a standstill")
            if not self.writes():
                send(self.processes, signal.SIGCONT)
            return self.writes()

        until(caught, "a checkpoint's write", pause=0.001)

    def read_log(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def events(self, kind: str) -> list[dict]:
        return [event for event in read_events(self.folder / "run.jsonl") if event["event"] == kind]

    def end(self) -> End:
        metrics = [
            (event["step"], {name: value for name, value in event["values"].items() if name != "train/images_per_s"})
            for event in self.events("metrics")
        ]
        return End(torch.load(self.out, weights_only=True)["model"], metrics)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """Create a checkout with a configuration in which every step is logged and checkpoints are frequent."""
    checkout = Checkout(tmp_path_factory.mktemp("kill") / "faze", "config/kill.yaml")
    values = yaml.safe_load((ROOT / "config/smoke.yaml").read_text(encoding="utf-8")) | {"name": "kill"}
    for section, changed in OVERRIDES.items():
        values[section] |= changed
    (checkout.folder / checkout.config).write_text(yaml.safe_dump(values), encoding="utf-8")
    return checkout


@pytest.fixture(scope="module")
def undisturbed(checkout: Checkout, tmp_path_factory: pytest.TempPathFactory) -> dict[str, End]:
    """Train each tier without interruption, starting from raw frames; killed runs use the same data."""
    trainings = {tier: Training(checkout, tier, tmp_path_factory.mktemp(tier)) for tier in ("baseline", "ddp")}
    answer = checkout.snakemake("--cores", "all", *(training.target for training in trainings.values()))
    assert answer.code == 0, answer.text[-4000:]
    assert not any(training.events("resume") for training in trainings.values())
    return {tier: training.end() for tier, training in trainings.items()}


@contextlib.contextmanager
def fresh(checkout: Checkout, tier: str, logs: Path) -> Iterator[Training]:
    """Prepare a tier's training run for which only the data exist; kill remaining processes at the end."""
    training = Training(checkout, tier, logs)
    shutil.rmtree(training.folder)
    try:
        yield training
    finally:
        for process in list(training.processes):
            training.processes |= family(process)
        kill(training.processes)


@pytest.fixture
def baseline(checkout: Checkout, undisturbed: dict[str, End], tmp_path: Path) -> Iterator[Training]:
    with fresh(checkout, "baseline", tmp_path) as training:
        yield training


def end_of_re_run(training: Training, undisturbed: End) -> str:
    """Wait for the command, check that it ends as if nothing had been killed, and return its output."""
    code = training.snakemake.wait(timeout=600)
    assert code == 0, training.read_log()[-4000:]
    weights, metrics = training.end()
    for name, value in undisturbed.weights.items():
        assert torch.equal(weights[name], value), name
    assert metrics == undisturbed.metrics  # no gap, nothing twice
    assert not training.work.exists()
    left = {path.name for path in training.folder.rglob(".*")}
    assert left <= {".checkpoint.pt.lock", ".run.jsonl.lock", ".snakemake_timestamp"}
    return training.read_log()


def assert_resumed(training: Training, reached: int) -> None:
    """Check that training did not resume before the last checkpoint or from the beginning, and had steps left."""
    (event,) = training.events("resume")
    assert 0 < reached - EVERY <= event["step"] <= reached < PAIRS


@pytest.mark.parametrize("moment", ["while_writing"])
def test_killed_with_all_its_jobs(baseline: Training, undisturbed: dict[str, End], moment: str) -> None:
    baseline.start()
    baseline.wait_for(random.Random(f"group, {moment}").randint(*ANY))
    if moment == "while_writing":
        baseline.stop_while_writing()
    os.killpg(baseline.snakemake.pid, signal.SIGKILL)
    baseline.snakemake.wait()
    until(lambda: not living(baseline.processes), "the end of all")
    assert baseline.writes() or moment != "while_writing"
    reached = baseline.reached()
    baseline.start()
    assert "resumed after" in end_of_re_run(baseline, undisturbed["baseline"])
    assert_resumed(baseline, reached)


def start_beside(training: Training, orphans: set[int]) -> None:
    """Start a re-run, and stop the orphans until it waits for them, since it starts slowly."""
    send(orphans, signal.SIGSTOP)
    training.start()
    until(lambda: "held by process" in training.read_log(), "waiting", seconds=120)
    send(orphans, signal.SIGCONT)


@pytest.mark.parametrize("moment", ["second", "while_writing"])
def test_killed_alone_and_its_orphan_later(baseline: Training, undisturbed: dict[str, End], moment: str) -> None:
    """The orphan dies before the re-run, or (second) while the re-run waits for it."""
    draw = random.Random(f"alone, {moment}")
    baseline.start()
    baseline.wait_for(draw.randint(*(EARLY if moment == "second" else ANY)))
    if moment == "while_writing":
        baseline.stop_while_writing()
    baseline.snakemake.kill()
    baseline.snakemake.wait()
    send(baseline.processes, signal.SIGCONT)
    at_death = baseline.reached()
    orphans = set(living(baseline.processes))
    if moment == "second":
        start_beside(baseline, orphans)
    baseline.wait_for(at_death + draw.randint(EVERY, 3 * EVERY))  # the orphan goes on
    kill(orphans)
    reached = baseline.reached()
    if moment != "second":
        baseline.start()
    assert "resumed after" in end_of_re_run(baseline, undisturbed["baseline"])
    assert_resumed(baseline, reached)


def test_killed_alone_and_its_orphan_lives(baseline: Training, undisturbed: dict[str, End]) -> None:
    """Nothing is resumed: the re-run waits for the orphan and uses its outputs."""
    baseline.start()
    baseline.wait_for(random.Random("orphan").randint(*EARLY))
    baseline.snakemake.kill()
    baseline.snakemake.wait()
    orphans = set(living(baseline.processes))
    start_beside(baseline, orphans)
    text = end_of_re_run(baseline, undisturbed["baseline"])
    assert "pairs/s" not in text  # it did not train
    assert not baseline.events("resume")
    assert not living(orphans)
    assert NOTHING in baseline.checkout.dry_run(baseline.target).text


def test_killed_group_of_two_processes(checkout: Checkout, undisturbed: dict[str, End], tmp_path: Path) -> None:
    """Torchrun's workers have separate process groups, and exit on their own when torchrun is gone."""
    with fresh(checkout, "ddp", tmp_path) as ddp:
        ddp.start()
        ddp.wait_for(random.Random("ddp").randint(*ANY))
        os.killpg(ddp.snakemake.pid, signal.SIGKILL)
        ddp.snakemake.wait()
        until(lambda: not living(ddp.processes), "the end of all")
        reached = ddp.reached()
        ddp.start()
        assert "resumed after" in end_of_re_run(ddp, undisturbed["ddp"])
        assert_resumed(ddp, reached)
