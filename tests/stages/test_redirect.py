"""The rule `redirect`. Fails with train people, all strips, a person with one strip, strip a instead of b."""

import numpy as np
import pandas as pd
import pytest
import torch
from small_model import MODEL, random_people
from stage_runs import call_stage
from stores import write_strips

from faze.base.geometry import rotation_from_pitchyaw
from faze.data.network_input import shrink, to_network
from faze.model.dted import DTED
from faze.model.weights import save_weights
from faze.redirection.estimator import GazeHeadEstimator, estimate, save_estimator
from faze.redirection.redirect import draw_targets

PEOPLE = (("00002", "train", 5), ("00005", "test", 1), ("00007", "test", 6), ("00011", "test", 3))


@pytest.fixture
def stage(tmp_path):
    torch.manual_seed(0)
    dted, estimator = DTED(MODEL), GazeHeadEstimator(4, (32, 128)).eval()
    write_strips(tmp_path / "gazecapture.h5", "gazecapture", random_people(*PEOPLE))
    write_strips(tmp_path / "mpiigaze.h5", "mpiigaze", random_people(("p00", "test", 2)))
    save_weights(tmp_path / "checkpoint.pt", dted)

    def run() -> int:
        save_estimator(tmp_path / "estimator.pt", estimator)
        files = {"checkpoint": "checkpoint.pt", "estimator": "estimator.pt", "out": "redirected_pairs.parquet"}
        paths = {name: tmp_path / file for name, file in files.items()}
        stores = [tmp_path / "mpiigaze.h5", tmp_path / "gazecapture.h5"]
        return call_stage("redirect", tmp_path, {"redirect": {"strips": 4}}, data=stores, threads=1, **paths)

    run.dted, run.estimator, run.folder = dted, estimator, tmp_path
    return run


def test_every_variant_of_every_pair_is_a_row_with_what_the_estimator_sees(stage):
    assert stage() == 0
    rows = pd.read_parquet(stage.folder / "redirected_pairs.parquet")
    counts = rows.groupby(["person", "variant"]).size().unstack()
    assert set(counts) == {"real", "not_turned", "redirected"}
    assert (counts.T == {"00007": 4, "00011": 3, "p00": 2}).all(axis=None)
    person, chosen, targets = random_people(*PEOPLE)[2], [0, 2, 3, 5], draw_targets(4)
    image = to_network(shrink(torch.from_numpy(person.pixels[chosen]), 32, 128))
    labels = torch.from_numpy(person.labels[chosen])
    rotations = [rotation_from_pitchyaw(angles, torch) for angles in labels.split(2, 1)]
    with torch.no_grad():
        codes = stage.dted.encode(image)
        turned = codes.turn(*rotations).turn(*(rotation[targets].mT for rotation in rotations))
        images = {
            "real": image[targets],
            "not_turned": stage.dted.decode(codes),
            "redirected": stage.dted.decode(turned),
        }
    for variant, made in images.items():
        found = rows[(rows["person"] == "00007") & (rows["variant"] == variant)]
        np.testing.assert_allclose(found.filter(like="seen_"), estimate(stage.estimator, made), atol=1e-4)
        assert (found.filter(like="wanted_") == labels.numpy()[targets]).all(axis=None)
        assert (found.filter(like="own_") == labels.numpy()).all(axis=None)
        similarity = found[["l1", "psnr", "ssim", "ms_ssim"]]
        assert similarity.isna().all(axis=None) if variant == "real" else similarity.notna().all(axis=None)
        if variant != "real":
            np.testing.assert_allclose(found["l1"], (made - image[targets]).abs().mean((1, 2, 3)), rtol=1e-4)
