"""The rule `redirect`.

Fails with train people, all strips, a person with one strip, NaN, the real strips of a instead of b.
"""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch
from small_model import MODEL, random_people
from stage_runs import call_stage
from stores import PersonStrips, write_strips

from faze.base.geometry import rotation_from_pitchyaw
from faze.data.network_input import shrink, to_network
from faze.data.strips import read_store
from faze.model.dted import DTED
from faze.model.weights import save_weights
from faze.redirection.estimator import GazeHeadEstimator, TrainedEstimator, estimate, save_estimator
from faze.redirection.pairs import VARIANTS, chosen, draw_targets

PEOPLE = (("00002", "train", 5), ("00005", "test", 1), ("00007", "test", 6), ("00011", "test", 3))


@pytest.fixture
def stage(tmp_path):
    torch.manual_seed(0)
    dted = DTED(MODEL)
    estimator = GazeHeadEstimator(4, (32, 128)).eval()

    def run(which=PEOPLE, trained_on=()) -> int:
        save_weights(tmp_path / "checkpoint.pt", dted)
        write_strips(tmp_path / "gazecapture.h5", "gazecapture", random_people(*which))
        write_strips(tmp_path / "mpiigaze.h5", "mpiigaze", random_people(("p00", "test", 2)))
        save_estimator(tmp_path / "estimator.pt", TrainedEstimator(estimator, trained_on))
        files = {"checkpoint": "checkpoint.pt", "estimator": "estimator.pt"}
        files |= {"out": "redirected_pairs.parquet"}
        paths = {name: tmp_path / file for name, file in files.items()}
        stores = [tmp_path / "mpiigaze.h5", tmp_path / "gazecapture.h5"]
        changes = {"redirect": {"strips": 4}}
        return call_stage("redirect", tmp_path, changes, data=stores, threads=1, **paths)

    run.dted, run.estimator, run.folder = dted, estimator, tmp_path
    return run


def inputs(person: PersonStrips, most: int):
    rows = chosen(len(person.labels), most)
    image = to_network(shrink(torch.from_numpy(person.pixels[rows]), 32, 128))
    return image, torch.from_numpy(person.labels[rows]), draw_targets(0, len(rows))


def test_every_variant_of_every_pair_is_a_row_with_what_the_estimator_sees(stage):
    assert stage() == 0
    rows = pd.read_parquet(stage.folder / "redirected_pairs.parquet")
    assert set(rows["variant"]) == set(VARIANTS)
    counts = rows.groupby(["person", "variant"]).size().unstack()
    assert (counts.T == {"00007": 4, "00011": 3, "p00": 2}).all(axis=None)
    image, labels, targets = inputs(random_people(*PEOPLE)[2], 4)
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
    rotations = [rotation_from_pitchyaw(labels[:, first : first + 2], torch) for first in (0, 2)]
    with torch.no_grad():
        redirected = stage.dted(image, tuple(rotations), tuple(rotation[targets] for rotation in rotations))
    found = of_person[of_person["variant"] == "redirected"]["l1"].to_numpy()
    np.testing.assert_allclose(found, (redirected - image[targets]).abs().mean((1, 2, 3)), rtol=1e-4)
    similarity = of_person.set_index("variant")[["l1", "psnr", "ssim", "ms_ssim"]]
    assert similarity.loc[["not_turned", "redirected"]].notna().all(axis=None)
    assert similarity.loc["real"].isna().all(axis=None)


def test_an_estimator_that_knows_somebody_is_refused(stage, capfd):
    assert stage() == 0
    renamed = [dataclasses.replace(person, person_id=f"x{person.person_id}") for person in random_people(*PEOPLE)[::3]]
    write_strips(stage.folder / "known.h5", "gazecapture", renamed)
    known = [person.digest for person in read_store(stage.folder / "known.h5").people]
    (stage.folder / "redirected_pairs.parquet").unlink()
    assert stage(trained_on=known) == 1
    assert "the estimator was trained on 00011" in capfd.readouterr().err
    assert not (stage.folder / "redirected_pairs.parquet").exists()


def test_an_estimator_of_another_image_size_is_refused(stage, capfd):
    stage.estimator.size = (64, 256)
    assert stage() == 1
    assert "estimator.pt: was trained on 64 x 256 px" in capfd.readouterr().err


def test_a_network_that_diverged_is_said(stage, capfd):
    with torch.no_grad():
        stage.dted.fc_dec.weight.fill_(3e38)
    assert stage() == 1
    assert "its training diverged" in capfd.readouterr().err
