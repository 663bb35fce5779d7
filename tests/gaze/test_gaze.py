"""Gaze in camera frames: the chain from exact landmarks, videos, and one sentence for what cannot be used."""

import contextlib
import csv
import dataclasses
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import cv2
import imageio_ffmpeg
import numpy as np
import pytest
import torch
from fake_mediapipe import with_open_eyes
from numpy.typing import NDArray
from one_frame import normalize_pose
from small_model import MODEL as SMALL
from stage_runs import call_faze

from faze.base.geometry import pitchyaw_from_vector
from faze.commands import gaze
from faze.config.validation import read_config
from faze.data.landmarks.pose import FACE_MODEL_MM
from faze.data.network_input import to_network
from faze.data.normalization.pose import INNER_EYE_CORNERS_14_MM
from faze.data.normalization.warp import make_strip
from faze.data.readers.manifest_camera import assume_camera
from faze.fewshot.learner_file import save_fields
from faze.fewshot.personal_estimator import PersonalEstimator
from faze.gaze import estimator
from faze.gaze.estimator import GazeEstimator
from faze.gaze.sources import Lens, SourceFrame, frames_of, sources_of
from faze.gaze.table import ABOUT, Rows
from faze.gaze.tracks import Tracks
from faze.model.dted import DTED
from faze.model.weights import network_hash, save_weights

CAMERA = read_config().preprocess.camera()
MODEL = SMALL.model_copy(update={"image_height_px": 64, "image_width_px": 256})
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


def estimator_of(dted: DTED, pose: NDArray, lens: tuple, **others: object) -> GazeEstimator:
    return GazeEstimator(dted, "", CAMERA, lambda _: [landmarks_of(pose, lens)], **others)


@pytest.mark.parametrize("lens", [LENS, DISTORTED], ids=["no distortion", "distortion"])
@pytest.mark.parametrize("pose", POSES)
def test_gaze_is_that_of_the_strip_that_preprocessing_makes(dted: DTED, lens: tuple, pose: NDArray) -> None:
    """The direction, turned into the normalised camera's frame, is the label that the network estimates."""
    image, target = picture(1), np.array([100.0, -50.0, 20.0])
    found = estimator_of(dted, pose, lens).faces(image, lens)[0]
    expected = normalize_pose(pose[:3], pose[3:], INNER_EYE_CORNERS_14_MM, target)
    strip = make_strip(image, *lens, expected, CAMERA)
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
    found = estimator_of(dted, POSES[0], LENS).faces(picture(1), LENS)[0]
    up_left = dataclasses.replace(found, direction=np.array([-0.3, -0.4, -0.86]))
    pitch, yaw = np.degrees(up_left.pitchyaw)
    assert pitch > 20 and yaw > 15
    [row] = Rows(None).of(SourceFrame(Path("a"), 0, 0.0, None), [up_left], Lens())
    openface_x, openface_y = map(float, row[len(ABOUT) :][:2])
    assert openface_x == pytest.approx(np.arctan2(-0.3, 0.86), abs=1e-5) and openface_y < 0


def read_table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.fixture
def run(dted: DTED, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run the command with a detector that knows every frame except black ones."""

    @contextlib.contextmanager
    def open_faces(model: Path | None, most: int, remedy: str) -> Iterator:
        def detect(image: NDArray[np.uint8]) -> list[NDArray]:
            lens = assume_camera(60.0, *image.shape[1::-1])
            return [landmarks_of(pose, lens) for pose in POSES[:most]] if image.max() > 20 else []

        yield detect

    monkeypatch.setattr(estimator, "open_faces", open_faces)
    save_weights(tmp_path / "dted.pt", dted)

    def call(*inputs: object, table: str = "gaze.csv") -> int:
        words = [*map(str, inputs), "--model", str(tmp_path / "dted.pt"), "--table", str(tmp_path / table)]
        return call_faze("gaze", *words)

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
    assert [row["reason"] for row in rows] == ["", "", "truncated JPEG"]
    assert [row["lens"] for row in rows] == ["assumed", "assumed", ""]
    assert "a field of view of 60 degrees is assumed" in capsys.readouterr().out


def test_a_calibration_states_the_size_of_its_frames(run, tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "a.png"), picture(1))
    lens = cv2.FileStorage(str(tmp_path / "lens.yaml"), cv2.FILE_STORAGE_WRITE)
    for name, value in {"image_width": 644, "image_height": 484, "distortion_coefficients": np.zeros(5)}.items():
        lens.write(name, value)
    lens.write("camera_matrix", LENS[0])
    lens.release()
    assert run(tmp_path / "a.png", "--lens", tmp_path / "lens.yaml") == 0
    [row] = read_table(tmp_path / "gaze.csv")
    assert "the lens was calibrated with 644 x 484 px, but the frame has 640 x 480: calibrate" in row["reason"]


def test_several_faces_have_numbers(run, tmp_path: Path) -> None:
    images = [picture(1), np.zeros((480, 640, 3), np.uint8), picture(2)]
    write_video(tmp_path / "me.mp4", images)
    assert run(tmp_path / "me.mp4", "--hfov-deg", "60", "--faces", 2) == 0
    rows = read_table(tmp_path / "gaze.csv")
    assert [(row["frame"], row["face_id"]) for row in rows] == [
        ("0", "0"),
        ("0", "1"),
        ("1", ""),
        ("2", "0"),
        ("2", "1"),
    ]
    assert [float(rows[row]["pose_Tz"]) for row in (0, 1, 3, 4)] == pytest.approx([500, 620, 500, 620], abs=0.1)


def test_the_point_of_gaze_is_on_the_screens_plane(run, dted: DTED, tmp_path: Path, capsys) -> None:
    cv2.imwrite(str(tmp_path / "a.png"), picture(1))
    text = "width_mm: 345\nheight_mm: 194\nwidth_px: 1920\nheight_px: 1080\ntop_left_mm: [172.5, 10, {}]\n"
    (tmp_path / "screen.yaml").write_text(text.format(0))
    found = estimator_of(dted, POSES[0], LENS).faces(picture(1), LENS)[0]
    away = found.direction[2] > 0  # this untrained network looks away from the camera
    (tmp_path / "far.yaml").write_text(text.format(1000))
    assert (
        run(tmp_path / "a.png", "--hfov-deg", 60, "--screen", tmp_path / ("far.yaml" if away else "screen.yaml")) == 0
    )
    [row] = read_table(tmp_path / "gaze.csv")
    distance = ((1000 if away else 0) - found.origin_mm[2]) / found.direction[2]
    x_mm, y_mm, _ = found.origin_mm + distance * found.direction
    assert float(row["screen_x_px"]) == pytest.approx((172.5 - x_mm) / 345 * 1920, rel=1e-4)
    assert float(row["screen_y_px"]) == pytest.approx((y_mm - 10) / 194 * 1080, rel=1e-4)
    capsys.readouterr()
    assert (
        run(tmp_path / "a.png", "--hfov-deg", 60, "--screen", tmp_path / ("screen.yaml" if away else "far.yaml")) == 0
    )
    assert "no gaze meets the screen's plane: is the screen behind the face?" in capsys.readouterr().out
    assert read_table(tmp_path / "gaze.csv")[0]["screen_x_px"] == ""


def test_a_manifest_states_the_lenses_of_its_frames(run, tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        cv2.imwrite(str(tmp_path / name), picture(1))
    lines = ["image,person,hfov_deg,target_x_mm,target_y_mm,target_z_mm", "a.png,p,60,0,100,0", "b.png,p,90,0,100,0"]
    (tmp_path / "frames.csv").write_text("\n".join([*lines, "c.png,p,60,0,100,0"]))
    assert run(tmp_path / "frames.csv") == 0
    rows = read_table(tmp_path / "gaze.csv")
    assert [Path(row["source"]).name for row in rows] == ["a.png", "b.png", "c.png"]
    assert {row["lens"] for row in rows[:2]} == {"given"} and "No such file" in rows[2]["reason"]
    assert float(rows[0]["pose_Tz"]) == pytest.approx(500, abs=0.1) and float(rows[1]["pose_Tz"]) < 400


def test_a_camera_is_read_until_ctrl_c(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def frames(index: int) -> Iterator[SourceFrame]:
        for number in range(3):
            yield SourceFrame(Path(f"camera-{index}"), number, number / 10, picture(1))
        raise KeyboardInterrupt

    monkeypatch.setattr(gaze, "open_camera", frames)
    assert run("--camera-index", 7, "--hfov-deg", "60", "--overlay", tmp_path / "me.mp4") == 0
    rows = read_table(tmp_path / "gaze.csv")
    assert [row["source"] for row in rows] == ["camera-7"] * 3 and list(tmp_path.glob("*partial*")) == []
    assert len(list(frames_of(sources_of([tmp_path / "me.mp4"])))) > 1
    (tmp_path / "again.partial.mp4").touch()  # of a killed recording
    for table, video in (("gaze.csv", "new.mp4"), ("new.csv", "again.mp4")):
        assert run("--camera-index", 7, "--overlay", tmp_path / video, table=table) == 1
        assert "left by an earlier recording: rename or remove it" in capsys.readouterr().err


def test_a_persons_calibration_changes_the_gaze_and_belongs_to_one_network(
    run, dted: DTED, tmp_path: Path, capsys
) -> None:
    cv2.imwrite(str(tmp_path / "a.png"), picture(1))
    state = {"offset_rad": torch.tensor([0.1, -0.2], dtype=torch.float64)}
    person = PersonalEstimator("offset", "me", "frames", 1, [0], {}, state, checkpoint=network_hash(dted))
    save_fields(person, tmp_path / "me.pt")
    plain = estimator_of(dted, POSES[0], LENS).faces(picture(1), LENS)[0]
    calibrated = estimator_of(dted, POSES[0], LENS, person=person).faces(picture(1), LENS)[0]
    turned = [pitchyaw_from_vector(-face.rotation @ face.direction) for face in (plain, calibrated)]
    np.testing.assert_allclose(turned[0] - turned[1], [0.1, -0.2], atol=1e-9)
    assert run(tmp_path / "a.png", "--hfov-deg", "60", "--person", tmp_path / "me.pt") == 0
    [row] = read_table(tmp_path / "gaze.csv")
    assert float(row["gaze_x"]) == pytest.approx(calibrated.direction[0], abs=1e-5)
    save_fields(dataclasses.replace(person, checkpoint="0123"), tmp_path / "other.pt")
    assert run(tmp_path / "a.png", "--hfov-deg", "60", "--person", tmp_path / "other.pt") == 1
    assert "other.pt: was made with another network (0123, not" in capsys.readouterr().err
    for damage in ({}, {"offset_rad": torch.zeros(3)}, {"offset_rad": torch.full((2,), torch.nan)}):
        save_fields(dataclasses.replace(person, state=damage), tmp_path / "damaged.pt")
        assert run(tmp_path / "a.png", "--hfov-deg", "60", "--person", tmp_path / "damaged.pt") == 1
        assert "damaged.pt: is damaged: run faze calibrate again" in capsys.readouterr().err


def test_what_cannot_be_used_is_one_sentence(run, tmp_path: Path, capsys) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "sound.mp4").write_bytes(b"\0\0\0\x18ftypmp42" + bytes(200))
    cases = {
        (tmp_path / "none.mp4",): "none.mp4: no such file or folder",
        (tmp_path / "empty",): "empty: contains no .jpg, .jpeg, .png",
        (tmp_path / "sound.mp4",): "sound.mp4: is neither an image nor a video that OpenCV can read",
        (tmp_path / "empty", "--hfov-deg", "5"): "--hfov-deg 5 is not between 20 and 150 degrees",
        (tmp_path / "empty", "--hfov-deg", "60", "--lens", "a.yaml"): "pass only one of --lens, --focal-px and --hf",
        (tmp_path / "empty", "--focal-px", "0"): "--focal-px 0 is not a focal length in px",
        (tmp_path / "none.mp4", "--camera-index", "0"): "pass images, videos or manifests, or --camera-index",
        (): "pass images, videos or manifests, or --camera-index",
        (tmp_path / "empty", "--lens", tmp_path / "a.yaml"): "a.yaml",
    }
    for arguments, sentence in cases.items():
        assert run(*arguments) == 1
        error = capsys.readouterr().err
        assert sentence in error.splitlines()[-1], error
        assert list(tmp_path.glob("gaze*")) == []
    write_video(tmp_path / "me.mp4", [picture(1)])
    assert run(tmp_path / "me.mp4", table="gaze.xlsx") == 1
    assert "gaze.xlsx: the name must end with .csv" in capsys.readouterr().err


def test_outputs_never_replace_inputs_or_each_other(run, tmp_path: Path, capsys) -> None:
    """The rows of frames.csv are written to frames.partial.csv first."""
    line = "image,person,hfov_deg,target_x_mm,target_y_mm,target_z_mm\na.png,me,60,100,100,0\n"
    for name in ("frames.csv", "frames.partial.csv"):
        (tmp_path / name).write_text(line)
    for name in ("me.mp4", "me.partial.mp4"):
        write_video(tmp_path / name, [picture(1)])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for source, table, video in (
        ("me.mp4", "gaze.csv", "me.mp4"),
        ("me.partial.mp4", "gaze.csv", "me.mp4"),
        ("frames.csv", "frames.csv", None),
        ("frames.partial.csv", "frames.csv", None),
    ):
        more = ("--overlay", tmp_path / video) if video else ()
        assert run(tmp_path / source, *more, table=table) == 1
        assert "would be replaced by an output; choose another name" in capsys.readouterr().err
    assert run(tmp_path / "me.mp4", "--overlay", tmp_path) == 1 and "must end with .mp4" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in before} == before


def test_a_truncated_video_keeps_the_frames_that_can_be_decoded(tmp_path: Path) -> None:
    write_video(tmp_path / "me.avi", [picture(seed) for seed in range(8)])
    whole = (tmp_path / "me.avi").read_bytes()
    (tmp_path / "cut.avi").write_bytes(whole[: len(whole) * 2 // 3])
    numbers = [frame.number for frame in frames_of(sources_of([tmp_path / "cut.avi"]))]
    assert 1 <= len(numbers) < 8 and numbers == list(range(len(numbers)))


def test_times_always_increase(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A video without a container has no times, and those of joined videos restart."""
    stated = [0.0, 0.0, 0.0, 500.0, 540.0, 0.0, 40.0]

    def capture(path: str, backend: int) -> SimpleNamespace:
        images, times = iter([picture(1)] * len(stated)), iter(stated)
        known = {cv2.CAP_PROP_FPS: 25.0, cv2.CAP_PROP_FRAME_COUNT: len(stated)}

        def read() -> tuple[bool, NDArray | None]:
            image = next(images, None)
            return image is not None, image

        def get(key: int) -> float:
            return next(times) if key == cv2.CAP_PROP_POS_MSEC else known.get(key, 640)

        return SimpleNamespace(read=read, get=get, isOpened=lambda: True, release=lambda: None)

    (tmp_path / "raw.h264").touch()
    monkeypatch.setattr(cv2, "VideoCapture", capture)
    times = [frame.time_s for frame in frames_of(sources_of([tmp_path / "raw.h264"]))]
    np.testing.assert_allclose(times, [0, 0.04, 0.08, 0.58, 0.62, 0.66, 0.70])


def test_faces_keep_their_numbers_when_their_order_changes(dted: DTED) -> None:
    """The nearest pairs are matched first, and a face that jumps or was away is another one."""
    face = estimator_of(dted, POSES[0], LENS).faces(picture(1), LENS)[0]

    def at(*places: float) -> list:
        return [dataclasses.replace(face, origin_mm=np.array([x, 0.0, 500.0])) for x in places]

    tracks = Tracks()

    def numbers(time_s: float, *found: object) -> list[int | None]:
        return tracks.follow(found, time_s)

    assert numbers(0.0, *at(0, 140)) == [0, 1]
    assert numbers(0.1, *at(60, 0)) == [1, 0]
    assert numbers(0.2, "both eyes are closed", *at(10)) == [None, 0]
    assert numbers(0.3, *at(400, 70)) == [2, 1]
    assert numbers(2.0, *at(400)) == [3]


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
    assert run(tmp_path / "me.mp4", "--hfov-deg", "60") == 130
    assert len(read_table(tmp_path / "gaze.partial.csv")) == 2 and not (tmp_path / "gaze.csv").exists()


def test_overlay_shows_the_arrow_the_strip_and_reasons_at_the_times_of_the_source(run, tmp_path: Path) -> None:
    write_video(tmp_path / "me.mp4", [picture(1), np.zeros((480, 640, 3), np.uint8), picture(1)])
    assert run(tmp_path / "me.mp4", "--hfov-deg", "60", "--overlay", tmp_path / "out.mp4") == 0
    source, drawn = (list(frames_of(sources_of([tmp_path / name]))) for name in ("me.mp4", "out.mp4"))
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
