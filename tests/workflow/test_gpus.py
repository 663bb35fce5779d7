"""`--resources gpu=N` assigns GPUs to jobs. The GPUs are fake; torch sees none and trains on the CPU."""

import re
from pathlib import Path

import pytest
import yaml
from checkout import ROOT, Checkout

pytestmark = pytest.mark.workflow

TIERS = {"baseline": {"parallel": "single"}, "replicas": {"parallel": "dp"}, "two": {"parallel": "ddp", "processes": 2}}
TIERS |= {"all": {"processes": 0}, "alone": {"parallel": "single", "recompute": True}, "cpu": {"device": "cpu"}}
SINGLE = ("baseline", "alone")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """Create a checkout with an ablation whose tiers use one GPU, two GPUs and all GPUs."""
    made = Checkout(tmp_path_factory.mktemp("gpus") / "faze", "config/gpus.yaml")
    smoke = yaml.safe_load((ROOT / "config/smoke.yaml").read_text(encoding="utf-8"))
    values = smoke | {"name": "gpus", "tiers": TIERS, "run": {"tiers": [*TIERS], "controls": []}}
    (made.folder / made.config).write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    return made


def trainings(text: str) -> dict[str, tuple[int, int]]:
    """Return the GPUs and cores of each tier's training run, from Snakemake's output."""
    told = {}
    for block in re.findall(r"^(?:local)?rule train:\n((?:    .*\n)+)", text, re.MULTILINE):
        threads, gpus = re.search(r"    threads: (\d+)", block), re.search(r"gpu=(\d+)", block)
        told[re.search(r"tier=(\w+)", block)[1]] = (int(gpus[1]), int(threads[1]) if threads else 1)
    return told


def test_a_training_asks_for_as_many_gpus_as_it_uses_and_their_share_of_the_cores(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    one, all_four = (1, 4), (4, 16)
    shared = trainings(checkout.dry_run("ablation", "--cores", "16", "--resources", "gpu=4").text)
    expected = {"baseline": one, "replicas": all_four, "two": (2, 8), "all": all_four, "alone": one, "cpu": (0, 16)}
    assert shared == expected
    assert {gpus for gpus, _ in trainings(checkout.dry_run("ablation", "--cores", "16").text).values()} == {0}


def test_trainings_of_one_gpu_run_side_by_side_each_on_its_own(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,8")
    runs = [f"results/gpus/{tier}/seed0/checkpoint.pt" for tier in SINGLE]
    answer = checkout.snakemake(*runs, "--cores", "2", "--resources", "gpu=2")
    assert answer.code == 0, answer.text[-4000:]
    assert set(trainings(re.split(r"Finished jobid: \d+ \(Rule: train\)", answer.text)[0])) == set(SINGLE)
    logs = [checkout.folder / Path(run).parent / "logs/train.log" for run in runs]
    assert sorted(re.search(r"^on GPU (\d)$", log.read_text(), re.MULTILINE)[1] for log in logs) == ["7", "8"]


def test_more_gpus_than_there_are_is_one_sentence(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    answer = checkout.snakemake("ablation", "--cores", "2", "--resources", "gpu=2")
    assert answer.code == 1 and "Traceback" not in answer.text
    assert "--resources gpu=2" in answer.text and "CUDA_VISIBLE_DEVICES=0" in answer.text
