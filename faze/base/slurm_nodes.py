"""Check whether a SLURM cluster can run the requested jobs.

SLURM accepts a job that no node can ever run, and keeps it in the queue without a message. Standard library only.
"""

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from faze.base.errors import UserError

SINFO = ("sinfo", "--noheader", "--Node", "--format=%N|%P|%c|%m|%G|%l")
NO_LIMIT = float("inf")


@dataclass(frozen=True)
class Node:
    """A node, as a member of one partition."""

    name: str
    partition: str
    is_default: bool  # the default partition
    threads: int
    memory_mb: int
    gpus: int
    minutes: float  # time limit of the partition


@dataclass(frozen=True)
class Request:
    """The resources that a job of a rule requests; 0 for those that it does not request."""

    rule: str
    partition: str | None
    threads: int = 1
    memory_mb: int = 0
    gpus: int = 0
    minutes: int = 0

    @classmethod
    def of(cls, rule: str, threads: int, resources: Any) -> "Request":
        """Read the resources of a Snakemake job."""

        def number(name: str) -> int:
            value = resources.get(name) or 0
            return int(value) if str(value).isdecimal() else 0  # not yet known, since its input does not exist yet

        partition = resources.get("slurm_partition")
        return cls(rule, partition, threads, number("mem_mb"), number("gpu"), number("runtime"))

    def fits(self, node: Node) -> bool:
        """Return whether a node satisfies the request."""
        return (
            self.threads <= node.threads
            and self.memory_mb <= node.memory_mb
            and self.gpus <= node.gpus
            and self.minutes <= node.minutes
        )


def read_nodes() -> list[Node]:
    """Return the nodes of the cluster in any state, since a node that is down may come back.

    Raises:
        UserError: the cluster does not respond.
    """
    try:
        done = subprocess.run(SINFO, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise UserError("sinfo: command not found; submit jobs from a machine of the SLURM cluster") from None
    if done.returncode:
        raise UserError(f"sinfo: {done.stderr.strip() or 'failed'}")
    return [_node(line) for line in done.stdout.splitlines() if line.strip()]


def check(requests: Iterable[Request], nodes: list[Node]) -> None:
    """Check that every job fits on a node of its partition.

    Raises:
        UserError: no node satisfies a rule's request; the message names rule, request and the largest node. If there
            are several such rules, it names the one that requests the most.
    """
    refused: dict[str, str] = {}
    for request in sorted(requests, key=lambda one: (one.gpus, one.memory_mb, one.threads, one.minutes), reverse=True):
        known = [node for node in nodes if _is_asked(request.partition, node)]
        if not known:
            names = ", ".join(sorted({node.partition for node in nodes})) or "none"
            wanted = f"partition {request.partition}" if request.partition else "no partition, and there is no default"
            raise UserError(f"slurm_partition: rule {request.rule} requests {wanted}; sinfo lists {names}")
        if not any(map(request.fits, known)):
            refused.setdefault(_words(request, known), request.rule)
    if refused:
        first, *others = refused
        also = f" (likewise for {', '.join(refused[words] for words in others)})" if others else ""
        raise UserError(
            f"{first}{also}: the job would wait forever; request less in the profile's config.yaml (set-threads, "
            "set-resources, default-resources), or set another partition there (slurm_partition)"
        )


def _is_asked(partition: str | None, node: Node) -> bool:
    return node.partition in partition.split(",") if partition else node.is_default


def _words(request: Request, nodes: list[Node]) -> str:
    largest = max(nodes, key=lambda node: (node.gpus >= request.gpus, node.threads, node.memory_mb))
    asked = _amounts(request.threads, request.memory_mb, request.gpus)
    has = _amounts(largest.threads, largest.memory_mb, largest.gpus)
    if request.minutes > largest.minutes:
        asked, has = f"{asked} and {request.minutes} minutes", f"{has} and {largest.minutes:.0f} minutes for a job"
    return (
        f"rule {request.rule} requests {asked}, but the largest node of partition {largest.partition}, {largest.name}, "
        f"has {has}"
    )


def _amounts(threads: int, memory_mb: int, gpus: int) -> str:
    return f"{threads} CPUs, {memory_mb} MB, {gpus or 'no'} GPU{'s' if gpus > 1 else ''}"


def _node(line: str) -> Node:
    name, partition, threads, memory_mb, gres, limit = line.strip().split("|")
    return Node(
        name,
        partition.rstrip("*"),
        partition.endswith("*"),
        int(threads.rstrip("+")),
        int(memory_mb.rstrip("+")),
        _gpus(gres),
        _minutes(limit),
    )


def _gpus(gres: str) -> int:
    """Count the GPUs in a string such as `gpu:2`, `gpu:a100:4(S:0-1)`, `gpu:a100:2,gpu:t4:1,fpga:1`, `(null)`."""
    counts = re.findall(r"(?:^|,)gpu(?::[^:,()]+)?:(\d+)", gres)
    return sum(map(int, counts))


def _minutes(limit: str) -> float:
    """Return the minutes in a time limit such as `infinite`, `1-12:00:00`, `02:30:00`, `30:00`."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", limit)
    if not found:
        return NO_LIMIT
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return 24 * 60 * days + 60 * hours + minutes + seconds / 60
