import json
import re
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest
import torch

from faze.base import geometry
from faze.config.parameters import Model
from faze.data.network_input import from_network, to_network
from faze.data.store.strips import PersonStrips, StripStore, write_strips
from faze.model.dted import DTED, Codes
from faze.model.weights import save_weights
from faze.redirection import atlas
from faze.redirection.atlas import atlas_sheets, write_atlas
from faze.redirection.estimator import GazeHeadEstimator, TrainedEstimator, estimate, save_estimator
from faze.redirection.walk import (
    WALKS,
    contact_sheet,
    spread_people,
    video_frames,
    walk_person,
    walk_rotations,
    write_video,
)
from faze.stages import walk as stage

MODEL = Model(2, 4, 32, 128, 4, 2, 3, 4, normalize_axis=1, backprop_gaze=True)
CONFIG = {"people": 2, "range_deg": 30.0, "frames": 5, "fps": 15}


def build() -> DTED:
    torch.manual_seed(0)
    return DTED(MODEL).eval()


ESTIMATOR = GazeHeadEstimator(4, (32, 128)).eval()


def write_store(path: Path, dataset: str, splits: dict[str, str]) -> Path:
    rng = np.random.default_rng(0)

    def strips(person: str, split: str) -> PersonStrips:
        pixels = rng.integers(0, 256, (2, 64, 256, 3), dtype=np.uint8)
        labels = rng.normal(0, 0.3, (2, 4)).astype(np.float32)
        return PersonStrips(person, split, ["0.jpg", "1.jpg"], pixels, labels)

    write_strips(path, dataset, (strips(person, split) for person, split in splits.items()))
    return path


@pytest.fixture
def strips(tmp_path):
    people = {"00002": "train", "00003": "val", "00005": "test", "00007": "test", "00011": "test"}
    with StripStore(write_store(tmp_path / "gazecapture.h5", "gazecapture", people)) as opened:
        yield opened


def test_rotations_span_the_range():
    angles_deg, rotations = walk_rotations(1, 45.0, 15)
    assert angles_deg[[0, 7, 14]].tolist() == [-45, 0, 45]
    wanted = geometry.rotation_from_pitchyaw(np.stack([np.zeros(15), np.radians(angles_deg)], axis=-1))
    assert np.allclose(rotations, wanted, atol=1e-15)
    angles_deg, rotations = walk_rotations(0, 30.0, 3)
    assert angles_deg.tolist() == [-30, 0, 30]
    ahead = rotations[2] @ torch.tensor([0, 0, 1], dtype=rotations.dtype)
    np.testing.assert_allclose(ahead, [0, -0.5, 0.75**0.5], atol=1e-12)


def test_people_are_spread_from_the_best_redirected_to_the_worst():
    errors = pd.Series({"a": 5.0, "b": 1.0, "c": 3.0, "d": 2.0, "e": 4.0})
    assert spread_people(errors, 3) == ["b", "c", "a"]
    assert spread_people(errors, 1) == ["b"] and spread_people(errors, 9) == ["b", "d", "c", "e", "a"]


def test_each_step_is_the_strip_redirected(strips):
    """The reference encodes again at every step, with the step's absolute pose, and the other factor frontal."""
    dted = build()
    walk = walk_person(dted, ESTIMATOR, strips, "00005", range_deg=30.0, steps=5)
    assert list(walk.steps) == list(WALKS) and walk.angles_deg.tolist() == [-30, -15, 0, 15, 30]
    image = to_network(torch.from_numpy(strips.pixels("00005", slice(1))), 32, 128)
    label = strips.labels("00005")[0].astype(np.float64)

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
    assert np.array_equal(walk.input, from_network(image)[0])
    with torch.inference_mode():
        again = from_network(dted.decode(dted.encode(image)))[0].numpy()
    assert np.abs(again.astype(int) - walk.reconstruction).max() <= 1
    assert (walk.dataset, walk.person) == ("gazecapture", "00005")
    assert not np.array_equal(walk.steps["gaze yaw"][0], walk.steps["gaze yaw"][-1])


def test_the_strip_is_encoded_once(strips, monkeypatch):
    dted, seen = build(), []
    encode = dted.encode

    def count(image: torch.Tensor) -> Codes:
        seen.append(len(image))
        return encode(image)

    monkeypatch.setattr(dted, "encode", count)
    walk_person(dted, ESTIMATOR, strips, "00005", range_deg=45.0, steps=15)
    assert seen == [1]


@pytest.mark.parametrize("steps", [2, 5, 15])
def test_pictures(strips, steps):
    walks = [
        walk_person(build(), ESTIMATOR, strips, person, range_deg=45.0, steps=steps) for person in ("00005", "00007")
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


def test_positions_of_steps_on_the_sheet(strips):
    walk = walk_person(build(), ESTIMATOR, strips, "00005", range_deg=45.0, steps=3)
    level = 0
    for row, name in enumerate(WALKS):  # each picture one grey level of its own
        for column in range(3):
            level = 10 + 20 * (3 * row + column)
            walk.steps[name][column] = level
    sheet = contact_sheet([walk])
    places = {}
    for row in range(4):
        for column in range(3):
            ys, xs = np.nonzero((sheet == 10 + 20 * (3 * row + column)).all(-1))
            places[row, column] = (np.median(ys), np.median(xs))
    for row in range(4):
        assert np.ptp([places[row, column][0] for column in range(3)]) <= 1  # text may have the same grey
        assert places[row, 0][1] < places[row, 1][1] < places[row, 2][1]
    assert [places[row, 0][0] for row in range(4)] == sorted(places[row, 0][0] for row in range(4))
    walk = walk_person(build(), ESTIMATOR, strips, "00005", range_deg=45.0, steps=15)
    for step in range(15):
        walk.steps["head yaw"][step] = 10 + 3 * step
    sheet = contact_sheet([walk])
    areas = [(sheet == 10 + 3 * step).all(-1).sum() for step in range(15)]
    assert [step for step in range(15) if areas[step] > 5000] == [0, 2, 5, 7, 9, 12, 14]  # seven steps, evenly spaced


def test_a_sheet_of_the_atlas_has_each_picture_where_the_pad_has_its_angles(strips):
    """Regression: pitch and yaw, or gaze and head, were exchanged; the first row had the lowest pitch."""
    dted, label = build(), torch.from_numpy(strips.labels("00005")[:1])
    image = to_network(torch.from_numpy(strips.pixels("00005", slice(1))), 32, 128)
    sheets = atlas_sheets(dted, ESTIMATOR, strips, "00005", 30.0)
    assert [sheet.code for sheet in sheets] == ["gaze", "head"]
    with torch.inference_mode():
        front = dted.encode(image).turn(*(geometry.rotation_from_pitchyaw(part, torch) for part in label.split(2, 1)))
        for sheet in sheets:
            for row, column, pitch_deg, yaw_deg in ((0, 0, 30, 30), (0, 14, 30, -30), (10, 7, -90 / 7, 0)):
                angles = torch.tensor([[pitch_deg, yaw_deg]], dtype=torch.float64)
                rotation = geometry.rotation_from_pitchyaw(torch.deg2rad(angles), torch).float().mT
                picture = dted.decode(front._replace(**{sheet.code: getattr(front, sheet.code) @ rotation}))
                found = sheet.picture[32 * row : 32 * row + 32, 128 * column : 128 * column + 128].astype(int)
                assert np.abs(found - from_network(picture)[0].numpy()).max() <= 1
                seen = np.degrees(estimate(ESTIMATOR, picture))[0, slice(2) if sheet.code == "gaze" else slice(2, 4)]
                assert sheet.seen_deg[row, column] == pytest.approx(seen, abs=1e-3)


def test_pictures_of_a_large_network_are_halved_for_the_atlas(tmp_path):
    large = Model(2, 4, 64, 256, 4, 2, 3, 4, normalize_axis=1, backprop_gaze=True)
    estimator = GazeHeadEstimator(4, (64, 256)).eval()
    torch.nn.init.normal_(estimator.angles.weight)  # so that its estimates differ by many degrees
    with StripStore(write_store(tmp_path / "mpiigaze.h5", "mpiigaze", {"p00": "test"})) as store:
        sheets = atlas_sheets(DTED(large).eval(), estimator, store, "p00", 45.0)
    assert sheets[0].picture.shape == (15 * 32, 15 * 128, 3)
    tile = np.random.default_rng(0).integers(0, 256, (64, 256, 3), np.uint8)
    means = tile.reshape(32, 2, 128, 2, 3).mean(axis=(1, 3))
    np.testing.assert_allclose(atlas._small(tile), means, atol=0.5)
    write_atlas(tmp_path, sheets, 45.0)
    index = json.loads((tmp_path / "atlas.json").read_text())
    assert (index["steps"], index["range_deg"], len(index["sheets"])) == (15, 45.0, 2)
    for sheet, row in zip(sheets, index["sheets"], strict=True):
        assert (row["dataset"], row["person"], row["code"]) == ("mpiigaze", "p00", sheet.code)
        np.testing.assert_allclose(row["seen_deg"], sheet.seen_deg, atol=0.05 + 1e-9)
        assert np.abs(sheet.seen_deg - sheet.seen_deg.swapaxes(0, 1)).max() > 1
    read = cv2.cvtColor(cv2.imread(str(tmp_path / index["sheets"][1]["sheet"])), cv2.COLOR_BGR2RGB)
    small = [
        cv2.resize(sheet, None, fx=1 / 16, fy=1 / 16, interpolation=cv2.INTER_AREA)
        for sheet in (read, sheets[1].picture)
    ]
    assert np.abs(np.subtract(*small, dtype=int)).mean() < 3  # lossy


def run_stage(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    lines = [f"walk.{key}: {value}" for key, value in CONFIG.items()]
    (folder / "walk.yaml").write_text("\n".join(["stage: walk", "name: test", "tier: baseline", "seed: 0", *lines]))
    arguments = ["--config", folder / "walk.yaml", "--checkpoint", folder / "checkpoint.pt"]
    arguments += ["--estimator", folder / "estimator.pt", "--pairs", folder / "redirected_pairs.parquet"]
    arguments += ["--data", folder / "mpiigaze.h5", folder / "gazecapture.h5", "--out", folder / "walks"]
    arguments += ["--threads", torch.get_num_threads()]
    monkeypatch.setattr(sys, "argv", ["walk", *map(str, arguments)])
    return stage.main()


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
        for v, off in (("real", 0.0), ("redirected", error[p]))
    ]
    pd.DataFrame(rows).assign(l1=0.1, psnr=1.0, ssim=0.1, ms_ssim=0.1).to_parquet(path, index=False)


def test_stage_writes_a_video_per_person_and_a_contact_sheet(folder, monkeypatch):
    assert run_stage(folder, monkeypatch) == 0
    names = sorted(path.name for path in (folder / "walks").iterdir())
    people = ("gazecapture_2", "gazecapture_4", "mpiigaze_p00")
    sheets = [f"atlas_{person}_{code}.webp" for person in people for code in ("gaze", "head")]
    videos = [f"{person}.mp4" for person in people]
    assert names == ["angles.csv", "atlas.json", *sheets, "contact_sheet.png", *videos]
    angles = pd.read_csv(folder / "walks" / "angles.csv", dtype={"person": str})
    assert angles["person"].unique().tolist() == ["p00", "4", "2"] and len(angles) == 3 * 4 * 5
    assert angles["asked_deg"].tolist() == [-30, -15, 0, 15, 30] * 12
    assert angles["walk"].tolist() == [name for name in WALKS for _ in range(5)] * 3
    assert angles["dataset"].tolist() == ["mpiigaze"] * 20 + ["gazecapture"] * 40
    with StripStore(folder / "gazecapture.h5") as strips:
        walk = walk_person(build(), ESTIMATOR, strips, "2", range_deg=30.0, steps=5)
    found = angles[(angles["person"] == "2") & (angles["walk"] == "head yaw")]["seen_deg"]
    np.testing.assert_allclose(found, walk.seen_deg["head yaw"], atol=1e-3)
    assert cv2.imread(str(folder / "walks" / "contact_sheet.png")).shape[1] > 1000


def test_a_missing_person_is_an_error(folder, monkeypatch, capsys):
    write_pairs(folder / "redirected_pairs.parquet", {"mpiigaze": ["p00"], "gazecapture": ["2"]})
    write_store(folder / "gazecapture.h5", "gazecapture", {"3": "test"})
    assert run_stage(folder, monkeypatch) == 1
    assert "person 2, whom the baseline redirected" in capsys.readouterr().err
    assert not (folder / "walks").exists()


def test_walks_are_computed_in_fp32(folder, monkeypatch):
    """Regression: on a GPU, walks were computed in TF32, which is cuDNN's default."""
    seen = []
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)

    def walked(*given, of=stage.walk_person, **more):
        seen.append(torch.backends.cudnn.allow_tf32)
        return of(*given, **more)

    monkeypatch.setattr(stage, "walk_person", walked)
    assert run_stage(folder, monkeypatch) == 0
    assert set(seen) == {False} and torch.backends.cudnn.allow_tf32


def test_walks_use_the_network_for_inference(folder, monkeypatch):
    """Fails if the network for training is used."""
    seen = []

    def noted(of):
        return lambda dted, *given, **more: seen.append(dted) or of(dted, *given, **more)

    for name in ("walk_person", "atlas_sheets"):
        monkeypatch.setattr(stage, name, noted(getattr(stage, name)))
    monkeypatch.setattr(stage, "for_inference", lambda dted, of=stage.for_inference: seen.append(of(dted)) or seen[0])
    assert run_stage(folder, monkeypatch) == 0
    assert len(seen) == 7 and all(dted is seen[0] for dted in seen)  # three people are walked and are on the sheets


def test_videos_are_what_browsers_play(folder, monkeypatch):
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    run_stage(folder, monkeypatch)
    video = folder / "walks" / "mpiigaze_p00.mp4"
    output = subprocess.run(
        [imageio_ffmpeg.get_ffmpeg_exe(), "-i", video, "-f", "null", "-"], capture_output=True, text=True
    ).stderr
    assert "h264" in output and "yuv420p" in output and "15 fps" in output
    assert re.search(r"frame=\s*8\b", output)  # 5 there, 3 back
    head = video.read_bytes()[:4096]
    assert b"moov" in head and head.index(b"moov") < 100  # playable before it is loaded


def test_images_that_are_not_finite_are_refused(folder, monkeypatch, capsys):
    dted = build()
    with torch.no_grad():
        dted.decoder.last.conv3.weight.fill_(3e38)
    save_weights(folder / "checkpoint.pt", dted)
    assert run_stage(folder, monkeypatch) == 1
    assert "images of person p00 are not finite" in capsys.readouterr().err
    assert not (folder / "walks").exists()


def test_a_missing_encoder_names_its_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(ValueError, match="pip install imageio-ffmpeg"):
        write_video(tmp_path / "video.mp4", iter([np.zeros((2, 2, 3), np.uint8)]), 15)
