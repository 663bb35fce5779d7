"""The rule `redirect`.

Fails with train people, all strips, a person with one strip, NaN, the real strips of a instead of b, the rows of the
oracle without their pairs, an estimator of another size.
"""

import dataclasses
import re
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
from faze.data.store.strips import PersonStrips, StripStore, write_strips
from faze.evaluation.redirected_angles import by_variant
from faze.model.dted import DTED
from faze.model.weights import save_weights
from faze.redirection.estimator import GazeHeadEstimator, TrainedEstimator, estimate, save_estimator
from faze.redirection.pairs import VARIANTS, chosen, draw_targets
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
    config = merge(read_yaml(ROOT / "config" / "config.yaml"), {"redirect": {"strips": 4, "seed": 12}})
    (tmp_path / "redirect.yaml").write_text("\n".join(to_lines(resolve(config, "redirect", "baseline", 0))))

    estimator = GazeHeadEstimator(4, (32, 128)).eval()

    def run(which=PEOPLE, oracle=(), trained_on=(), size=(32, 128)) -> int:
        save_weights(tmp_path / "checkpoint.pt", dted)
        write_strips(tmp_path / "gazecapture.h5", "gazecapture", people(which))
        write_strips(tmp_path / "mpiigaze.h5", "mpiigaze", people([("p00", "test", 2)]))
        network = estimator if size == estimator.size else GazeHeadEstimator(4, size)
        save_estimator(tmp_path / "estimator.pt", TrainedEstimator(network, trained_on))
        if oracle:
            write_strips(tmp_path / "oracle.h5", "gazecapture", oracle)
        words = ["--config", "redirect.yaml", "--checkpoint", "checkpoint.pt", "--estimator", "estimator.pt"]
        words += ["--out", "redirection.parquet", "--pairs", "redirected_pairs.parquet"]
        words = [str(tmp_path / word) if "." in word else word for word in words]
        stores = ["--data", str(tmp_path / "mpiigaze.h5"), str(tmp_path / "gazecapture.h5")]
        stores += ["--oracle", str(tmp_path / "oracle.h5")] if oracle else []
        monkeypatch.setattr(sys, "argv", ["redirect", *words, *stores, "--threads", "1"])
        return redirect.main()

    run.dted, run.estimator, run.folder = dted, estimator, tmp_path
    return run


def inputs(person: PersonStrips, most: int):
    rows = chosen(len(person.labels), most)
    image, labels = to_network(torch.from_numpy(person.pixels[rows]), 32, 128), torch.from_numpy(person.labels[rows])
    return image, labels, draw_targets(12, len(rows))


def test_strips_of_test_people_are_redirected(stage):
    assert stage() == 0
    rows = pd.read_parquet(stage.folder / "redirection.parquet")
    assert rows["dataset"].tolist() == ["mpiigaze", "gazecapture", "gazecapture"]
    assert rows["person"].tolist() == ["p00", "00007", "00011"]
    assert rows["strips"].tolist() == [2, 4, 3]
    image, labels, targets = inputs(people()[2], 4)
    has = [rotation_from_pitchyaw(labels[:, first : first + 2], torch) for first in (0, 2)]
    with torch.no_grad():
        redirected = stage.dted(image, tuple(has), tuple(r[targets] for r in has))
    assert rows["l1"][1] == pytest.approx(float((redirected - image[targets]).abs().mean()), rel=1e-4)
    real = rows[rows["dataset"] == "gazecapture"]
    means = np.stack([inputs(person, 4)[0].mean(0).numpy() for person in people()[2:]])
    of_two = [float(np.square(mean - means.mean(0)).mean()) for mean in means]
    assert real["real_deviation"].tolist() == pytest.approx(of_two, rel=1e-4)
    assert (real["deviation"] != real["real_deviation"]).all()


def test_errors_are_printed_with_those_of_the_controls(stage, capsys):
    assert stage() == 0
    rows = by_variant(pd.read_parquet(stage.folder / "redirected_pairs.parquet"))
    means = rows[rows["dataset"] == "gazecapture"].groupby("variant")[["gaze_error_deg", "head_error_deg"]].mean()
    out = capsys.readouterr().out.split("gazecapture: ")[1]
    variants = ("redirected", "not_turned", "real")
    assert re.findall(r"[0-9.]+(?=°)", out) == [f"{means[error][v]:.1f}" for error in means for v in variants]


def test_every_variant_of_every_pair_is_a_row_with_what_the_estimator_sees(stage):
    assert stage() == 0
    rows = pd.read_parquet(stage.folder / "redirected_pairs.parquet")
    assert set(rows["variant"]) == set(VARIANTS) - {"rendered"}
    counts = rows.groupby(["person", "variant"]).size().unstack()
    assert (counts.T == {"00007": 4, "00011": 3, "p00": 2}).all(axis=None)
    image, labels, targets = inputs(people()[2], 4)
    of_person = rows[rows["person"] == "00007"]
    seen = [c for c in rows if c.startswith("seen_")]
    for variant, strips in (("real", image[targets]), ("not_turned", None)):
        if strips is None:
            with torch.no_grad():
                strips = stage.dted.decode(stage.dted.encode(image))
        found = of_person[of_person["variant"] == variant]
        np.testing.assert_allclose(found[seen].to_numpy(), estimate(stage.estimator, strips), atol=1e-4)
        assert (found[[c for c in rows if c.startswith("wanted_")]].to_numpy() == labels.numpy()[targets]).all()
        assert (found[[c for c in rows if c.startswith("own_")]].to_numpy() == labels.numpy()).all()
    similarity = of_person.set_index("variant")[["l1", "psnr", "ssim", "ms_ssim"]]
    assert similarity.loc[["not_turned", "redirected"]].notna().all(axis=None)
    assert similarity.loc["real"].isna().all(axis=None)


def test_the_oracle_is_held_against_the_pairs_that_it_has(stage):
    person = people()[2]
    _, labels, targets = inputs(person, 4)
    shown = np.flatnonzero(np.arange(4) != 1)
    strips = people()[3].pixels[[0, 1, 2]]
    target = PersonStrips("00007", "test", None, strips, labels.numpy()[targets[shown]], frame_index=shown)
    assert stage(oracle=[target]) == 0
    rows = pd.read_parquet(stage.folder / "redirected_pairs.parquet")
    rows = rows[rows["variant"] == "rendered"]
    assert rows["person"].unique().tolist() == ["00007"] and rows["pair"].tolist() == shown.tolist()
    image, real = to_network(torch.from_numpy(strips), 32, 128), inputs(person, 4)[0][targets[shown]]
    np.testing.assert_allclose(rows["l1"], (image - real).abs().mean((1, 2, 3)), rtol=1e-5)
    beyond = PersonStrips("00007", "test", None, strips, np.zeros((3, 4), np.float32), frame_index=np.array([0, 1, 4]))
    assert stage(oracle=[beyond]) == 1


def test_an_estimator_that_knows_somebody_or_another_size_is_refused(stage, capfd):
    assert stage() == 0
    renamed = [dataclasses.replace(person, person_id=f"x{person.person_id}") for person in people()[::3]]
    write_strips(stage.folder / "known.h5", "gazecapture", renamed)
    with StripStore(stage.folder / "known.h5") as strips:
        known = [strips.person_digest("x00011"), strips.person_digest("x00002")]
    (stage.folder / "redirection.parquet").unlink()
    assert stage(trained_on=known) == 1
    words = capfd.readouterr().err
    assert "the estimator was trained on 00011" in words
    for height, width in ((64, 128), (32, 256)):
        assert stage(size=(height, width)) == 1
        assert f"{height} x {width} px, but" in capfd.readouterr().err
    assert not (stage.folder / "redirection.parquet").exists()


def test_a_person_of_one_strip_is_named(stage, capfd):
    assert stage() == 0
    assert "00005 left out" in capfd.readouterr().out


def test_nobody_with_two_strips_is_said(stage, capfd):
    assert stage([("00005", "test", 1)]) == 1
    assert "gazecapture.h5: no person has 2 strips" in capfd.readouterr().err
    assert not (stage.folder / "redirection.parquet").exists()


def test_a_network_that_diverged_is_said(stage, capfd):
    with torch.no_grad():
        stage.dted.fc_dec.weight.fill_(3e38)
    assert stage() == 1
    assert "its training diverged" in capfd.readouterr().err
