"""The rule `walk`, whose steps are compared with strips redirected one by one."""

import av
import cv2
import numpy as np
import pandas as pd
import pytest
import torch
from small_model import MODEL, random_people
from stage_runs import call_stage
from stores import write_strips

from faze.base.geometry import rotation_from_pitchyaw
from faze.config.parameters import Walk
from faze.data.network_input import from_network, to_network
from faze.data.pairs import open_people
from faze.data.strips import read_store
from faze.model.dted import DTED
from faze.model.weights import save_weights
from faze.redirection.estimator import GazeHeadEstimator, estimate, save_estimator
from faze.redirection.redirect import COLUMNS
from faze.redirection.walk import WALKS, draw_frames, walk_person

WALK = {"people": 2, "range_deg": 30.0, "frames": 5}
ASKED_DEG = [-30, -15, 0, 15, 30]
ERRORS = {"p00": 0.1, "2": 0.3, "3": 0.2, "4": 0.1}  # of redirected gaze


@pytest.fixture(scope="module")
def networks():
    torch.manual_seed(0)
    return DTED(MODEL).eval(), GazeHeadEstimator(4, (32, 128)).eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, networks):
    """Run the stage on two stores."""
    folder = tmp_path_factory.mktemp("walk")
    people = {"mpiigaze": [("p00", "test", 2)], "gazecapture": [(p, "test", 2) for p in "234"] + [("1", "train", 2)]}
    rows = []
    for dataset, these in people.items():
        write_strips(folder / f"{dataset}.h5", dataset, random_people(*these))
        for person in (name for name, split, _ in these if split == "test"):
            for variant in ("real", "not_turned", "redirected"):
                row = {"dataset": dataset, "person": person, "pair": 0, "variant": variant} | dict.fromkeys(
                    COLUMNS, 0.0
                )
                rows.append(row | {"seen_gaze_yaw": ERRORS[person] * (variant == "redirected")})
    pd.DataFrame(rows).assign(l1=0.1, psnr=1.0, ssim=0.1, ms_ssim=0.1).to_parquet(folder / "pairs.parquet")
    save_weights(folder / "checkpoint.pt", networks[0])
    save_estimator(folder / "estimator.pt", networks[1])
    files = {"checkpoint": "checkpoint.pt", "estimator": "estimator.pt", "pairs": "pairs.parquet", "out": "walks"}
    paths = {name: folder / file for name, file in files.items()}
    stores = [folder / "mpiigaze.h5", folder / "gazecapture.h5"]
    assert call_stage("walk", folder, {"walk": WALK}, data=stores, threads=1, **paths) == 0
    return folder


def test_each_step_is_the_strip_redirected(folder, networks):
    """The reference encodes again at every step, with the step's absolute pose, and the other factor frontal."""
    dted, estimator = networks
    store = read_store(folder / "gazecapture.h5")
    _, walks = walk_person(dted, estimator, store, "3", Walk(**WALK))
    people = open_people(store, (32, 128))
    first = people.person_indices()[2][:1]
    image, own = to_network(people.gather(first)), people.labels[first].split(2, 1)
    for name, (code, axis) in WALKS.items():
        steps = walks[walks["walk"] == name]
        assert steps["asked_deg"].tolist() == ASKED_DEG
        for step in steps.itertuples():
            angles = torch.zeros(1, 4)
            angles[0, axis + 2 * (code == "head")] = np.radians(step.asked_deg)
            with torch.no_grad():
                front = dted.encode(image).turn(*(rotation_from_pitchyaw(part, torch) for part in own))
                made = dted.decode(front.turn(*(rotation_from_pitchyaw(part, torch).mT for part in angles.split(2, 1))))
            assert np.abs(from_network(made)[0].numpy().astype(int) - step.picture).max() <= 1
            seen_deg = np.degrees(estimate(estimator, made))[0, axis + 2 * (code == "head")]
            assert step.seen_deg == pytest.approx(seen_deg, abs=1e-3)


def test_stage_writes_a_video_per_person_a_contact_sheet_and_angles(folder, networks):
    people = ["mpiigaze p00", "gazecapture 4", "gazecapture 2"]  # the best and the worst
    names = {path.name for path in (folder / "walks").iterdir()}
    assert names == {"angles.csv", "contact_sheet.png", *(f"{who.replace(' ', '_')}.mp4" for who in people)}
    angles = pd.read_csv(folder / "walks/angles.csv", dtype={"person": str})
    assert (angles["dataset"] + " " + angles["person"]).tolist() == [who for who in people for _ in range(20)]
    assert angles["asked_deg"].tolist() == ASKED_DEG * 12
    assert angles["walk"].tolist() == [name for name in WALKS for _ in range(5)] * 3
    _, walks = walk_person(*networks, read_store(folder / "gazecapture.h5"), "2", Walk(**WALK))
    np.testing.assert_allclose(angles["seen_deg"][40:], walks["seen_deg"], atol=1e-3)
    sheet = cv2.imread(str(folder / "walks/contact_sheet.png"))
    assert sheet.shape[1] > 1000 and sheet.shape[0] % 3 == 0


def test_videos_go_forward_and_back_with_the_strip_on_the_left(folder, networks):
    strips, walks = walk_person(*networks, read_store(folder / "mpiigaze.h5"), "p00", Walk(**WALK))
    assert list(strips) == ["mpiigaze p00", "reconstruction"]
    frames = draw_frames({caption: np.full_like(strip, len(caption)) for caption, strip in strips.items()}, walks)
    left = [np.nonzero((frames[0] == len(caption)).all(-1))[1].mean() for caption in strips]
    assert left[0] < frames[0].shape[1] / 2 < left[1]
    assert len(frames) == 8 and all(frame.shape == frames[0].shape for frame in frames)  # 5 there, 3 back
    assert np.array_equal(frames[1], frames[-1]) and not np.array_equal(frames[0], frames[4])


def test_videos_are_what_browsers_play(folder):
    video = folder / "walks/mpiigaze_p00.mp4"
    with av.open(str(video)) as file:
        stream = file.streams.video[0]
        assert (stream.codec_context.name, stream.format.name, stream.average_rate) == ("h264", "yuv420p", 15)
        assert len(list(file.decode(stream))) == 8
    assert b"moov" in video.read_bytes()[:100]  # playable before it is loaded
