"""Seen red by breaking the code: train people judged, all strips taken, a person of one strip kept, NaN let through."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from small_model import MODEL

from faze.base.geometry import rotation_from_pitchyaw
from faze.config.stage_config import resolve, to_lines
from faze.config.yaml_files import merge, read_yaml
from faze.data.network_input import to_network
from faze.data.store.strips import PersonStrips, write_strips
from faze.model.dted import DTED
from faze.model.weights import save_weights
from faze.stages import redirect

ROOT = Path(__file__).resolve().parents[2]
PEOPLE = (("00002", "train", 5), ("00005", "test", 1), ("00007", "test", 6), ("00011", "test", 3))


def people(which=PEOPLE) -> list[PersonStrips]:
    rng = np.random.default_rng(0)
    return [
        PersonStrips(
            name,
            split,
            [f"{i}.jpg" for i in range(count)],
            rng.integers(0, 256, (count, 64, 256, 3), dtype=np.uint8),
            rng.normal(0, 0.2, (count, 4)).astype(np.float32),
        )
        for name, split, count in which
    ]


@pytest.fixture
def stage(tmp_path, monkeypatch):
    torch.manual_seed(0)
    dted = DTED(MODEL)
    config = merge(read_yaml(ROOT / "config" / "config.yaml"), {"redirect": {"strips": 4}})
    (tmp_path / "redirect.yaml").write_text("\n".join(to_lines(resolve(config, "redirect", "baseline", 0))))

    def run(which=PEOPLE) -> int:
        save_weights(tmp_path / "checkpoint.pt", dted)
        write_strips(tmp_path / "gazecapture.h5", "gazecapture", people(which))
        write_strips(tmp_path / "mpiigaze.h5", "mpiigaze", people([("p00", "test", 2)]))
        words = ["--config", "redirect.yaml", "--checkpoint", "checkpoint.pt", "--out", "redirection.parquet"]
        words = [str(tmp_path / word) if "." in word else word for word in words]
        stores = ["--data", str(tmp_path / "mpiigaze.h5"), str(tmp_path / "gazecapture.h5")]
        monkeypatch.setattr(sys, "argv", ["redirect", *words, *stores, "--threads", "1"])
        return redirect.main()

    run.dted, run.folder = dted, tmp_path
    return run


def test_test_people_are_judged_by_their_first_strips(stage):
    assert stage() == 0
    rows = pd.read_parquet(stage.folder / "redirection.parquet")
    assert rows["dataset"].tolist() == ["mpiigaze", "gazecapture", "gazecapture"]
    assert rows["person"].tolist() == ["p00", "00007", "00011"]
    assert rows["strips"].tolist() == [2, 4, 3]
    person = people()[2]
    image = to_network(torch.from_numpy(person.pixels[:4]), 32, 128)
    labels = torch.from_numpy(person.labels[:4])
    has = [rotation_from_pitchyaw(labels[:, first : first + 2], torch) for first in (0, 2)]
    with torch.no_grad():
        redirected = stage.dted(image, tuple(has), tuple(r.roll(-1, 0) for r in has))
    assert rows["l1"][1] == pytest.approx(float((redirected - image.roll(-1, 0)).abs().mean()), rel=1e-4)
    real = rows[rows["dataset"] == "gazecapture"]
    assert real["real_deviation"].iloc[0] == pytest.approx(real["real_deviation"].iloc[1])  # of two people


def test_nobody_with_two_strips_is_said(stage, capfd):
    assert stage([("00005", "test", 1)]) == 1
    assert "nobody has 2 strips" in capfd.readouterr().err
    assert not (stage.folder / "redirection.parquet").exists()


def test_a_network_that_diverged_is_said(stage, capfd):
    with torch.no_grad():
        stage.dted.fc_dec.weight.fill_(3e38)
    assert stage() == 1
    assert "not numbers: its training diverged" in capfd.readouterr().err
