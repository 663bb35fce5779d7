"""Gaze in camera frames as a command: the chain from exact landmarks, tables, overlays, and refusals."""

import csv
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import cv2
import exact_faces
import numpy as np
import pytest
import torch
from exact_faces import picture
from fake_mediapipe import project
from numpy.typing import NDArray
from stage_runs import call_faze

from faze.base.geometry import pitchyaw_from_vector
from faze.commands import gaze
from faze.config.validation import read_config
from faze.data.landmarks.pose import eye_opening
from faze.data.network_input import to_network
from faze.data.normalization.pose import INNER_EYE_CORNERS_14_MM, normalize_poses
from faze.data.normalization.warp import make_strip
from faze.data.readers.camera import assumed_camera
from faze.data.readers.manifest import POSE
from faze.fewshot.learners import PersonalEstimator, save_fields
from faze.gaze.estimator import FaceGaze, GazeEstimator
from faze.gaze.network import DTEDNetwork
from faze.gaze.sources import SourceFrame, frames_of, sources_of
from faze.model.dted import DTED
from faze.model.weights import network_hash, save_weights

CAMERA = read_config().preprocess.camera()
LENS = assumed_camera(60.0, 640, 480)
DISTORTED = (LENS[0], np.array([-0.2, 0.05, 0.001, -0.002, 0.0]))
POSES = np.array([[0.1, -0.2, 0.05, 20.0, -30.0, 500.0], [-0.2, 0.3, -0.1, -60.0, 20.0, 620.0]])
NUMBERS = ("gaze_x", "gaze_y", "gaze_z", "gaze_angle_x", "gaze_angle_y", "pose_Rx", "pose_Ry", "pose_Rz")
MANIFEST = "image,person,hfov_deg,target_x_mm,target_y_mm,target_z_mm\n"
SCREEN = "width_mm: 345\nheight_mm: 194\nwidth_px: 1920\nheight_px: 1080\ntop_left_mm: [172.5, 10, {}]\n"
SIZED = (
    "image_width: {}\nimage_height: 480\ncamera_matrix: {{data: {}}}\ndistortion_coefficients: {{data: [0, 0, 0, 0]}}\n"
)


@pytest.fixture(scope="module")
def dted() -> DTED:
    return exact_faces.small_network()


def see(dted: DTED, lens: tuple = LENS, pose: NDArray = POSES[0]) -> FaceGaze:
    return GazeEstimator(DTEDNetwork(dted, CAMERA, ""), lambda _: [project(pose, *lens)]).faces(picture(1), lens)[0]


@pytest.mark.parametrize("lens", [LENS, DISTORTED], ids=["no distortion", "distortion"])
@pytest.mark.parametrize("pose", POSES)
def test_gaze_is_that_of_the_strip_that_preprocessing_makes(dted: DTED, lens: tuple, pose: NDArray) -> None:
    """The direction, turned into the normalised camera's frame, is the label that the network estimates."""
    found = see(dted, lens, pose)
    target = np.array([[100.0, -50.0, 20.0]])
    expected = normalize_poses(pose[None, :3], pose[None, 3:], INNER_EYE_CORNERS_14_MM, target)[0][0]
    strip = make_strip(picture(1), lens, expected, CAMERA)
    assert np.abs(found.strip.astype(int) - strip).max() <= 1 and strip.std() > 10
    np.testing.assert_allclose(found.head_pose, pose, atol=1e-3)
    np.testing.assert_allclose(found.origin_mm, expected.gaze_origin_mm, atol=1e-2)
    with torch.inference_mode():
        vector = dted.gaze_vector(dted.encode(to_network(torch.from_numpy(found.strip[None]))).gaze)[0]
    np.testing.assert_allclose(-expected.rotation @ found.direction, vector.numpy(), atol=1e-4)
    pitch, yaw = np.degrees(dataclasses.replace(found, direction=np.array([-0.3, -0.4, -0.86])).pitchyaw)
    assert pitch > 20 and yaw > 15  # up, and to the left in the image


@pytest.fixture
def run(dted: DTED, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run the command with a detector that knows every frame except black ones; return the exit status."""

    def find(image: NDArray[np.uint8]) -> list[NDArray]:
        return [project(pose, *assumed_camera(60.0, *image.shape[1::-1])) for pose in POSES]

    exact_faces.install(monkeypatch, find)
    monkeypatch.chdir(tmp_path)
    save_weights(Path("dted.pt"), dted)
    cv2.imwrite("a.png", picture(1))
    writer = cv2.VideoWriter("me.mp4", cv2.VideoWriter_fourcc(*"mp4v"), 25, (640, 480))
    for image in (picture(1), 0 * picture(1), picture(2)):
        writer.write(image)
    writer.release()
    return lambda *words: call_faze("gaze", *words, "--model", "dted.pt", "--table", "gaze.csv")


def read_table(path: str = "gaze.csv") -> list[dict[str, str]]:
    with Path(path).open() as file:
        return list(csv.DictReader(file))


def test_a_folder_of_images_and_videos_with_an_assumed_lens(run, capsys) -> None:
    Path("c.jpg").write_bytes(cv2.imencode(".jpg", picture(1))[1].tobytes()[:2000])
    assert run(".") == 0
    rows = read_table()
    assert [row["source"] for row in rows] == ["a.png", "c.jpg", "me.mp4", "me.mp4", "me.mp4"]
    assert [row["reason"] for row in rows] == ["", "truncated JPEG", "", "no face found", ""]
    assert [row["timestamp"] for row in rows[2:]] == ["0.000", "0.040", "0.080"] and rows[3]["gaze_x"] == ""
    x, y, z, angle_x, angle_y, *head = (float(rows[0][name]) for name in NUMBERS)
    np.testing.assert_allclose([angle_x, angle_y], [np.arctan2(x, -z), np.arctan2(y, -z)], atol=1e-5)
    about = [cv2.Rodrigues(angle * axis)[0] for angle, axis in zip(head, np.eye(3), strict=True)]
    np.testing.assert_allclose(about[0] @ about[1] @ about[2], cv2.Rodrigues(POSES[0, :3])[0], atol=1e-4)
    assert float(rows[0]["eye_opening"]) == pytest.approx(eye_opening(project(POSES[0], *LENS)), rel=1e-5)
    assert rows[3]["eye_opening"] == "" and {row["expected_error_deg"] for row in rows} == {""}
    out = capsys.readouterr().out
    assert "5 frames, 3 with a gaze\na field of view of 60 degrees is assumed" in out and "without a" not in out


def test_a_manifest_states_the_lenses_and_head_poses_of_its_frames(run, capsys) -> None:
    Path("frames.csv").write_text(f"{MANIFEST}a.png,p,60,0,100,0\n./a.png,p,90,0,100,0\nc.png,p,60,0,100,0\n")
    assert run("frames.csv") == 0
    rows = read_table()
    assert "No such file" in rows[2]["reason"] and capsys.readouterr().out == "gaze.csv: 3 frames, 2 with a gaze\n"
    assert float(rows[0]["pose_Tz"]) == pytest.approx(500, abs=0.1) and float(rows[1]["pose_Tz"]) < 400
    pose = ",".join(f"{value}" for value in POSES[1])
    Path("posed.csv").write_text(f"{MANIFEST.strip()},{','.join(POSE)}\na.png,p,60,0,100,0,{pose}\n")
    assert run("posed.csv") == 0 and float(read_table()[0]["pose_Tz"]) == 620
    assert read_table()[0]["eye_opening"] == ""


def test_without_a_calibration_of_the_shipped_network_errors_and_the_remedy_are_stated(run, capsys) -> None:
    assert call_faze("gaze", "a.png", "--hfov-deg", "60", "--table", "gaze.csv") == 0
    assert "degrees (mean: 7.7); with nine" in capsys.readouterr().out.splitlines()[-1]


def test_a_calibrated_lens_belongs_to_frames_of_its_size(run) -> None:
    for width, reason in ((644, "the lens was calibrated with 644 x 480 px, but the frame has 640 x 480"), (640, "")):
        Path("lens.yaml").write_text(SIZED.format(width, LENS[0].ravel().tolist()))
        assert run("a.png", "--lens", "lens.yaml") == 0 and reason in read_table()[0]["reason"]
    assert float(read_table()[0]["pose_Tz"]) == pytest.approx(500, abs=0.1)


def test_the_point_of_gaze_is_on_the_screens_plane(run, dted: DTED) -> None:
    found = see(dted)
    z_mm = 1000 if found.direction[2] > 0 else 0  # an untrained network may look away
    x_mm, y_mm, _ = found.origin_mm + (z_mm - found.origin_mm[2]) / found.direction[2] * found.direction
    Path("screen.yaml").write_text(SCREEN.format(z_mm))
    assert run("a.png", "--hfov-deg", 60, "--screen", "screen.yaml") == 0
    found_px = [float(read_table()[0][name]) for name in ("screen_x_px", "screen_y_px")]
    assert found_px == pytest.approx([(172.5 - x_mm) / 345 * 1920, (y_mm - 10) / 194 * 1080], rel=1e-4)


def test_a_persons_calibration_changes_the_gaze_and_belongs_to_one_network(run, dted: DTED, capsys) -> None:
    state = {"offset_rad": torch.tensor([0.1, -0.2]).double(), "variance_deg2": torch.tensor([4.0, 4.0])}
    found = []
    for path, network in (("me.pt", network_hash(dted)), ("other.pt", "0123" * 4)):
        save_fields(PersonalEstimator("offset", "me", "frames", 1, [0], state, checkpoint=network), Path(path))
        found.append(run("a.png", "--hfov-deg", "60", "--person", path))
    assert found == [0, 1] and "other.pt: was made with another network" in capsys.readouterr().err
    plain, calibrated = see(dted), np.array([float(read_table()[0][name]) for name in NUMBERS[:3]])
    turned = [pitchyaw_from_vector(-plain.rotation @ direction) for direction in (plain.direction, calibrated)]
    np.testing.assert_allclose(turned[0] - turned[1], [0.1, -0.2], atol=1e-4)
    assert float(read_table()[0]["expected_error_deg"]) == pytest.approx(2 * np.sqrt(np.pi / 2), rel=1e-4)  # Rayleigh


def test_a_camera_is_read_until_ctrl_c_and_its_faces_keep_their_numbers(run, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = iter([POSES, POSES[::-1], POSES[1:], POSES])

    def frames(index: int) -> Iterator[SourceFrame]:
        for number in range(4):
            assert len(read_table("gaze.partial.csv")) == (0, 2, 4, 5)[number]  # what a killed run would leave
            yield SourceFrame(Path(f"camera-{index}"), number, number / 10, picture(1))
        raise KeyboardInterrupt

    exact_faces.install(monkeypatch, lambda image: [project(pose, *LENS) for pose in next(orders)])
    monkeypatch.setattr(gaze, "camera_frames", frames)
    assert run("--camera-index", 7, "--hfov-deg", "60", "--overlay", "out.mp4", "--faces", 2) == 0
    rows = read_table()
    assert {row["source"] for row in rows} == {"camera-7"} and list(Path().glob("*partial*")) == []
    assert [row["face_id"] for row in rows] == ["0", "1", "1", "0", "1", "0", "1"]
    assert len(list(frames_of(sources_of([Path("out.mp4")])))) == 4


def test_overlay_shows_the_arrow_the_strip_and_reasons_at_the_times_of_the_source(run) -> None:
    assert run("me.mp4", "--hfov-deg", "60", "--overlay", "out.mp4", "--faces", 2) == 0
    source, drawn = (list(frames_of(sources_of([Path(name)]))) for name in ("me.mp4", "out.mp4"))
    assert [frame.time_s for frame in drawn] == pytest.approx([frame.time_s for frame in source])
    changed = [np.abs(d.image.astype(int) - s.image).max(2) > 60 for d, s in zip(drawn, source, strict=True)]
    assert changed[0][:48, :192].mean() > 0.2 and changed[1][400:].sum() > 200  # the strip, the reason
    green = (drawn[0].image[:, :, 1].astype(int) - drawn[0].image[:, :, 2] > 90) & changed[0]
    y, x = np.nonzero(green[60:440])
    start = cv2.projectPoints(POSES[0, None, 3:], np.zeros(3), np.zeros(3), *LENS)[0].ravel()
    assert len(x) > 20 and np.hypot(x - start[0], y + 60 - start[1]).min() < 20


REFUSALS = {
    ("empty",): "empty contains no image or video",
    ("a.png", "--hfov-deg", "5"): "--hfov-deg 5 is not between 20 and 150 degrees",
    ("a.png", "--camera-index", "0"): "pass images, videos or manifests, or --camera-index",
    ("a.png", "--overlay", "out.mp4"): "--overlay is for a single video or camera",
    ("me.mp4", "--overlay", "me.mp4"): "me.mp4 is an input and would be overwritten",
}


@pytest.mark.parametrize("words", REFUSALS)
def test_what_cannot_be_used_is_one_sentence(words: tuple[str, ...], run, capsys) -> None:
    Path("empty").mkdir()
    Path("frames.csv").write_text(MANIFEST + "a.png,me,60,100,100,0\n")
    before = {path: path.read_bytes() for path in Path().glob("*.*")}
    assert run(*words) == 1
    assert REFUSALS[words] in capsys.readouterr().err.splitlines()[-1]
    assert {path: path.read_bytes() for path in Path().glob("*.*")} == before
