"""The published weights and their model card.

Checked by breaking the code: another tier copied, people counted as one split, rendered people called real.
"""

import itertools
import json
import shutil

import pandas as pd
import pytest
import torch
from fabricated import KEPT, Fabricated
from small_model import MODEL, random_people
from stage_runs import call_faze
from stores import write_strips

from faze.base.result_paths import ResultPaths
from faze.data.strips import RENDERED
from faze.model.dted import DTED
from faze.model.weights import load_model, save_weights


@pytest.fixture(scope="module")
def fabricated(tmp_path_factory):
    """Fabricate an ablation with files to copy."""
    folder = tmp_path_factory.mktemp("ablation")
    case = Fabricated(tiers=("baseline", "amp"), seeds=(0, 1), people=(3, 2), entries=40, query=20)
    paths = case.write(folder)
    for tier, seed in itertools.product(case.tiers, case.seeds):
        torch.manual_seed(network_seed(tier, seed))
        save_weights(paths.checkpoint(tier, seed), DTED(MODEL))
        state = torch.load(paths.checkpoint(tier, seed), weights_only=True)
        torch.save(state | {"optimizers": torch.zeros(100_000)}, paths.checkpoint(tier, seed))
        for learner in KEPT:
            (paths.run(tier, seed) / "fewshot" / f"{learner}.pt").write_bytes(f"{learner} of {tier} {seed}".encode())
    (folder / "data").mkdir(exist_ok=True)
    write_stores(paths, "MPIIFaceGaze", "GazeCapture")
    return folder


@pytest.fixture
def stage(fabricated, tmp_path):
    """Return a function that runs the stage on a copy of the ablation."""
    shutil.copytree(fabricated, tmp_path, dirs_exist_ok=True)

    def run(*words: str) -> int:
        common = ["--results", tmp_path, "--learners", *KEPT, "--out", tmp_path / "weights"]
        return call_faze("weights", *common, *words)

    run.paths, run.out = ResultPaths(tmp_path), tmp_path / "weights"
    return run


def network_seed(tier: str, seed: int) -> int:
    return 10 * ["baseline", "amp"].index(tier) + seed


def write_stores(paths: ResultPaths, mpiigaze: str, gazecapture: str) -> None:
    splits = {"mpiigaze": ["test"], "gazecapture": ["train", "train", "val", "test"]}
    for dataset, source in (("mpiigaze", mpiigaze), ("gazecapture", gazecapture)):
        people = random_people(*((f"{n:05}", split, 3) for n, split in enumerate(splits[dataset])))
        write_strips(paths.store(dataset), dataset, people, pixel_source=source)


def test_files_are_copied_and_the_card_says_what_they_are(stage):
    assert stage("--tier", "amp", "--seed", "1") == 0
    torch.manual_seed(network_seed("amp", 1))
    expected, found = DTED(MODEL).state_dict(), load_model(stage.out / "dted.pt").state_dict()
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    assert (stage.out / "dted.pt").stat().st_size < stage.paths.checkpoint("amp", 1).stat().st_size - 300_000
    for learner in KEPT:
        assert (stage.out / f"{learner}.pt").read_bytes() == f"{learner} of amp 1".encode()
    card = (stage.out / "model_card.md").read_text()
    assert "tier `amp`, seed 1" in card
    assert "| MPIIGaze | test | 1 | 3 |\n| GazeCapture | train | 2 | 6 |\n| GazeCapture | val | 1 | 3 |" in card
    assert "    augment.flip: false\n" in card


def test_the_card_of_given_weights_does_not_say_that_faze_trained_them(stage):
    write_stores(stage.paths, RENDERED, RENDERED)
    path = stage.paths.run_log("amp", 0)
    first, rest = path.read_text().split("\n", 1)
    start = json.loads(first)
    start["pixel_source"] = RENDERED
    start["config"] |= {"train.start": "published.pt", "train.pairs": 0}
    path.write_text(json.dumps(start) + "\n" + rest)
    assert stage("--tier", "amp") == 0
    card = (stage.out / "model_card.md").read_text()
    assert "Its weights are those of `published.pt`; it was only evaluated with faze" in card
    assert "trained with faze" not in card
    assert "Licence: unknown" in card


def test_errors_are_means_over_people(stage):
    assert stage() == 0
    rows = [pd.read_parquet(stage.paths.errors("baseline", 0, learner)) for learner in KEPT]
    expected = []
    for learner, of_learner in zip(KEPT, rows, strict=True):
        means = of_learner[of_learner["k"] == 9].groupby(["dataset", "person"])["error_deg"].mean()
        cells = " | ".join(f"{means[dataset].mean():.2f}" for dataset in ("mpiigaze", "gazecapture"))
        expected.append(f"| {learner} | 9 | {cells} |")
    card = (stage.out / "model_card.md").read_text()
    for line in expected:
        assert line in card
    assert card.count("| unadapted | 0 |") == 1
    errors = pd.read_csv(stage.out / "errors.csv", dtype={"person": str})
    means = errors.groupby(["learner", "k", "dataset"])["error_deg"].mean()
    assert all(f"{mean:.2f}" in card for mean in means) and len(errors) == 5 * (1 + 4 * len(KEPT))


@pytest.mark.parametrize(
    ("mpiigaze", "gazecapture", "trained_on", "licence"),
    [
        (RENDERED, RENDERED, RENDERED, "Apache-2.0"),
        ("MPIIFaceGaze", RENDERED, RENDERED, "Apache-2.0"),
        (RENDERED, "GazeCapture", "GazeCapture", "GazeCapture is for research only"),
        (RENDERED, RENDERED, "GazeCapture", "GazeCapture is for research only"),
    ],
)
def test_licence_follows_the_pictures_of_training(stage, mpiigaze, gazecapture, trained_on, licence):
    """Regression: if MPIIGaze was rendered, a network trained on GazeCapture was called Apache-2.0."""
    write_stores(stage.paths, mpiigaze, gazecapture)
    log = stage.paths.run_log("baseline", 0)
    first, rest = log.read_text().split("\n", 1)
    log.write_text(json.dumps(json.loads(first) | ({"pixel_source": trained_on} if trained_on else {})) + "\n" + rest)
    assert stage() == 0
    card = (stage.out / "model_card.md").read_text()
    assert licence in card and ("Apache-2.0" in card) == (licence == "Apache-2.0")
    data = card.split("## Data")[1]
    assert ("- MPIIGaze: rendered" in data) == (mpiigaze == RENDERED)
    assert ("- GazeCapture: rendered" in data) == (gazecapture == RENDERED)
    assert "far larger" in card


def test_what_is_missing_is_named_and_nothing_is_written(stage, capfd):
    (stage.paths.run("amp", 0) / "checkpoint.pt").unlink()
    assert stage("--tier", "amp") == 1
    assert "amp/seed0/checkpoint.pt: " in capfd.readouterr().err
    assert not stage.out.exists()
