"""The smoke ablation, end to end, and the jobs that a change re-runs afterwards."""

import contextlib
import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import NOTHING, Answer, Checkout, environment
from data_sets import entries, overrides

pytestmark = pytest.mark.workflow

TIERS = ["baseline", "amp", "ddp", "recompute"]
CONTROLS = 1  # noise control, of the baseline; nobody walks through it
NOT_WALK = ("train", "encode", "meta_train", "adapt", "redirect")
EVALUATORS = {"estimator": 1, "oracle": 2}
AFTER_TRAINING = {"evaluate": 1, "report": 1, "track": 1}


def of_runs(runs: int) -> dict[str, int]:
    """Return how many jobs each rule has in this many training runs and everything after them."""
    per_run = dict.fromkeys((*NOT_WALK, "walk"), 1)
    return {rule: runs * count for rule, count in per_run.items()} | AFTER_TRAINING


def everything() -> dict[str, int]:
    """Return how many jobs each rule has in all training runs and noise controls."""
    jobs, controls = of_runs(len(TIERS)), of_runs(CONTROLS)
    return {rule: jobs[rule] + (controls[rule] if rule in NOT_WALK else 0) for rule in jobs}


def test_fresh_checkout_makes_everything_once(fresh: Checkout) -> None:
    data = {"synthesise": 1, "preprocess": 2, "inspect": 2, "benchmark": 1} | EVALUATORS
    assert fresh.dry_run("ablation").jobs == data | everything()
    assert fresh.dry_run().jobs == fresh.dry_run("ablation").jobs


def test_tier_target_makes_one_rung(fresh: Checkout) -> None:
    """Regression: a tier's target included its walk and so trained the baseline, which selects the people of walks."""
    data = {"synthesise": 1, "preprocess": 2} | EVALUATORS
    assert fresh.dry_run("tier_amp").jobs == data | dict.fromkeys(NOT_WALK, 1) | {"tier_amp": 1}
    assert fresh.dry_run("tier_baseline").jobs == data | dict.fromkeys((*NOT_WALK, "walk", "tier_baseline"), 1)


def test_ablation_leaves_report_table_walks_and_tracking(finished: tuple[Checkout, Answer]) -> None:
    checkout, answer = finished
    results = checkout.folder / "results" / "smoke"
    assert "<html" in (results / "report" / "index.html").read_text(encoding="utf-8").lower()
    with (results / "report" / "table.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert all(any(tier in row for row in rows) for tier in TIERS)
    assert json.loads((results / "tracking" / "tracked.json").read_text())
    for tier in TIERS:
        assert list((results / tier / "seed0" / "walks").glob("*.mp4"))
    assert "report: results/smoke/report/index.html" in answer.text


def test_no_stage_leaves_temporary_files(done: Checkout) -> None:
    expected = (".lock", ".inputs", "timestamp")
    left = [path for path in (done.folder / "results").rglob(".*") if not path.name.endswith(expected)]
    assert [path for path in left if "mlflow" not in str(path)] == []


def test_every_job_has_its_log_and_its_time(done: Checkout) -> None:
    results = done.folder / "results" / "smoke"
    configured = list(results.rglob("configs/*.yaml"))
    # Six stages per run, of a control five; eight per ablation, two of them per data set.
    assert len(configured) == 6 * len(TIERS) + 5 * CONTROLS + 10
    tables = list(results.rglob("benchmarks/*.tsv"))
    assert len(tables) == sum(everything().values()) + 9
    for table in tables:
        assert (table.parents[1] / "logs" / f"{table.stem}.log").exists()


def test_the_benchmark_takes_every_core_and_a_training_those_of_its_threads(fresh: Checkout) -> None:
    of_four = "tiers: {ddp: {processes: 4}}\n\ntrain:\n  threads: 2\n"
    with (
        fresh.edited("config/smoke.yaml", "train:\n", of_four),
        fresh.edited("config/smoke.yaml", "global_batch: 8", "global_batch: 16"),
    ):
        answer = fresh.dry_run("ablation", "--cores", "4")
    [block] = answer.blocks("benchmark")
    assert "threads: 4\n" in block
    cores = {}
    for block in answer.blocks("train"):
        told = re.search(r"    threads: (\d+)\n", block)  # one is not told
        cores[re.search(r"tier=(\w+)", block)[1]] = int(told[1]) if told else 1
    assert cores == {"baseline": 2, "amp": 2, "rounding": 2, "ddp": 4, "recompute": 2}  # two processes of ddp as one


def test_the_benchmark_had_the_machine_to_itself_and_the_baseline_was_trained_first(
    finished: tuple[Checkout, Answer],
) -> None:
    """Read from Snakemake's output which jobs started, with which wildcards, and which ended."""
    running: set[str] = set()
    measured, trained = "", []
    for rule, jobid, wildcards, ended in re.findall(
        r"^(?:local)?rule (\w+):\n(?:    .*\n)*?    jobid: (\d+)$(?:\n    (?!wildcards).*)*(?:\n    wildcards: (.*)$)?"
        r"|^Finished jobid: (\d+)",
        finished[1].text,
        re.MULTILINE,
    ):
        if ended:
            running.discard(ended)
            measured = "" if ended == measured else measured
            continue
        assert not measured, f"{rule} starts beside the benchmark"
        assert rule != "benchmark" or not running, "the benchmark starts beside other jobs"
        running.add(jobid)
        if rule == "benchmark":
            measured = jobid
        if rule == "train":
            trained.append(re.search(r"tier=(\w+)", wildcards)[1])
    assert not running
    assert set(trained[:2]) == {"baseline", "rounding"}, "on two cores they start at once, in any order"


def test_nothing_to_do_afterwards(done: Checkout) -> None:
    assert NOTHING in done.dry_run("ablation").text


def test_comment_in_the_engine_changes_nothing(done: Checkout) -> None:
    with contextlib.ExitStack() as thoughts:
        for path in (done.folder / "faze" / "engine").glob("*.py"):
            thoughts.enter_context(done.appended(str(path.relative_to(done.folder)), "# a thought\n"))
        assert NOTHING in done.dry_run("ablation").text


def test_code_of_the_walk_re_renders_walks_and_trains_nothing(done: Checkout) -> None:
    with done.appended("faze/redirection/walk.py", "\nANOTHER = 1\n"):
        answer = done.dry_run("ablation")
    assert answer.jobs == {"walk": len(TIERS), "report": 1, "track": 1}
    for block in answer.blocks("walk"):
        assert re.search(
            r"before: 'faze/redirection/walk\.py@[0-9a-f]{8}' now: 'faze/redirection/walk\.py@[0-9a-f]{8}'", block
        )


def test_code_of_the_engine_retrains(done: Checkout) -> None:
    with done.appended("faze/engine/step.py", "\nANOTHER = 1\n"):
        answer = done.dry_run("ablation")
    assert answer.jobs == everything() | {"benchmark": 1}
    assert all("faze/engine/step.py@" in block for block in answer.blocks("train"))


def test_value_of_evaluate_re_evaluates_only(done: Checkout) -> None:
    with done.edited("config/smoke.yaml", "resamples: 100", "resamples: 101"):
        answer = done.dry_run("ablation")
    assert answer.jobs == AFTER_TRAINING
    assert "before: 'evaluate.resamples: 100' now: 'evaluate.resamples: 101'" in answer.blocks("evaluate")[0]


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("config/config.yaml", "    precision: fp16\n", "    precision: fp16\n    tf32: true\n"),
        ("config/smoke.yaml", "name: smoke\n", "name: smoke\n\ntiers:\n  amp:\n    tf32: true\n"),
    ],
    ids=["defaults", "overrides"],
)
def test_change_of_a_tier_re_runs_it_and_those_that_build_on_it(done: Checkout, path: str, old: str, new: str) -> None:
    with done.edited(path, old, new):
        answer = done.dry_run("ablation")
    assert answer.jobs == of_runs(2) | {"benchmark": 1}  # amp, and ddp on amp
    assert not any(re.search("tier=(baseline|recompute)", block) for block in answer.blocks("train"))
    for block in answer.blocks("train"):
        assert "before: 'engine.tf32: false' now: 'engine.tf32: true'" in block


def test_another_seed_trains_that_seed_only(done: Checkout) -> None:
    with done.edited("config/config.yaml", "seeds: [0]", "seeds: [0, 1]"):
        answer = done.dry_run("ablation")
    assert answer.jobs == of_runs(len(TIERS))
    assert all("seed=1" in block for block in answer.blocks("train"))


def test_override_that_repeats_a_default_changes_nothing(done: Checkout) -> None:
    with done.appended("config/smoke.yaml", "\nencode:\n  batch: 64\n"):
        assert NOTHING in done.dry_run("ablation").text


def test_one_learner_more_leaves_the_others_as_they_are(done: Checkout, tmp_path: Path) -> None:
    """Fails without `update`, since Snakemake then removes all outputs of a job before it starts."""
    more = Checkout(tmp_path / "faze", done.config, of=done.folder)
    run = Path("results/smoke/baseline/seed0")
    of_maml = [more.folder / run / f"fewshot/maml{part}" for part in (".pt", "_errors.parquet", "_trace.parquet")]
    before = [path.read_bytes() for path in of_maml]
    with more.edited("config/smoke.yaml", "[maml, offset, bayes]", "[maml, fomaml, offset, bayes]"):
        answer = more.snakemake("--cores", "all", f"{run}/fewshot/fomaml_errors.parquet")
        assert answer.code == 0, answer.text[-4000:]
        assert answer.jobs == {"meta_train": 1, "adapt": 1}
        again = more.dry_run(f"{run}/fewshot/maml_errors.parquet")
    assert NOTHING in again.text
    assert [path.read_bytes() for path in of_maml] == before
    assert answer.text.count("reusing existing output") == 2 * len(("maml", "offset", "bayes"))


def test_real_mpiigaze_leaves_training_alone(done: Checkout, tmp_path: Path) -> None:
    with done.appended("config/smoke.yaml", overrides(mpiigaze={"path": tmp_path})):
        answer = done.dry_run("ablation")
    runs = len(TIERS) + CONTROLS
    after = dict.fromkeys(("encode", "meta_train", "adapt", "redirect"), runs) | {"walk": len(TIERS)} | AFTER_TRAINING
    assert answer.jobs == {"preprocess": 1, "inspect": 1, "estimator": 1} | after
    assert f"input: {tmp_path}\n" in answer.blocks("preprocess")[0]


def test_predictions_train_no_learner(done: Checkout) -> None:
    with done.edited("config/config.yaml", "predictions: false", "predictions: true"):
        answer = done.dry_run("ablation", "--printshellcmds")
    assert answer.jobs == {"adapt": len(TIERS) + CONTROLS} | AFTER_TRAINING
    folder = "results/smoke/baseline/seed0/fewshot"
    tables = " ".join(f"{folder}/{learner}_predictions.parquet" for learner in ("maml", "offset", "bayes"))
    assert f"--predictions {tables} " in answer.text


def test_with_both_data_sets_nothing_synthetic_runs(fresh: Checkout, tmp_path: Path) -> None:
    supplementary = tmp_path / "supplementary.h5"
    supplementary.touch()
    gazecapture = {"path": tmp_path, "supplementary": supplementary}
    with fresh.appended("config/smoke.yaml", overrides(mpiigaze={"path": tmp_path}, gazecapture=gazecapture)):
        answer = fresh.dry_run("ablation")
    assert answer.jobs == everything() | {"preprocess": 2, "inspect": 2, "benchmark": 1, "estimator": 1}


def test_a_list_of_three_data_sets_goes_through_all_rules_in_its_order(fresh: Checkout, tmp_path: Path) -> None:
    strips = {"name": "webcam", "layout": "strips", "path": str(tmp_path / "strips.h5"), "splits": "test"}
    (tmp_path / "strips.h5").touch()
    listed = json.dumps({"datasets": [strips, *entries()]})
    with fresh.appended("config/smoke.yaml", f"\npreprocess: {listed}\n"):
        answer = fresh.dry_run("ablation", "--printshellcmds")
    assert (answer.jobs["preprocess"], answer.jobs["inspect"], answer.jobs["oracle"]) == (3, 3, 2)
    stores = " ".join(f"results/smoke/data/{name}.h5" for name in ("webcam", "mpiigaze", "gazecapture"))
    assert f"--data {stores} " in answer.text
    evaluated = "results/smoke/data/webcam.h5 results/smoke/data/mpiigaze.h5"
    assert re.search(rf"--data results/smoke/data/gazecapture.h5 \\\n +--evaluated {evaluated} ", answer.text)
    codes = " ".join(f"results/smoke/baseline/seed0/codes/{name}.h5" for name in ("webcam", "mpiigaze", "gazecapture"))
    assert f"--codes {codes} " in answer.text
    (train,) = {line for block in answer.blocks("train") for line in block.splitlines() if "input: " in line}
    assert "data/gazecapture.h5" in train and "webcam" not in train


def test_one_data_set_is_enough(fresh: Checkout) -> None:
    listed = json.dumps({"datasets": [{"name": "phones", "layout": "gazecapture"}]})
    with fresh.appended("config/smoke.yaml", f"\npreprocess: {listed}\n"):
        answer = fresh.dry_run("ablation", "--printshellcmds")
    assert answer.jobs["preprocess"] == answer.jobs["inspect"] == answer.jobs["oracle"] == 1
    assert "--mpiifacegaze" not in answer.text and "mpiigaze.h5" not in answer.text


def test_raw_gazecapture_without_annotation_gets_landmarks_by_the_python_that_is_named(
    fresh: Checkout, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.touch()
    model = tmp_path / "face.task"
    model.touch()
    keys = f"landmarks:\n  python: {python}\n  model: {model}\n"
    with fresh.appended("config/smoke.yaml", overrides(gazecapture={"path": tmp_path}) + keys):
        answer = fresh.dry_run("ablation", "--printshellcmds")
    assert answer.jobs["landmarks"] == 1 and answer.jobs["preprocess"] == 2
    assert f"{python} -m faze landmarks" in answer.text and f"--model={model}" in answer.text
    assert re.search(rf"input: .*{model}", answer.text), "another model of this name makes other landmarks"
    assert "--supplementary=results/smoke/raw/gazecapture_landmarks.h5" in answer.text
    python.unlink()
    with fresh.appended("config/smoke.yaml", f"\n{keys}"):
        answer = fresh.snakemake("ablation", "-n")
    assert answer.code == 1 and "landmarks.python: no such file" in answer.text


def test_snakemakes_own_report(done: Checkout) -> None:
    answer = done.snakemake("--report", "report.html")
    assert answer.code == 0, answer.text
    page = (done.folder / "report.html").read_text(encoding="utf-8")
    assert "Latent walks" in page
    assert "Ablation" in page
    assert "labels of the data set" in page  # the caption in data.rst


def test_damage_of_every_kind_of_file_is_noticed(done: Checkout) -> None:
    """Regression: tests/chaos/bits.py called a function that had been removed."""
    command = [sys.executable, done.folder / "tests/chaos/bits.py", done.folder / "results/smoke", "--flips", "2"]
    found = subprocess.run(command, cwd=done.folder, capture_output=True, text=True, env=environment())
    assert found.returncode == 0, found.stderr
    rows = [line.strip("| ").split(" | ") for line in found.stdout.splitlines()[2:]]
    assert len(rows) == 26 and all(row[-3:] == ["0", "0", "0"] for row in rows), found.stdout
