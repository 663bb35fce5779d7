"""The tutorials' commands, run as printed on the pages, in a copy of the finished smoke ablation."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from checkout import ROOT, Answer, Checkout, environment

from faze.data.store.strips import StripStore

pytestmark = pytest.mark.workflow

BLOCK = re.compile(r"^```(shell|yaml|python|diff)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\S+)\n")


@pytest.fixture(scope="module")
def folder(finished: tuple[Checkout, Answer], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Checkout(tmp_path_factory.mktemp("tutorials") / "faze", "config/smoke.yaml", of=finished[0].folder).folder


def follow(page: str, folder: Path) -> list[str]:
    """Follow a page from top to bottom; return what each of its commands printed.

    A block of YAML or Python is written to the file that its first line names; a diff is applied.
    """
    text = (ROOT / "docs/tutorials" / page).read_text(encoding="utf-8")
    return [printed for kind, block in BLOCK.findall(text) if (printed := do(kind, block, folder)) is not None]


def do(kind: str, block: str, folder: Path) -> str | None:
    if kind in ("yaml", "python"):
        path = folder / FILE.match(block)[1]
        path.write_text(block, encoding="utf-8")
        return None
    command = ["git", "apply", "-"] if kind == "diff" else ["bash", "-euo", "pipefail"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command,
        input=block,
        cwd=folder,
        env=environment() | {"PATH": path, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{block}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return None if kind == "diff" else done.stdout + done.stderr


def test_own_tier(folder: Path) -> None:
    dry_run, run, switches = follow("own-tier.md", folder)
    jobs = Answer(0, dry_run).jobs
    stages = ("train", "encode", "meta_train", "adapt", "redirect")
    assert jobs == dict.fromkeys((*stages, "tier_checkpointed"), 1)
    assert "steps (100%) done" in run
    assert '"switch": "checkpointing", "wanted": "true", "acted": "true"' in switches


def test_own_data(folder: Path) -> None:
    _, run, rejects, page = follow("own-data.md", folder)
    assert "steps (100%) done" in run
    header, *rows = rejects.strip().splitlines()
    assert header == "person,file_name,reason"
    assert len(rows) == 1 and rows[0].startswith("p00,")
    assert "2 people" in page
    assert (folder / "my-data/page/index.html").is_file()


def test_own_learner(folder: Path) -> None:
    run, table = follow("own-learner.md", folder)
    assert "rule encode" not in run and "rule train:" not in run
    assert re.search(r"^mpiigaze +0 +\d+\.\d+$", table, re.MULTILINE)


def test_own_training(tmp_path: Path) -> None:
    folder = Checkout(tmp_path / "faze", "config/smoke.yaml").folder
    run, proofs, mistake = follow("own-training.md", folder)
    assert "steps (100%) done" in run
    said = [line.split(": ")[:2] for line in proofs.splitlines() if ": " in line and " experiment" in line]
    same, other = "the same experiment", "another experiment"
    assert said == [["baseline", same], ["fused_sgd", same], ["ddp", other], ["channels_last", same]]
    assert "two calls of batch(0, 0) differ in image: draw from a generator seeded by both numbers" in mistake
    assert "accuracy, %" in (folder / "results/ResNet/report/index.html").read_text()


def test_own_layout(folder: Path) -> None:
    """Three places change: a new module, the table of readers, and the names of layouts.

    This test is the last one, because its change of preprocess would make the other tutorials run everything again.
    """
    _, run = follow("own-layout.md", folder)
    assert "steps (100%) done" in run and "2 people" in run  # printed by Snakemake and by inspect
    with (
        StripStore(folder / "results/my-layout/data/lines.h5") as found,
        StripStore(folder / "results/smoke/data/mpiigaze.h5") as original,
    ):
        assert found.dataset == "lines" and found.persons("test") == original.persons() == ["p00", "p01"]
        for person in original.persons():
            np.testing.assert_array_equal(found.pixels(person), original.pixels(person))
            np.testing.assert_array_equal(found.labels(person), original.labels(person))


def test_every_tutorial_is_followed_here() -> None:
    pages = {page.name for page in (ROOT / "docs/tutorials").glob("*.md")} - {"index.md"}
    tested = set(re.findall(r'follow\("([\w-]+\.md)"', Path(__file__).read_text(encoding="utf-8")))
    assert tested == pages
