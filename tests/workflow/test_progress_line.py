"""The line that tells how far a run is, from what a real Snakemake logs, in a log and on a terminal."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.workflow

ROOT = Path(__file__).resolve().parents[2]
TOY = """
import sys
sys.path.insert(0, {root!r})
import faze.base.run_progress
config.update(name="toy", run={{"seeds": [0]}}, train={{"pairs": 9}})
config["model"] = {{"growth": 1, "image_height_px": 1, "image_width_px": 1}}

rule all:
    input: expand("{{tier}}/checkpoint", tier=["amp", "recompute"])

rule train:
    output: "{{tier}}/checkpoint"
    benchmark: "{{tier}}/train.tsv"
    shell: "echo said by {{wildcards.tier}}; sleep 1.5; {then} touch {{output}}"

onstart:
    faze.base.run_progress.follow({workflow}, logger, config, config)
"""


@pytest.fixture
def toy(tmp_path):
    def write(workflow="workflow", then=""):
        (tmp_path / "Snakefile").write_text(TOY.format(root=str(ROOT), workflow=workflow, then=then))
        return tmp_path

    return write


def snakemake(folder, *arguments, code=0):
    command = [sys.executable, "-m", "snakemake", "--cores", "1", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stderr


def on_a_terminal(folder, *arguments):
    """Run Snakemake on a terminal of 24 rows of 80, and give what it wrote there."""
    leader, follower = pty.openpty()
    os.set_blocking(leader, True)
    subprocess.run(["stty", "rows", "24", "cols", "80"], stdin=follower, check=True)
    command = [sys.executable, "-m", "snakemake", "--cores", "1", *arguments]
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(
        command, cwd=folder, stdin=follower, stdout=follower, stderr=follower, env=environment
    ) as process:
        os.close(follower)
        written = b""
        while True:
            try:
                part = os.read(leader, 65536)
            except OSError:  # the last one who held the terminal is gone
                break
            written += part
            if not part:
                break
    os.close(leader)
    return process.returncode, written.decode()


def test_a_log_ends_with_how_far_the_run_came(toy):
    text = snakemake(toy())
    assert [line for line in text.splitlines() if "toy: " in line][:-1] == []
    assert re.search(r"^toy: 3 of 3 jobs done in \d+ s$", text, re.MULTILINE)


def test_a_terminal_has_the_line_at_its_foot_and_is_given_back(toy):
    code, text = on_a_terminal(toy())
    assert code == 0
    lines = re.findall(r"\x1b7\x1b\[24;1H\x1b\[2K\x1b\[7m(toy: [^\x1b]*)\x1b\[0m\x1b8", text)
    first = re.compile(r"toy: 0 of 3 jobs, \d+ min left \(a guess\); train (amp|recompute) \(1 s\)")
    assert any(map(first.fullmatch, lines))
    # The guess was in minutes. Once one training of 1.5 seconds has been seen, what is left is told in seconds.
    after = re.compile(r"toy: 1 of 3 jobs, \d+ s left \(a guess\); train (amp|recompute) \(\d+ s\)")
    assert any(map(after.fullmatch, lines))
    assert max(map(len, lines)) < 80
    # The region without the last row, once; then all rows, and nothing in the last one.
    assert text.count("\x1b[1;23r") == text.count("\x1b[r") == 1
    assert text.index("\x1b[1;23r") < text.index("said by") < text.index("\x1b[r")
    assert re.search(r"\x1b8toy: 3 of 3 jobs done in \d+ s\r\n$", text[text.index("\x1b[r") :])


def test_the_second_run_knows_the_first(toy):
    folder = toy()
    snakemake(folder)
    _, text = on_a_terminal(folder, "--forceall")
    assert re.search(r"toy: 0 of 3 jobs, [3-9] s left \(by the last run\); train", text)


@pytest.mark.parametrize("arguments", [("--dry-run",), ("--quiet",), ("--quiet", "progress")])
def test_dry_and_quiet_runs_show_nothing(toy, arguments):
    assert "toy: " not in snakemake(toy(), *arguments)


def test_a_failure_gives_the_terminal_back(toy):
    code, text = on_a_terminal(toy(then="false;"))
    assert code == 1
    assert re.search(r"\x1b8toy: 0 of 3 jobs done in \d+ s\r\n$", text[text.index("\x1b[r") :])


def test_what_is_not_as_expected_inside_snakemake_ends_no_run(toy):
    text = snakemake(toy(workflow="object()"))
    assert "the progress of the run cannot be shown: AttributeError" in text and "3 of 3 steps (100%) done" in text
