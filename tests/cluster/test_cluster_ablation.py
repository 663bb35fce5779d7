"""The smoke ablation on three nodes with the shipped profile, compared with a run on this machine."""

import re
import time
from datetime import datetime

import pytest
from checkout import NOTHING, Checkout
from cluster import NODES
from on_cluster import Cluster, fitted
from same_results import assert_same_results

pytestmark = pytest.mark.cluster
PROFILE = "profiles/slurm/config.yaml"


@pytest.fixture(scope="module")
def checkouts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkout, Checkout]:
    """Create a checkout for this machine, and one for the cluster, whose profile requests what its nodes have."""
    local, spread = (
        Checkout(tmp_path_factory.mktemp(name) / "faze", "config/smoke.yaml") for name in ("local", "spread")
    )
    profile = spread.folder / PROFILE
    profile.write_text(fitted(profile.read_text(encoding="utf-8")), encoding="utf-8")
    return local, spread


@pytest.fixture(scope="module")
def ablations(checkouts, cluster) -> dict[str, float]:
    """Run both ablations, and return how many seconds each took."""
    seconds = {}
    for name, checkout, how in zip(
        ("local", "cluster"), checkouts, (("--cores", "2"), ("--profile", "profiles/slurm")), strict=True
    ):
        began = time.monotonic()
        answer = checkout.snakemake("ablation", *how)
        seconds[name] = time.monotonic() - began
        assert answer.code == 0, answer.text[-8000:]
    return seconds


def test_the_shipped_profile_is_refused_by_one_sentence(cluster: Cluster, checkouts) -> None:
    """Regression: the first job waited forever for the reason PartitionConfig."""
    local, _ = checkouts
    answer = local.snakemake("ablation", "--profile", "profiles/slurm")
    assert answer.code == 1
    [sentence] = [line for line in answer.text.splitlines() if "nothing was sent to SLURM" in line]
    assert re.search(
        r"rule train requests 16 CPUs, 64000 MB, 1 GPU, but the largest node of partition main, n\d, "
        "has 2 CPUs, 8000 MB, 1 GPU",
        sentence,
    )
    assert "Traceback" not in answer.text


def test_results_are_those_of_one_machine_to_the_bit(ablations, checkouts, capsys) -> None:
    local, spread = (checkout.folder / "results/smoke" for checkout in checkouts)
    compared = assert_same_results(local, spread)
    with capsys.disabled():
        print(f"\nsmoke ablation: {ablations['local']:.0f} s on this machine, {ablations['cluster']:.0f} s on 3 nodes")
        print(f"equal to the bit: {compared}")


def test_jobs_ran_on_every_node_and_measured_ones_alone(ablations, checkouts, cluster: Cluster) -> None:
    rules = {
        log.stem: log.parent.parent.name if log.parent.parent.name.startswith("rule_") else log.parent.name
        for log in (checkouts[1].folder / ".snakemake/slurm_logs").rglob("*.log")
    }
    spans = [(rules[job].removeprefix("rule_"), *span) for job, span in spans_of_jobs(cluster).items() if job in rules]
    assert {node for _, node, _, _ in spans} == set(NODES)
    alone = [span for span in spans if span[0] in ("train", "benchmark")]
    assert {rule for rule, *_ in alone} == {"train", "benchmark"}
    for own in alone:
        beside = [other for other in spans if other is not own and other[1] == own[1] and overlap(own, other)]
        assert not beside, (own, beside)


def overlap(one: tuple, other: tuple) -> bool:
    return one[2] < other[3] and other[2] < one[3]


def spans_of_jobs(cluster: Cluster) -> dict[str, tuple[str, datetime, datetime]]:
    """Return the node, start and end of each job, from the controller's records."""
    began, spans = {}, {}
    for line in (cluster.folder / "log/slurmctld.log").read_text().splitlines():
        when = re.match(r"\[(\S+)\] (.*)", line)
        if not when:
            continue
        at, words = datetime.fromisoformat(when[1]), when[2]
        if start := re.search(r"Allocate JobId=(\d+) NodeList=(n\d)|Started JobId=(\d+) in \w+ on (n\d)", words):
            began[start[1] or start[3]] = (start[2] or start[4], at)
        elif (end := re.search(r"_job_complete: JobId=(\d+) done", words)) and end[1] in began:
            spans[end[1]] = (*began[end[1]], at)
    return spans


def test_logs_are_found_by_rule(ablations, checkouts) -> None:
    logs = checkouts[1].folder / ".snakemake/slurm_logs"
    assert {"rule_train", "rule_benchmark", "rule_evaluate"} <= {path.name for path in logs.iterdir()}
    [log] = (logs / "rule_benchmark").rglob("*.log")
    assert "(Rule: benchmark)" in log.read_text(encoding="utf-8")


def test_nothing_is_left_to_do(ablations, checkouts) -> None:
    assert NOTHING in checkouts[1].snakemake("ablation", "--profile", "profiles/slurm", "-n").text
