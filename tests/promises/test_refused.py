"""Promises 3 and 4: all that is wrong or missing is refused at once, by file, line and key, before anything starts."""

import pytest
from checkout import Checkout

pytestmark = pytest.mark.workflow

VALUES = """
train:
  base_rl: 0.001
  pairs: many
  momentum: 1.5
  frozen: [encodr]
fewshot: {learners: [maml, offse], shots: [1, 0]}
trainn: {pairs: 8}
tiers:
  baseline: {precision: fp17}
  amp: {precisio: fp16}
"""
TIERS = """
run: {tiers: [baseline, amq, mine]}
tiers:
  mine: {on: ddp}
"""
FILES = """
train: {start: nowhere.pt, global_batch: 12}
landmarks:
  model: nowhere.task
preprocess:
  datasets:
    - {name: face, layout: mpiifacegaze, path: nowhere/face, splits: test}
    - {name: own, layout: manifest, path: nowhere.csv, splits: test}
    - {name: capture, layout: gazecapture, path: nowhere/capture, supplementary: nowhere.h5, splits: nowhere.json}
    - {name: phones, layout: gazecapture, path: ., splits: test}
"""
FAULTS = {  # line, key and a word of the reason or of the suggestion
    VALUES: [
        (4, "train.base_rl", "did you mean base_lr?"),
        (5, "train.pairs", "integer, not 'many'"),
        (6, "train.momentum", "less than or equal to 1, not 1.5"),
        (7, "train.frozen.0", "did you mean encoder?"),
        (8, "fewshot.learners.1", "did you mean offset?"),
        (8, "fewshot.shots.1", "greater than or equal to 1, not 0"),
        (9, "trainn", "did you mean train?"),
        (11, "tiers.baseline.precision", "did you mean fp16?"),
        (12, "tiers.amp.precisio", "did you mean precision?"),
    ],
    TIERS: [(3, "run.tiers", "amq is not defined under tiers; did you mean amp?"), (5, "tiers.mine.on", "ddp")],
    FILES: [
        (3, "train.start", "nowhere.pt"),
        (3, "train.global_batch", "loss.chunk_pairs 8"),
        (5, "landmarks.model", "nowhere.task"),
        (8, "preprocess.datasets.0.path", "nowhere/face"),
        (9, "preprocess.datasets.1.path", "nowhere.csv"),
        (10, "preprocess.datasets.2.path", "nowhere/capture"),
        (10, "preprocess.datasets.2.supplementary", "nowhere.h5"),
        (10, "preprocess.datasets.2.splits", "nowhere.json"),
    ],
}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    return Checkout(tmp_path_factory.mktemp("refused") / "faze", "mine.yaml")


def refusal(checkout: Checkout, config: str, *words: str) -> list[str]:
    """Return the lines of Snakemake's refusal."""
    (checkout.folder / checkout.config).write_text(f"name: mine\n{config}", encoding="utf-8")
    answer = checkout.snakemake(*words)
    assert answer.code == 1 and "nothing was started" in answer.text and "Traceback" not in answer.text, answer.text
    return answer.text.splitlines()


@pytest.mark.parametrize(("config", "faults"), FAULTS.items(), ids=["values", "tiers", "files"])
def test_all_faults_are_reported_before_anything_starts(checkout: Checkout, config: str, faults: list) -> None:
    lines = sorted(line for line in refusal(checkout, config, "-n") if line.startswith("mine.yaml:"))
    assert len(lines) == len(faults), lines
    for line, key, words in faults:
        assert [one for one in lines if one.startswith(f"mine.yaml:{line}: {key}: ") and words in one], lines
    assert not (checkout.folder / "results").exists()
