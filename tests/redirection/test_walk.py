from pathlib import Path

import av
import cv2
import numpy as np
import pandas as pd
import pytest
import torch
from small_model import MODEL, random_people
from stage_runs import call_stage
from stores import write_strips

from faze.base import geometry
from faze.data.network_input import from_network, to_network
from faze.data.pairs import open_people
from faze.data.strips import StripStore, read_store
from faze.model.dted import DTED
from faze.model.weights import save_weights
from faze.redirection.estimator import GazeHeadEstimator, TrainedEstimator, estimate, save_estimator
from faze.redirection.walk import (
    WALKS,
    contact_sheet,
    video_frames,
    walk_person,
)

CONFIG = {"people": 2, "range_deg": 30.0, "frames": 5}


def build() -> DTED:
    torch.manual_seed(0)
    return DTED(MODEL).eval()


ESTIMATOR = GazeHeadEstimator(4, (32, 128)).eval()


def write_store(path: Path, dataset: str, splits: dict[str, str]) -> Path:
    write_strips(path, dataset, random_people(*((person, split, 2) for person, split in splits.items())))
    return path


@pytest.fixture
def store(tmp_path) -> StripStore:
    people = {"00002": "train", "00003": "val", "00005": "test", "00007": "test", "00011": "test"}
    return read_store(write_store(tmp_path / "gazecapture.h5", "gazecapture", people))


def test_each_step_is_the_strip_redirected(store):
    """The reference encodes again at every step, with the step's absolute pose, and the other factor frontal."""
    dted = build()
    walk = walk_person(dted, ESTIMATOR, store, "00005", range_deg=30.0, steps=5)
    assert list(walk.steps) == list(WALKS) and walk.angles_deg.tolist() == [-30, -15, 0, 15, 30]
    first = open_people(store, (32, 128), split="test")
    image, label = to_network(first.gather(torch.tensor([0]))), first.labels[0].double().numpy()

    def rotation(pitch: float, yaw: float) -> torch.Tensor:
        return torch.from_numpy(geometry.rotation_from_pitchyaw([pitch, yaw])).float()[None]

    own = rotation(*label[:2]), rotation(*label[2:])
    straight = rotation(0, 0)
    for step, angle in enumerate(np.radians(walk.angles_deg)):
        wanted = {
            "gaze yaw": (rotation(0, angle), straight),
            "gaze pitch": (rotation(angle, 0), straight),
            "head yaw": (straight, rotation(0, angle)),
            "head pitch": (straight, rotation(angle, 0)),
        }
        for name, to in wanted.items():
            picture = from_network(dted(image, own, to).detach())[0].numpy()
            assert np.abs(picture.astype(int) - walk.steps[name][step]).max() <= 1, (name, step)
            seen = np.degrees(estimate(ESTIMATOR, dted(image, own, to).detach()))[0]
            number = ["gaze pitch", "gaze yaw", "head pitch", "head yaw"].index(name)
            assert walk.seen_deg[name][step] == pytest.approx(seen[number], abs=1e-3)
    with torch.inference_mode():
        again = from_network(dted.decode(dted.encode(image)))[0].numpy()
    assert np.abs(again.astype(int) - walk.reconstruction).max() <= 1


def test_pictures(store):
    steps = 5
    walks = [
        walk_person(build(), ESTIMATOR, store, person, range_deg=45.0, steps=steps) for person in ("00005", "00007")
    ]
    sheet = contact_sheet(walks)
    assert sheet.dtype == np.uint8 and sheet.shape[2] == 3
    assert len(sheet) == 2 * len(contact_sheet(walks[:1]))
    walks[0].input[:], walks[0].reconstruction[:] = 11, 37
    frames = list(video_frames(walks[0]))
    left = [np.nonzero((frames[0] == level).all(-1))[1].mean() for level in (11, 37)]
    assert left[0] < frames[0].shape[1] / 2 < left[1]  # the input is on the left
    assert len(frames) == 2 * steps - 2  # there and back, the ends once
    assert {frame.shape for frame in frames} == {frames[0].shape}
    assert frames[0].shape[0] % 2 == frames[0].shape[1] % 2 == 0
    assert np.array_equal(frames[1], frames[-1])
    assert not np.array_equal(frames[0], frames[steps - 1])


def run(folder: Path) -> int:
    files = {"checkpoint": "checkpoint.pt", "estimator": "estimator.pt", "pairs": "redirected_pairs.parquet"}
    paths = {name: folder / file for name, file in (files | {"out": "walks"}).items()}
    stores = [folder / "mpiigaze.h5", folder / "gazecapture.h5"]
    return call_stage("walk", folder, {"walk": CONFIG}, data=stores, threads=1, **paths)


@pytest.fixture
def folder(tmp_path):
    write_store(tmp_path / "mpiigaze.h5", "mpiigaze", {"p00": "test"})
    write_store(tmp_path / "gazecapture.h5", "gazecapture", {"1": "train", "2": "test", "3": "test", "4": "test"})
    save_weights(tmp_path / "checkpoint.pt", build())
    save_estimator(tmp_path / "estimator.pt", TrainedEstimator(ESTIMATOR, ()))
    write_pairs(tmp_path / "redirected_pairs.parquet", {"mpiigaze": ["p00"], "gazecapture": ["2", "3", "4"]})
    return tmp_path


def write_pairs(path: Path, people: dict[str, list[str]]) -> None:
    """Write pairs in which person 4 is redirected best, and person 2 worst."""
    angles = [f"{k}_{f}_{a}" for k in ("own", "wanted", "seen") for f in ("gaze", "head") for a in ("pitch", "yaw")]
    error = {"p00": 0.1, "2": 0.3, "3": 0.2, "4": 0.1}
    rows = [
        {"dataset": d, "person": p, "pair": 0, "variant": v} | dict.fromkeys(angles, 0.0) | {"seen_gaze_yaw": off}
        for d, names in people.items()
        for p in names
        for v, off in (("real", 0.0), ("not_turned", 0.0), ("redirected", error[p]))
    ]
    pd.DataFrame(rows).assign(l1=0.1, psnr=1.0, ssim=0.1, ms_ssim=0.1).to_parquet(path, index=False)


def test_stage_writes_a_video_per_person_and_a_contact_sheet(folder):
    assert run(folder) == 0
    names = sorted(path.name for path in (folder / "walks").iterdir())
    people = ("gazecapture_2", "gazecapture_4", "mpiigaze_p00")
    assert names == ["angles.csv", "contact_sheet.png", *(f"{person}.mp4" for person in people)]
    angles = pd.read_csv(folder / "walks" / "angles.csv", dtype={"person": str})
    assert angles["person"].unique().tolist() == ["p00", "4", "2"] and len(angles) == 3 * 4 * 5
    assert angles["asked_deg"].tolist() == [-30, -15, 0, 15, 30] * 12
    assert angles["walk"].tolist() == [name for name in WALKS for _ in range(5)] * 3
    assert angles["dataset"].tolist() == ["mpiigaze"] * 20 + ["gazecapture"] * 40
    store = read_store(folder / "gazecapture.h5")
    walk = walk_person(build(), ESTIMATOR, store, "2", range_deg=30.0, steps=5)
    found = angles[(angles["person"] == "2") & (angles["walk"] == "head yaw")]["seen_deg"]
    np.testing.assert_allclose(found, walk.seen_deg["head yaw"], atol=1e-3)
    assert cv2.imread(str(folder / "walks" / "contact_sheet.png")).shape[1] > 1000


def test_videos_are_what_browsers_play(folder):
    run(folder)
    video = folder / "walks" / "mpiigaze_p00.mp4"
    with av.open(str(video)) as file:
        stream = file.streams.video[0]
        assert (stream.codec_context.name, stream.format.name, stream.average_rate) == ("h264", "yuv420p", 15)
        assert len(list(file.decode(stream))) == 8  # 5 there, 3 back
    head = video.read_bytes()[:4096]
    assert b"moov" in head and head.index(b"moov") < 100  # playable before it is loaded
