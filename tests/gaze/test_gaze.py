"""Gaze in camera frames: the chain from exact landmarks, videos, and one sentence for what cannot be used."""

import contextlib
import csv
import dataclasses
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import cv2
import imageio_ffmpeg
import numpy as np
import pytest
import torch
from fake_mediapipe import with_open_eyes
from numpy.typing import NDArray
from one_frame import normalize_pose, warp_fused

from faze.commands import gaze
from faze.config.parameters import Model
from faze.data.landmarks.pose import FACE_MODEL_MM
from faze.data.network_input import to_network
from faze.data.normalization.pose import INNER_EYE_CORNERS_14_MM, NormalizedCamera
from faze.data.readers.manifest_camera import assume_camera
from faze.gaze import estimator, overlay
from faze.gaze.estimator import GazeEstimator
from faze.gaze.sources import frames_of
from faze.model.dted import DTED
from faze.model.weights import save_weights

CAMERA = NormalizedCamera(1300.0, 600.0, 256, 64)
MODEL = Model(2, 4, 64, 256, 4, 2, 3, 4, normalize_axis=1, backprop_gaze=True)
LENS = assume_camera(60.0, 640, 480)
DISTORTED = (LENS[0], np.array([-0.2, 0.05, 0.001, -0.002, 0.0]))
POSES = np.array([[0.1, -0.2, 0.05, 20.0, -30.0, 500.0], [-0.2, 0.3, -0.1, -60.0, 20.0, 620.0]])


@pytest.fixture(scope="module")
def dted() -> DTED:
    torch.manual_seed(0)
    return DTED(MODEL).eval()


def picture(seed: int) -> NDArray[np.uint8]:
    coarse = np.random.default_rng(seed).integers(0, 256, (12, 16, 3), np.uint8)
    return cv2.resize(coarse, (640, 480), interpolation=cv2.INTER_CUBIC)


def landmarks_of(pose: NDArray, lens: tuple) -> NDArray:
    return with_open_eyes(cv2.projectPoints(FACE_MODEL_MM, pose[:3], pose[3:], *lens)[0].reshape(-1, 2))


@pytest.mark.parametrize("lens", [LENS, DISTORTED], ids=["no distortion", "distortion"])
@pytest.mark.parametrize("pose", POSES)
def test_gaze_is_that_of_the_strip_that_preprocessing_makes(dted: DTED, lens: tuple, pose: NDArray) -> None:
    """The direction, turned into the normalised camera's frame, is the label that the network estimates."""
    image, target = picture(1), np.array([100.0, -50.0, 20.0])
    found = GazeEstimator(dted, CAMERA, lambda _: landmarks_of(pose, lens)).estimate(image, *lens)
    expected = normalize_pose(pose[:3], pose[3:], INNER_EYE_CORNERS_14_MM, target)
    strip = warp_fused(image, *lens, expected, CAMERA)
    assert np.abs(found.strip.astype(int) - strip).max() <= 1 and strip.std() > 10
    np.testing.assert_allclose(found.head_pose, pose, atol=1e-3)
    np.testing.assert_allclose(found.origin_mm, expected.gaze_origin_mm, atol=1e-2)
    with torch.inference_mode():
        vector = dted.gaze_vector(dted.encode(to_network(torch.from_numpy(found.strip[None]), 64, 256)).gaze)[0]
    np.testing.assert_allclose(-expected.rotation @ found.direction, vector.numpy(), atol=1e-4)
    assert np.linalg.norm(found.direction) == pytest.approx(1)
    rotation = cv2.Rodrigues(found.head_pose[:3])[0]
    about = [cv2.Rodrigues(angle * axis)[0] for angle, axis in zip(found.head_angles, np.eye(3), strict=True)]
    np.testing.assert_allclose(about[0] @ about[1] @ about[2], rotation, atol=1e-9)


def test_signs_are_those_of_labels_and_of_openface(dted: DTED) -> None:
    """Looking up is a positive pitch, and to the image's left a positive yaw; OpenFace's angles have other signs."""
    found = GazeEstimator(dted, CAMERA, lambda _: landmarks_of(POSES[0], LENS)).estimate(picture(1), *LENS)
    up_left = dataclasses.replace(found, direction=np.array([-0.3, -0.4, -0.86]))
    pitch, yaw = np.degrees(up_left.pitchyaw)
    assert pitch > 20 and yaw > 15
    openface_x, openface_y = map(float, gaze.numbers_of(up_left)[:2])
    assert openface_x == pytest.approx(np.arctan2(-0.3, 0.86), abs=1e-5) and openface_y < 0


def read_table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.fixture
def run(dted: DTED, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run the command with a detector that knows every frame except black ones."""

    @contextlib.contextmanager
    def open_detector(model: Path | None, remedy: str) -> Iterator:
        def detect(image: NDArray[np.uint8]) -> NDArray | None:
            return landmarks_of(POSES[0], assume_camera(60.0, *image.shape[1::-1])) if image.max() > 20 else None

        yield detect

    monkeypatch.setattr(estimator, "open_detector", open_detector)
    save_weights(tmp_path / "dted.pt", dted)

    def call(*inputs: object, table: str = "gaze.csv") -> int:
        words = [*map(str, inputs), "--model", str(tmp_path / "dted.pt"), "--table", str(tmp_path / table)]
        monkeypatch.setattr(sys, "argv", ["faze gaze", *words])
        return gaze.main()

    return call


def write_video(path: Path, images: list[NDArray[np.uint8]], rate: float = 25.0) -> None:
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"mp4v"), rate, images[0].shape[1::-1])
    for image in images:
        writer.write(image)
    writer.release()


def test_a_video_becomes_a_table_with_its_times_and_reasons(run, tmp_path: Path, capsys) -> None:
    write_video(tmp_path / "me.mp4", [picture(1), np.zeros((480, 640, 3), np.uint8), picture(2)])
    assert run(tmp_path / "me.mp4", "--hfov-deg", "60") == 0
    rows = read_table(tmp_path / "gaze.csv")
    assert [row["timestamp"] for row in rows] == ["0.000", "0.040", "0.080"]
    assert [row["frame"] for row in rows] == ["0", "1", "2"]
    assert [(row["success"], row["reason"]) for row in rows] == [("1", ""), ("0", "no face found"), ("1", "")]
    assert {row["lens"] for row in rows} == {"given"} and rows[1]["gaze_x"] == ""
    assert float(rows[0]["pose_Tz"]) == pytest.approx(500, abs=0.1)
    assert rows[0]["gaze_yaw_deg"] != rows[2]["gaze_yaw_deg"]
    assert "3 frames, 2 with a gaze\n" in capsys.readouterr().out and not (tmp_path / "gaze.partial.csv").exists()


def test_a_folder_of_images_and_an_assumed_lens(run, tmp_path: Path, capsys) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    cv2.imwrite(str(folder / "b.png"), picture(2))
    cv2.imwrite(str(folder / "a.jpg"), picture(1))
    (folder / "c.jpg").write_bytes((folder / "a.jpg").read_bytes()[:2000])
    assert run(folder) == 0
    rows = read_table(tmp_path / "gaze.csv")
    assert [Path(row["source"]).name for row in rows] == ["a.jpg", "b.png", "c.jpg"]
    assert [row["reason"] for row in rows] == ["", "", "truncated JPEG"] and {row["lens"] for row in rows} == {
        "assumed"
    }
    assert "a field of view of 60 degrees is assumed" in capsys.readouterr().out


def test_a_calibration_of_another_size_is_a_reason(run, tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "a.png"), picture(1))
    lens = cv2.FileStorage(str(tmp_path / "lens.yaml"), cv2.FILE_STORAGE_WRITE)
    lens.write("camera_matrix", assume_camera(60.0, 1280, 960)[0])
    lens.write("distortion_coefficients", np.zeros(5))
    lens.release()
    assert run(tmp_path / "a.png", "--lens", tmp_path / "lens.yaml") == 0
    [row] = read_table(tmp_path / "gaze.csv")
    assert "the 640 x 480 frame does not match its camera" in row["reason"] and row["lens"] == "given"


def test_what_cannot_be_used_is_one_sentence(run, tmp_path: Path, capsys) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "sound.mp4").write_bytes(b"\0\0\0\x18ftypmp42" + bytes(200))
    cases = {
        (tmp_path / "none.mp4",): "none.mp4: no such file or folder",
        (tmp_path / "empty",): "empty: contains no .jpg, .jpeg, .png",
        (tmp_path / "sound.mp4",): "sound.mp4: is neither an image nor a video that OpenCV can read",
        (tmp_path / "empty", "--hfov-deg", "5"): "--hfov-deg 5 is not between 20 and 150 degrees",
        (tmp_path / "empty", "--hfov-deg", "60", "--lens", "a.yaml"): "pass either --lens or --hfov-deg",
        (tmp_path / "empty", "--lens", tmp_path / "a.yaml"): "a.yaml",
    }
    for arguments, sentence in cases.items():
        assert run(*arguments) == 1
        error = capsys.readouterr().err
        assert sentence in error.splitlines()[-1], error
        assert list(tmp_path.glob("gaze*")) == []


def test_outputs_never_replace_inputs_or_each_other(run, tmp_path: Path, capsys) -> None:
    write_video(tmp_path / "me.mp4", [picture(1)])
    write_video(tmp_path / "me.partial.mp4", [picture(1)])
    before = (tmp_path / "me.mp4").read_bytes()
    for arguments in (
        ("me.mp4", "--overlay", tmp_path / "me.mp4"),
        ("me.partial.mp4", "--overlay", tmp_path / "me.mp4"),
        ("me.mp4", "--overlay", tmp_path / "gaze.csv"),
        ("me.mp4", "--overlay", tmp_path / "dted.pt"),
    ):
        assert run(tmp_path / arguments[0], *arguments[1:]) == 1
        assert "would be replaced by an output; choose another name" in capsys.readouterr().err
    assert run(tmp_path / "me.mp4", "--overlay", tmp_path) == 1 and "is a folder" in capsys.readouterr().err
    assert (tmp_path / "me.mp4").read_bytes() == before


def test_a_truncated_video_keeps_the_frames_that_can_be_decoded(tmp_path: Path) -> None:
    write_video(tmp_path / "me.avi", [picture(seed) for seed in range(8)])
    whole = (tmp_path / "me.avi").read_bytes()
    (tmp_path / "cut.avi").write_bytes(whole[: len(whole) * 2 // 3])
    numbers = [frame.number for frame in frames_of([tmp_path / "cut.avi"])]
    assert 1 <= len(numbers) < 8 and numbers == list(range(len(numbers)))


def ffmpeg(*arguments: object) -> None:
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-loglevel", "error", *map(str, arguments)]
    subprocess.run(command, check=True)


def test_the_rotation_that_a_phone_writes_is_applied(tmp_path: Path) -> None:
    lower_dark = np.zeros((480, 640, 3), np.uint8)
    lower_dark[:240] = 255
    write_video(tmp_path / "flat.mp4", [lower_dark] * 2)
    ffmpeg("-display_rotation", 90, "-i", tmp_path / "flat.mp4", "-c", "copy", tmp_path / "turned.mp4")
    image = next(frames_of([tmp_path / "turned.mp4"])).image
    assert image.shape == (640, 480, 3) and image[:, :200].mean() > 200 and image[:, 300:].mean() < 50


def test_times_are_those_of_a_video_whose_rate_varies(tmp_path: Path) -> None:
    durations, lines = [0.04, 0.2, 0.04, 0.1], []
    for number, duration in enumerate(durations):
        cv2.imwrite(str(tmp_path / f"{number}.png"), picture(number))
        lines.append(f"file '{tmp_path / f'{number}.png'}'\nduration {duration}\n")
    (tmp_path / "list.txt").write_text("".join(lines))
    out = ("-fps_mode", "vfr", "-pix_fmt", "yuv420p", tmp_path / "varying.mp4")
    ffmpeg("-f", "concat", "-safe", 0, "-i", tmp_path / "list.txt", *out)
    times = [frame.time_s for frame in frames_of([tmp_path / "varying.mp4"])]
    np.testing.assert_allclose(times[:4], [0, 0.04, 0.24, 0.28], atol=0.002)


def test_a_killed_run_leaves_its_rows(dted: DTED, tmp_path: Path, run, monkeypatch: pytest.MonkeyPatch) -> None:
    write_video(tmp_path / "me.mp4", [picture(1)] * 3)
    frames = estimator.GazeEstimator.frames

    def interrupted(self, *arguments) -> Iterator:
        for number, each in enumerate(frames(self, *arguments)):
            if number == 2:  # what a kill leaves: nothing has been closed yet
                assert len(read_table(tmp_path / "gaze.partial.csv")) == 2
                raise KeyboardInterrupt
            yield each

    monkeypatch.setattr(estimator.GazeEstimator, "frames", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "me.mp4", "--hfov-deg", "60")
    assert len(read_table(tmp_path / "gaze.partial.csv")) == 2 and not (tmp_path / "gaze.csv").exists()


def test_overlay_shows_the_arrow_the_strip_and_reasons_at_the_times_of_the_source(run, tmp_path: Path) -> None:
    write_video(tmp_path / "me.mp4", [picture(1), np.zeros((480, 640, 3), np.uint8), picture(1)])
    assert run(tmp_path / "me.mp4", "--hfov-deg", "60", "--overlay", tmp_path / "out.mp4") == 0
    source, drawn = (list(frames_of([tmp_path / name])) for name in ("me.mp4", "out.mp4"))
    assert [frame.time_s for frame in drawn] == [frame.time_s for frame in source]
    changed = [np.abs(d.image.astype(int) - s.image).max(2) > 60 for d, s in zip(drawn, source, strict=True)]
    assert changed[0][:48, :192].mean() > 0.2 and changed[1][:48, :192].sum() == 0  # the strip
    green = (drawn[0].image[:, :, 1].astype(int) - drawn[0].image[:, :, 2] > 90) & changed[0]
    y, x = np.nonzero(green[60:440])
    start = cv2.projectPoints(POSES[0, None, 3:], np.zeros(3), np.zeros(3), *LENS)[0].ravel()
    assert len(x) > 20 and np.hypot(x - start[0], y + 60 - start[1]).min() < 20
    assert changed[1][400:].sum() > 200  # the reason
    assert sorted(path.name for path in tmp_path.glob("*partial*")) == []
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(tmp_path / "out.mp4")]
    assert "h264" in subprocess.run(command, capture_output=True, text=True, check=False).stderr


def test_overlay_keeps_the_times_of_slow_and_fast_sources_and_is_readable_before_its_end(tmp_path: Path) -> None:
    with overlay.Overlay(tmp_path / "slow.mp4", 10.0) as slow:
        for number, time_s in enumerate([0.0, 0.1, 0.5, 3.0, 4.0, 90_000.0]):
            slow.add(picture(number), time_s)
        time.sleep(1.0)
        assert len(list(frames_of([tmp_path / "slow.mp4"]))) >= 100
    assert len(list(frames_of([tmp_path / "slow.mp4"]))) == 41 + 101  # a gap of a day is shown for ten seconds
    with overlay.Overlay(tmp_path / "fast.mp4", 240.0) as fast:
        for number in range(46):
            fast.add(picture(1)[:479, :639], number / 240)
    frames = list(frames_of([tmp_path / "fast.mp4"]))
    assert len(frames) == 12 and frames[0].image.shape == (478, 638, 3)


def test_an_encoder_that_fails_is_one_sentence(run, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    write_video(tmp_path / "me.mp4", [picture(1)] * 3)
    monkeypatch.setattr(imageio_ffmpeg, "get_ffmpeg_exe", lambda: shutil.which("false"))
    assert run(tmp_path / "me.mp4", "--overlay", tmp_path / "out.mp4") == 1
    assert "out.partial.mp4: the encoder failed; is the disk full?" in capsys.readouterr().err
    assert not (tmp_path / "out.mp4").exists() and not (tmp_path / "gaze.csv").exists()


def test_overlay_needs_a_single_video(run, tmp_path: Path, capsys) -> None:
    for name in ("a.mp4", "b.mp4"):
        write_video(tmp_path / name, [picture(1)])
    assert run(tmp_path / "a.mp4", tmp_path / "b.mp4", "--overlay", tmp_path / "out.mp4") == 1
    assert "--overlay is for a single video" in capsys.readouterr().err
