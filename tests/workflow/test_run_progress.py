"""The progress lines that a real Snakemake run prints."""

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from faze.base.progress import RunProgress, duration

ROOT = Path(__file__).resolve().parents[2]
TOY = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
import faze.base.progress

rule all:
    input: expand("results/toy/{{tier}}/checkpoint", tier=["amp", "recompute"])

rule train:
    output: "results/toy/{{tier}}/checkpoint"
    benchmark: "results/toy/{{tier}}/benchmarks/train.tsv"
    shell: "sleep 1.2; {then} touch {{output}}"

progress = faze.base.progress.RunProgress("toy", Path("results/toy"))
QUIET = bool({{"PROGRESS", "ALL"}} & {{part.name for part in workflow.output_settings.quiet or ()}})
if workflow.is_main_process and not QUIET:
    logger.addHandler(progress)

onstart:
    if not QUIET:
        progress.begin()
"""


def lines_of(folder, *arguments, then="", code=0):
    (folder / "Snakefile").write_text(TOY.format(root=str(ROOT), then=then))
    command = [sys.executable, "-m", "snakemake", "--cores", "1", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return re.findall(r"^toy: (.*)$", done.stderr, re.MULTILINE)


@pytest.mark.workflow
def test_a_run_reports_each_job_and_its_end(tmp_path):
    lines = lines_of(tmp_path)
    assert re.fullmatch(r"1 of 3 jobs, at least \d+ s left", lines[0])  # `all` has no time of its own
    assert re.fullmatch(r"3 of 3 jobs done in \d+ s", lines[-1]) and len(lines) == 3
    (tmp_path / "results/toy/amp/checkpoint").unlink()
    assert len(lines_of(tmp_path)) == 2


@pytest.mark.workflow
@pytest.mark.parametrize("arguments", [("--dry-run",), ("--quiet",), ("--quiet", "progress")])
def test_dry_and_quiet_runs_report_nothing(tmp_path, arguments):
    assert lines_of(tmp_path, *arguments) == []


@pytest.mark.workflow
def test_a_failed_run_reports_how_far_it_came(tmp_path):
    assert re.fullmatch(r"0 of 3 jobs done in \d+ s", lines_of(tmp_path, then="false;", code=1)[-1])


def test_a_stream_that_is_gone_ends_the_lines_and_not_the_run(tmp_path):
    stream = io.StringIO()
    progress = RunProgress("toy", tmp_path, stream)
    progress.begin()
    stream.close()
    progress.close()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min"), (150.1, "3 min"), (3599, "1 h 00 min"), (7500, "2 h 05 min")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text
