"""Videos of a rendered person, whose gaze is known, in the ways in which cameras and editors write them."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import cv2
import exact_faces
import numpy as np
import pytest
from fake_mediapipe import project
from numpy.typing import NDArray
from stage_runs import call_faze

from faze.base.geometry import angular_error
from faze.config.validation import read_config
from faze.data.synthetic.layouts import supplementary
from faze.data.synthetic.people import Role, render_frames, sample_frames
from faze.gaze.estimator import GazeEstimator
from faze.gaze.sources import Lens, frames_of, sources_of

TIMES_S = (0, 0.04, 0.16, 0.2, 2.4, 2.44)


@pytest.fixture(scope="module")
def person():
    """Return the frames (H, W, 3) BGR of a person with a small error, their annotation, and the camera."""
    role = Role("mpiifacegaze", "test", 17)
    frames = sample_frames(role, read_config().synthetic.model_copy(update={"frames_per_person": 12}))
    images = [cv2.cvtColor(image, cv2.COLOR_RGB2BGR) for image in render_frames(frames, 1)]
    known = supplementary(frames)
    fx, fy, cx, cy = known["camera_parameters"][0]
    camera = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]]), known["distortion_parameters"][0]
    return images[: len(TIMES_S)], known, camera


def write_video(path: Path, images: Sequence[NDArray], codec: str = "libx264", rotation: float = 0, **about) -> None:
    with av.open(str(path), "w") as file:
        stream = file.add_stream(codec, 25, options={"crf": "12", "x265-params": "log-level=error"})
        stream.height, stream.width = images[0].shape[:2]
        stream.codec_context.sample_aspect_ratio = about.get("pixel_aspect", Fraction(1))
        stream.set_display_rotation(rotation, hflip="mirrored" in about)
        for image, time_s in zip(images, TIMES_S, strict=True):
            frame = av.VideoFrame.from_ndarray(image, format="bgr24")
            frame.pts, frame.time_base = round(25 * time_s), Fraction(1, 25)
            file.mux(stream.encode(frame))
        file.mux(stream.encode())


CASES = {
    "variable rate.mkv": ({}, lambda image: image),
    "other codec.webm": ({"codec": "libvpx-vp9"}, lambda image: image),
    "10 bit.mp4": ({"codec": "libx265"}, lambda image: image),
    "pixels 4 to 3.mp4": ({"pixel_aspect": Fraction(4, 3)}, lambda image: cv2.resize(image, (960, 720))),
    "turned.mov": ({"rotation": 90}, lambda image: cv2.rotate(image, cv2.ROTATE_90_CLOCKWISE)),
    "mirrored.mp4": ({"mirrored": True}, lambda image: cv2.flip(image, 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_gaze_in_a_video_is_that_of_its_frames(name: str, person, tmp_path: Path, monkeypatch) -> None:
    """Only the compression of the video changes the gaze; head poses are those of the annotation."""
    options, distort = CASES[name]
    images, known, camera = person
    write_video(tmp_path / name, [distort(image) for image in images], **options)
    rows = iter(range(len(images)))

    def find(image: NDArray) -> list[NDArray]:
        row = next(rows)
        share = (project(known["head_pose"][row], *camera) + 0.5) / (1280, 720)
        return [share * image.shape[1::-1] - 0.5]

    exact_faces.install(monkeypatch, find)
    moved_deg, errors_deg = [], []
    with GazeEstimator.load(lens=Lens(camera)) as estimator:
        for row, (frame, [face]) in enumerate(estimator.video(tmp_path / name)):
            pose, target_mm = known["head_pose"][row], known["3d_gaze_target"][row]
            assert frame.time_s == pytest.approx(TIMES_S[row], abs=0.002)
            np.testing.assert_allclose(face.head_pose[3:], pose[3:], atol=0.5)
            plain = estimator.at_pose(images[row], camera, pose)
            toward = target_mm - face.origin_mm
            for found, direction in ((moved_deg, plain.direction), (errors_deg, toward / np.linalg.norm(toward))):
                found.append(np.degrees(angular_error(face.direction, direction)))
    assert row == 5 and max(moved_deg) < 1.5 and np.mean(moved_deg) < 0.6 and np.mean(errors_deg) < 6


def test_a_damaged_video_keeps_its_other_frames_and_what_is_no_video_is_refused(person, tmp_path: Path, capsys) -> None:
    write_video(tmp_path / "me.mp4", [cv2.resize(image, (320, 180)) for image in person[0]])
    data = (tmp_path / "me.mp4").read_bytes()
    middle = data.index(b"mdat") + (data.index(b"moov") - data.index(b"mdat")) // 2
    (tmp_path / "damaged.mp4").write_bytes(data[:middle] + 500 * b"\x5a" + data[middle + 500 :])
    frames = list(frames_of(sources_of([tmp_path / "damaged.mp4"])))
    assert frames[0].image is not None and {frame.reason for frame in frames} == {"", "the frame is damaged"}
    cases = {
        "unknown.mp4": (data.replace(b"avc1", b"zzzz"), "ffmpeg -i unknown.mp4 -c:v libx264"),
        "empty.mp4": (b"", "is not a readable video"),
    }
    for name, (content, words) in cases.items():
        (tmp_path / name).write_bytes(content)
        assert call_faze("gaze", tmp_path / name, "--table", tmp_path / "gaze.csv") == 1
        error = capsys.readouterr().err.splitlines()[-1]
        assert name in error and words in error, error
        assert list(tmp_path.glob("gaze*")) == []
