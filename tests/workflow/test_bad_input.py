"""Errors in the user's input are reported in a few lines before anything starts."""

import re
import subprocess
from pathlib import Path

import pytest
from checkout import ROOT, Checkout, environment
from data_sets import overrides

pytestmark = pytest.mark.workflow


def refusal(checkout: Checkout, *words: str) -> str:
    """Return Snakemake's message when it refuses to start, without its greeting."""
    answer = checkout.snakemake("-n", "ablation", *words)
    assert answer.code == 1
    assert "Traceback" not in answer.text
    assert len(answer.text.splitlines()) <= 12, answer.text
    return answer.text


def test_misspelt_keys_are_named_with_file_line_and_nearest_key(fresh: Checkout) -> None:
    with fresh.appended("config/smoke.yaml", "\nencode:\n  bacth: 3\nreportt:\n  title: x\n"):
        text = refusal(fresh)
        line = (fresh.folder / "config/smoke.yaml").read_text().splitlines().index("  bacth: 3") + 1
    assert f"config/smoke.yaml:{line}: encode.bacth: unknown key; did you mean batch?" in text
    assert "reportt: unknown key; did you mean report?" in text


def test_number_read_as_text(fresh: Checkout) -> None:
    with fresh.edited("config/config.yaml", "outer_lr: 0.001", "outer_lr: 1e-3"):
        text = refusal(fresh)
    assert re.search(r"config/config\.yaml:\d+: fewshot\.outer_lr: YAML reads 1e-3 as text; write 0\.001", text)


@pytest.mark.parametrize(
    ("start", "sentence"),
    [
        ("none.pt", "train.start: no such file or folder: none.pt"),
        ("config", "train.start: config is not a file"),
        ("config/paper.yaml", "train.start: config/paper.yaml: the torch file cannot be read"),
        ("shipped", "fit the section model: model.growth is 8 in the checkpoint, not 4"),
        ("s3://bucket/x.pt", "train.start: s3://bucket/x.pt is in a storage: copy it to this machine"),
        ("results/smoke/own.pt", "train.start: results/smoke/own.pt belongs to these results, which it would replace"),
    ],
)
def test_weights_to_start_from_are_looked_for_first(fresh: Checkout, start: str, sentence: str) -> None:
    (fresh.folder / "results/smoke").mkdir(parents=True, exist_ok=True)
    (fresh.folder / "results/smoke/own.pt").touch()
    with fresh.edited("config/smoke.yaml", "  pairs: 64\n", f"  pairs: 64\n  start: {start}\n"):
        assert sentence in refusal(fresh)


def test_a_key_given_twice(fresh: Checkout) -> None:
    """Snakemake's and PyYAML's readers would silently keep the last value of a repeated key."""
    with fresh.appended("config/smoke.yaml", "\nname: again\n"):
        text = refusal(fresh)
    assert re.search(r"config/smoke\.yaml:\d+: name: .*line \d+", text)


def test_default_file_that_is_not_yaml(fresh: Checkout) -> None:
    with fresh.edited("config/config.yaml", "seeds: [0]", "seeds: [0"):
        text = refusal(fresh)
    assert re.search(r"config/config\.yaml:\d+: not YAML", text)


def test_data_set_that_is_not_there(fresh: Checkout) -> None:
    with fresh.appended("config/smoke.yaml", overrides(mpiigaze={"path": "/nowhere"})):
        assert "preprocess.datasets: path of mpiigaze: no such file or folder: /nowhere" in refusal(fresh)


def test_annotation_without_its_frames(fresh: Checkout, tmp_path: Path) -> None:
    """Rendered frames have the same names, so the mistake would go unnoticed."""
    (tmp_path / "real.h5").touch()
    with fresh.appended("config/smoke.yaml", overrides(mpiigaze={"supplementary": tmp_path / "real.h5"})):
        text = refusal(fresh)
    assert "preprocess.datasets[0].supplementary: annotates frames, but `path` contains none" in text


def test_a_list_of_splits_is_an_input_of_frames_too(fresh: Checkout, tmp_path: Path) -> None:
    """Regression: for a folder of frames, the list of splits was silently ignored."""
    with fresh.appended("config/smoke.yaml", overrides(gazecapture={"splits": tmp_path / "split.json"})):
        text = refusal(fresh)
        assert f"preprocess.datasets: splits of gazecapture: no such file or folder: {tmp_path / 'split.json'}" in text
        (tmp_path / "split.json").touch()
        blocks = fresh.dry_run("ablation").blocks("preprocess")
    assert [f"{tmp_path / 'split.json'}" in block for block in blocks if "/gazecapture" in block] == [True]
    assert [f"{tmp_path / 'split.json'}" in block for block in blocks if "/mpiifacegaze" in block] == [False]


def test_overrides_without_a_name_do_not_mix_with_the_defaults_results(fresh: Checkout) -> None:
    with fresh.edited("config/smoke.yaml", "name: smoke\n", ""):
        assert "config/smoke.yaml: needs a `name`" in refusal(fresh)


def test_values_on_the_command_line(fresh: Checkout) -> None:
    """Snakemake reads a number in a section as text, and the results would overwrite those of the config file."""
    text = refusal(fresh, "--config", "train={pairs: 4000}")
    assert "--config train=...: " in text
    assert "--configfile" in text


def test_rung_that_is_not_defined(fresh: Checkout) -> None:
    with fresh.edited("config/smoke.yaml", "ddp, recompute on", "ddp, turbo on"):
        assert "run.tiers: 'turbo' is not defined under tiers" in refusal(fresh)


def test_failing_stage_says_why_and_leaves_nothing_that_looks_finished(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "faze", "config/smoke.yaml")
    raw = tmp_path / "MPIIFaceGaze"
    raw.mkdir()
    with checkout.appended("config/smoke.yaml", overrides(mpiigaze={"path": raw})):
        answer = checkout.snakemake("--cores", "all", "results/smoke/data/mpiigaze.h5")
    assert answer.code == 1
    assert str(raw) in next(line for line in answer.text.splitlines() if line.startswith("faze preprocess"))
    assert "Traceback" not in answer.text
    assert not list((checkout.folder / "results/smoke/data").glob("*.h5"))


def rules() -> list[tuple[str, str]]:
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "workflow" / "rules").glob("*.smk"))]
    return re.findall(r"^ *rule ?(\w*):\n((?:(?:    .*)?\n)+)", "\n".join(texts), re.MULTILINE)


@pytest.mark.parametrize(("name", "body"), rules(), ids=[name or "configure" for name, _ in rules()])
def test_every_rule_has_log_benchmark_and_shell_only(name: str, body: str) -> None:
    words = set(re.findall(r"^ +(\w+):", body, re.MULTILINE))
    assert {"output", "log", "benchmark", "params", "shell"} <= words
    assert not {"run", "message"} & words
    unquoted = re.findall(r"{(?:input|output|log|params)[^:}]*}", body.partition("shell:")[2])
    assert not unquoted, f"{unquoted} lack :q"


@pytest.mark.parametrize("variable", ["MLFLOW_TRACKING_URI=mlruns", "TORCHINDUCTOR_MAX_AUTOTUNE=1"])
def test_inherited_variables_are_refused_before_the_first_job(fresh: Checkout, variable: str) -> None:
    """Regression: an old address of MLflow was refused by the last job, after hours."""
    inherited = environment() | dict([variable.split("=")])
    done = subprocess.run(fresh.command("-n"), cwd=fresh.folder, capture_output=True, text=True, env=inherited)
    text = done.stdout + done.stderr
    assert done.returncode == 1 and f"nothing was started: {variable}" in text and "Traceback" not in text
