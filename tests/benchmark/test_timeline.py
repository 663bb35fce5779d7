import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import timeline  # noqa: E402

LOG = """
[Mon Nov 23 00:59:50 2026]
localrule train:
    input: results/default/recompute/seed0/configs/train.yaml
    jobid: 25
    reason: Missing output files: results/default/recompute/seed0/checkpoint.pt
    wildcards: name=default, tier=recompute, seed=0
    threads: 2
Select jobs to execute...
[Mon Nov 23 01:00:05 2026]
Finished jobid: 25 (Rule: train)
44 of 149 steps (30%) done
[Mon Nov 23 01:00:05 2026]
localrule inspect:
    jobid: 7
    wildcards: name=default, dataset=mpiigaze

[Mon Nov 23 01:00:05 2026]
rule encode:
    jobid: 8
    wildcards: name=default, tier=recompute, seed=0, dataset=mpiigaze
[Mon Nov 23 01:00:09 2026]
Finished jobid: 8 (Rule: encode)
[Mon Nov 23 01:00:12 2026]
Finished jobid: 7 (Rule: inspect)
[Mon Nov 23 01:00:12 2026]
localrule configure_track:
    jobid: 3
[Mon Nov 23 01:00:12 2026]
Finished jobid: 3 (Rule: configure_track)
[Mon Nov 23 01:00:12 2026]
rule report:
    jobid: 4
"""


def test_a_log_tells_of_each_finished_job():
    assert timeline.read_log(LOG).to_dict("split")["data"] == [
        ["train", "recompute", 2, 0, 15],
        ["inspect", "", 1, 15, 22],
        ["encode", "recompute", 1, 15, 19],
    ]


def test_jobs_side_by_side_lie_in_lanes_of_their_own():
    times = [(0, 10, 2), (10, 20, 1), (10, 15, 1), (15, 18, 1), (20, 30, 2), (21, 22, 1)]
    table = pd.DataFrame(times, columns=["start_s", "end_s", "cores"])
    assert timeline.lanes(table) == [0, 0, 1, 1, 0, 2]


def test_the_picture_of_the_docs_can_be_drawn_again(tmp_path, monkeypatch):
    tables = sorted(map(str, (ROOT / "docs/timeline").glob("*.csv")))
    monkeypatch.setattr(sys, "argv", ["timeline.py", "--draw", *tables, "--svg", str(tmp_path / "timeline.svg")])
    timeline.main()
    assert (tmp_path / "timeline.svg").read_text().startswith("<?xml")


def test_a_log_without_jobs_is_refused_in_one_sentence(tmp_path, monkeypatch, capsys):
    log = tmp_path / "quiet.log"
    log.write_text("Building DAG of jobs...\n")
    monkeypatch.setattr(sys, "argv", ["timeline.py", "--log", str(log), "--out", str(tmp_path / "jobs.csv")])
    with pytest.raises(SystemExit):
        timeline.main()
    assert capsys.readouterr().err.endswith("tells of no finished job; a run with --quiet rules does not\n")


def test_every_stage_has_a_family():
    stages = {path.stem for path in (ROOT / "faze/stages").glob("*.py")} - {"__init__"}
    assert {rule for rules in timeline.FAMILIES.values() for rule in rules} == stages
