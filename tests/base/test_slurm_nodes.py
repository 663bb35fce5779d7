"""The output of sinfo, and the message if no node has the requested resources. A script replaces sinfo."""

import os
from pathlib import Path

import pytest

from faze.base.errors import UserError
from faze.base.slurm_nodes import NO_LIMIT, Node, Request, check, read_nodes

TWO_PARTITIONS = """\
n1|main*|2|7000|(null)|infinite
n2|main*|4|7000|(null)|infinite
g1|gpu|32|256000|gpu:a100:4(S:0-1)|1-00:00:00
n2|short|4|7000|(null)|30:00
g2|short|2|7000|gpu:1|30:00
"""


@pytest.fixture
def sinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    script = tmp_path / "sinfo"
    wanted = "--noheader --Node --format=%N|%P|%c|%m|%G|%l"  # what each line below contains
    script.write_text(f"#!/bin/sh\ntest \"$*\" = '{wanted}' || exit 1\ncat <<'END'\n{TWO_PARTITIONS}END\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return script


def test_sinfo_is_read(sinfo):
    assert read_nodes() == [
        Node("n1", "main", True, 2, 7000, 0, NO_LIMIT),
        Node("n2", "main", True, 4, 7000, 0, NO_LIMIT),
        Node("g1", "gpu", False, 32, 256000, 4, 1440),
        Node("n2", "short", False, 4, 7000, 0, 30),
        Node("g2", "short", False, 2, 7000, 1, 30),
    ]


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("(null)", 0),
        ("gpu:2", 2),
        ("gpu:a100:2,gpu:t4:1,fpga:8", 3),
        ("gpu:nvidia_h100_80gb_hbm3:8(S:0-1),shard:80(S:0-1)", 8),
        ("license:gpu:3", 0),
    ],
)
def test_gpus_are_counted(gres, gpus, sinfo):
    sinfo.write_text(f"#!/bin/sh\necho 'n|p*|1|1|{gres}|infinite'\n")
    assert read_nodes()[0].gpus == gpus


@pytest.mark.parametrize(
    ("limit", "minutes"),
    [("infinite", NO_LIMIT), ("n/a", NO_LIMIT), ("2-12:00:00", 3600), ("04:30:00", 270), ("1-02:03:30", 1563.5)],
)
def test_limits_are_read(limit, minutes, sinfo):
    sinfo.write_text(f"#!/bin/sh\necho 'n|p*|3+|7+|(null)|{limit}'\n")
    assert read_nodes() == [Node("n", "p", True, 3, 7, 0, minutes)]


@pytest.mark.parametrize(
    "request_",
    [
        Request("train", None, 4, 7000, 0, 10**6),
        Request("train", "gpu", 32, 256000, 4, 1440),
        Request("train", "main,gpu", 16, 8000, 1, 60),
        Request("walk", "short", 1, 0, 0, 30),
    ],
)
def test_what_fits_a_node_of_its_partition_passes(request_, sinfo):
    check([request_], read_nodes())


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (
            Request("train", None, 16, 64000, 1, 4320),
            "rule train requests 16 CPUs, 64000 MB, 1 GPU, but the largest node of partition main, n2, "
            "has 4 CPUs, 7000 MB, no GPU: the job would wait forever; request less",
        ),
        (Request("walk", None, 4, 7001), "rule walk requests 4 CPUs, 7001 MB, no GPU, but the largest node"),
        (
            Request("walk", "short", 5),
            "rule walk requests 5 CPUs, 0 MB, no GPU, but the largest node of partition short, n2, has 4 CPUs, "
            "7000 MB, no GPU",
        ),
        (Request("walk", "short", 8, 0, 1), "the largest node of partition short, g2, has 2 CPUs, 7000 MB, 1 GPU"),
        (
            Request("train", "gpu", 8, 0, 5, 60),
            "5 GPUs, but the largest node of partition gpu, g1, has 32 CPUs, 256000 MB, 4 GPUs",
        ),
        (
            Request("train", "gpu", 16, 64000, 1, 1441),
            "1 GPU and 1441 minutes, but the largest node of partition gpu, g1, "
            "has 32 CPUs, 256000 MB, 4 GPUs and 1440 minutes for a job",
        ),
        (
            Request("train", "gpus"),
            "slurm_partition: rule train requests partition gpus; sinfo lists gpu, main, short",
        ),
    ],
)
def test_what_fits_none_is_refused_by_one_sentence(request_, sentence, sinfo):
    with pytest.raises(UserError) as refused:
        check([Request("encode", None), request_], read_nodes())
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_one_node_must_have_all_that_is_asked(sinfo):
    with pytest.raises(UserError, match="rule train"):
        check([Request("train", "main,gpu", 1, 1, 1, 3000)], read_nodes())  # long in main, a GPU in gpu


def test_rules_that_ask_alike_are_named_together(sinfo):
    requests = [Request("preprocess", None, 16), *[Request("train", None, 16, 64000)] * 2]
    with pytest.raises(
        UserError, match=r"^rule train requests 16 CPUs, 64000 MB, .* \(likewise for preprocess\): the job"
    ):
        check(requests, read_nodes())


def test_a_cluster_that_does_not_answer_is_one_sentence(sinfo, monkeypatch, tmp_path):
    sinfo.write_text("#!/bin/sh\necho 'slurm_load_partitions: Unable to contact slurm controller' >&2\nexit 1\n")
    with pytest.raises(UserError, match="^sinfo: slurm_load_partitions: Unable to contact slurm controller$"):
        read_nodes()
    sinfo.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="^sinfo: command not found"):
        read_nodes()


def test_resources_of_a_job_are_read():
    resources = {"mem_mb": 8000, "gpu": 1, "runtime": 120, "slurm_partition": "gpu", "_cores": 3}
    assert Request.of("train", 3, resources) == Request("train", "gpu", 3, 8000, 1, 120)
    assert Request.of("train", 1, {"mem_mb": "<TBD>"}) == Request("train", None)
