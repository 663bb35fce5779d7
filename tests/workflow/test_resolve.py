"""`faze resolve` prints what the workflow writes for a stage, except for the checksum in the first line."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import Checkout, environment
from data_sets import overrides

pytestmark = pytest.mark.workflow
RUN = ("--tier", "recompute", "--seed", "0")
WANTED = {
    "synthesise": (),
    "preprocess_mpiigaze": ("--dataset", "mpiigaze"),
    "preprocess_gazecapture": ("--dataset", "gazecapture"),
    "benchmark": (),
    "evaluate": (),
    "report": (),
    "track": (),
    **dict.fromkeys(("train", "encode", "meta_train", "adapt", "walk", "redirect"), RUN),
}


def test_every_stage_is_told_the_same_by_the_command_and_by_the_workflow(tmp_path: Path) -> None:
    work = Checkout(tmp_path / "project", "mine.yaml")
    (work.folder / "strips.h5").touch()
    own = "name: mine\nrun: {tiers: [baseline, recompute]}\ntrain: {base_lr: 1.0e-5}\n"
    own += "benchmark: {leave_one_out: true}" + overrides(gazecapture={"layout": "strips", "path": "strips.h5"})
    (work.folder / "mine.yaml").write_text(own)
    written = {
        name: f"results/mine/{'recompute/seed0/' if options == RUN else ''}configs/{name}.yaml"
        for name, options in WANTED.items()
    }
    # Nothing is made: every file of a job is there before its first job fails.
    answer = work.snakemake("--cores", "1", "ablation", "--forceall", "--touch")
    assert answer.code == 0, answer.text
    for name, options in WANTED.items():
        stage = "preprocess" if name.startswith("preprocess") else name
        command = [sys.executable, "-m", "faze", "resolve", stage, *options, "--configfile", "mine.yaml"]
        said = subprocess.run(command, cwd=work.folder, capture_output=True, check=True, env=environment()).stdout
        checksum, _, lines = (work.folder / written[name]).read_bytes().partition(b"\n")
        assert said == lines, name
        assert hashlib.sha256(lines).hexdigest().encode() in checksum
    assert b"strips.h5" not in (work.folder / written["preprocess_mpiigaze"]).read_bytes()
    assert b"strips.h5" in (work.folder / written["preprocess_gazecapture"]).read_bytes()
