"""A job killed by SLURM is reported in one sentence, and repeating the command gives the same results."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import yaml
from checkout import ROOT, Checkout
from on_cluster import Cluster, ask, fitted, held, is_held, until
from stage_training import measured

from faze.base.run_log import read_events

pytestmark = pytest.mark.cluster
BATCH, EVERY, PAIRS = 8, 80, 8 * 200
OVERRIDES = {
    "synthetic": {"mpiigaze_people": 1, "gazecapture_train_people": 2, "gazecapture_test_people": 1},
    "train": {"pairs": PAIRS, "log_every_pairs": 5 * BATCH, "validate_every_pairs": PAIRS}
    | {"checkpoint_every_pairs": EVERY},
}
RUN = Path("results/kill/baseline/seed0")
COMMAND = ("--profile", "profiles/slurm", str(RUN / "checkpoint.pt"))


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    checkout = Checkout(tmp_path_factory.mktemp("kill") / "faze", "config/kill.yaml")
    values = yaml.safe_load((ROOT / "config/smoke.yaml").read_text(encoding="utf-8")) | {"name": "kill"}
    for section, changed in OVERRIDES.items():
        values[section] |= changed
    (checkout.folder / checkout.config).write_text(yaml.safe_dump(values), encoding="utf-8")
    profile = checkout.folder / "profiles/slurm/config.yaml"
    profile.write_text(fitted(profile.read_text(encoding="utf-8")), encoding="utf-8")
    return checkout


@pytest.fixture(scope="module")
def undisturbed(checkout: Checkout) -> tuple[dict, list]:
    """Train on this machine alone; the other tests use its data."""
    answer = checkout.snakemake("--cores", "2", str(RUN / "checkpoint.pt"))
    assert answer.code == 0, answer.text[-4000:]
    return end(checkout)


def end(checkout: Checkout) -> tuple[dict, list]:
    folder = checkout.folder / RUN
    return torch.load(folder / "checkpoint.pt", weights_only=True)["model"], measured(folder / "run.jsonl")


class Command:
    """The plain command, which runs until its training has written a checkpoint."""

    def __init__(self, cluster: Cluster, checkout: Checkout, log: Path, *options: str) -> None:
        shutil.rmtree(checkout.folder / RUN)
        self.checkout, self.log = checkout, log
        self.process = checkout.start(*COMMAND, *options, log=log)
        until(lambda: self.ended() or (checkout.folder / RUN / "train.work/checkpoint.pt").exists(), "a checkpoint")
        assert not self.ended(), self.words()
        [self.job] = cluster.running()
        self.node = cluster.facts(self.job)["NodeList"]

    def ended(self) -> bool:
        return self.process.poll() is not None

    def words(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def is_told(self, status: str) -> None:
        """Check that one sentence names the job and what SLURM did to it."""
        assert self.process.wait(timeout=600) == 1, self.words()
        assert re.search(rf"SLURM-job '{self.job}' failed, SLURM status is: '{status}'", self.words()), self.words()
        assert "Traceback" not in self.words()

    def goes_on_when_given_again(self, undisturbed: tuple[dict, list]) -> None:
        answer = self.checkout.snakemake(*COMMAND)
        assert answer.code == 0, answer.text[-4000:]
        self.ended_as(undisturbed)

    def goes_on_by_itself(self, undisturbed: tuple[dict, list]) -> None:
        assert self.process.wait(timeout=900) == 0, self.words()
        self.ended_as(undisturbed)

    def ended_as(self, undisturbed: tuple[dict, list]) -> None:
        weights, log = end(self.checkout)
        assert all(torch.equal(value, weights[name]) for name, value in undisturbed[0].items())
        assert log == undisturbed[1]
        events = read_events(self.checkout.folder / RUN / "run.jsonl")
        assert [event["step"] for event in events if event["event"] == "resume"]


@pytest.fixture
def start(cluster: Cluster, checkout: Checkout, undisturbed: tuple, tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Return start(option ...), which runs the command until the test ends."""
    started: list[Command] = []

    def start(*options: str) -> Command:
        started.append(Command(cluster, checkout, tmp_path / "snakemake.log", *options))
        return started[-1]

    yield start
    for command in started:
        if not command.ended():
            command.process.kill()
            command.process.wait()


def test_a_job_that_is_cancelled_is_told_and_goes_on(start, undisturbed):
    command = start("--retries", "0")
    ask("scancel", command.job)
    command.is_told("CANCELLED")
    command.goes_on_when_given_again(undisturbed)


def test_a_job_whose_time_is_over_has_been_warned_and_is_sent_again(start, cluster, undisturbed):
    """This is the effect of `--signal` and `retries` in the profile: a warning, and another attempt."""
    command = start()
    with held(command.node) as stages:
        cluster.give_minutes(command.job, 3)
        until(lambda: not is_held(stages), "the warning")
    command.goes_on_by_itself(undisturbed)
    assert re.search(rf"SLURM-job '{command.job}' failed, SLURM status is: '(FAILED|TIMEOUT)'", command.words())
    assert "Trying to restart job" in command.words()


def test_a_job_whose_node_dies_is_requeued(start, cluster, undisturbed):
    command = start()
    with held(command.node), cluster.dead(command.node):
        command.goes_on_by_itself(undisturbed)
    assert cluster.facts(command.job)["Restarts"] == "1"


def test_a_job_that_is_preempted_is_sent_again(start, cluster, undisturbed, tmp_path):
    command = start()
    with held(command.node) as stages:
        cluster.submit_urgent(tmp_path, command.node)
        until(lambda: not is_held(stages), "SLURM's letting it go on")
    command.goes_on_by_itself(undisturbed)


def test_snakemake_that_is_killed_leaves_its_job_and_takes_what_it_has_made(start, undisturbed):
    """After the terminal has been closed, the same command waits for the job's end or replaces the job."""
    command = start()
    command.process.kill()
    command.process.wait()
    answer = command.checkout.snakemake(*COMMAND)
    assert answer.code == 0, answer.text[-4000:]
    weights, log = end(command.checkout)
    assert all(torch.equal(value, weights[name]) for name, value in undisturbed[0].items())
    assert log == undisturbed[1]
