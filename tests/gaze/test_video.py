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
Image = NDArray[np.uint8]


@pytest.fixture(scope="module")
def person():
    """Return the frames (H, W, 3) BGR of a person, and their annotation."""
    role = Role("mpiifacegaze", "test", 2)
    frames = sample_frames(role, read_config().synthetic.model_copy(update={"frames_per_person": 12}))
    images = [cv2.cvtColor(image, cv2.COLOR_RGB2BGR) for image in render_frames(frames, 1)]
    return images[: len(TIMES_S)], supplementary(frames)


def camera_of(known, row: int) -> tuple[NDArray, NDArray]:
    fx, fy, cx, cy = known["camera_parameters"][row]
    return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]]), known["distortion_parameters"][row]


def write_video(
    path: Path,
    images: Sequence[Image],
    codec: str = "libx264",
    times_s: Sequence[float] = TIMES_S,
    pixel_aspect: Fraction = Fraction(1),
    rotation: float | None = None,
    mirrored: bool = False,
) -> None:
    with av.open(str(path), "w") as file:
        stream = file.add_stream(codec, 25, options={"crf": "12", "x265-params": "log-level=error"})
        stream.height, stream.width = images[0].shape[:2]
        stream.codec_context.sample_aspect_ratio = pixel_aspect
        if rotation is not None:
            stream.set_display_rotation(rotation, hflip=mirrored)
        for image, time_s in zip(images, times_s, strict=False):
            frame = av.VideoFrame.from_ndarray(image, format="bgr24")
            frame.pts, frame.time_base = round(25 * time_s), Fraction(1, 25)
            file.mux(stream.encode(frame))
        file.mux(stream.encode())


CASES = {
    "variable rate.mkv": ({}, lambda image: image),
    "other codec.webm": ({"codec": "libvpx-vp9"}, lambda image: image),
    "10 bit.mp4": ({"codec": "libx265"}, lambda image: image),
    "pixels 4 to 3.mp4": ({"pixel_aspect": Fraction(4, 3)}, lambda image: cv2.resize(image, (960, 720))),
    "pixels 3 to 4.mkv": ({"pixel_aspect": Fraction(3, 4)}, lambda image: cv2.resize(image, (1280, 540))),
    "turned.mov": ({"rotation": 90}, lambda image: cv2.rotate(image, cv2.ROTATE_90_CLOCKWISE)),
    "on its head: 100%.mov": ({"rotation": 180}, lambda image: cv2.flip(image, -1)),
    "mirrored.mp4": ({"rotation": 0, "mirrored": True}, lambda image: cv2.flip(image, 1)),
    "oblique.mp4": ({"rotation": 12}, lambda image: image),
}


@pytest.mark.parametrize("name", CASES)
def test_the_gaze_in_a_video_is_that_of_its_frames(name: str, person, tmp_path: Path, monkeypatch) -> None:
    """Only the compression of the video changes the gaze; head poses are those of the annotation."""
    options, distort = CASES[name]
    images, known = person
    write_video(tmp_path / name, [distort(image) for image in images], **options)
    rows = iter(range(len(images)))

    def find(image: Image) -> list[NDArray]:
        row = next(rows)
        share = (project(known["head_pose"][row], *camera_of(known, row)) + 0.5) / (1280, 720)
        return [share * image.shape[1::-1] - 0.5]

    exact_faces.install(monkeypatch, find)
    moved_deg, errors_deg = [], []
    with GazeEstimator.load(lens=Lens(camera_of(known, 0))) as estimator:
        for row, (frame, [face]) in enumerate(estimator.video(tmp_path / name)):
            pose, target_mm = known["head_pose"][row], known["3d_gaze_target"][row]
            assert frame.time_s == pytest.approx(TIMES_S[row], abs=0.002)
            np.testing.assert_allclose(face.head_pose[3:], pose[3:], atol=0.5)
            plain = estimator.at_pose(images[row], camera_of(known, row), pose)
            toward = target_mm - face.origin_mm
            for found, direction in ((moved_deg, plain.direction), (errors_deg, toward / np.linalg.norm(toward))):
                found.append(np.degrees(angular_error(face.direction, direction)))
    assert row == 5 and max(moved_deg) < 1.5 and np.mean(moved_deg) < 0.6 and np.mean(errors_deg) < 4


def test_without_times_the_frames_have_the_stated_rate(person, tmp_path: Path) -> None:
    small = [cv2.resize(image, (320, 180)) for image in person[0]]
    write_video(tmp_path / "raw.h264", small, times_s=np.arange(6) / 25)
    times_s = [frame.time_s for frame in frames_of(sources_of([tmp_path / "raw.h264"]))]
    np.testing.assert_allclose(times_s, np.arange(6) / 25, atol=0.002)


def test_a_damaged_or_truncated_video_keeps_the_other_frames(person, tmp_path: Path) -> None:
    small = [cv2.resize(image, (320, 180)) for image in person[0]]
    write_video(tmp_path / "me.mp4", small)
    data = bytearray((tmp_path / "me.mp4").read_bytes())
    middle = data.index(b"mdat") + (data.index(b"moov") - data.index(b"mdat")) // 2
    data[middle : middle + 500] = 500 * b"\x5a"
    (tmp_path / "damaged.mp4").write_bytes(data)
    frames = list(frames_of(sources_of([tmp_path / "damaged.mp4"])))
    assert frames[0].image is not None and {frame.reason for frame in frames} == {"", "the frame is damaged"}
    write_video(tmp_path / "me.avi", small, "mpeg4")
    data = (tmp_path / "me.avi").read_bytes()
    (tmp_path / "cut.avi").write_bytes(data[: len(data) * 2 // 3])
    assert 1 <= len(list(frames_of(sources_of([tmp_path / "cut.avi"])))) < 6


def test_what_is_no_video_is_refused_with_a_remedy(person, tmp_path: Path, capsys) -> None:
    small = [cv2.resize(person[0][0], (320, 180))]
    write_video(tmp_path / "me.mp4", small)
    data = (tmp_path / "me.mp4").read_bytes()
    (tmp_path / "codec.mp4").write_bytes(data.replace(b"avc1", b"CFHD"))
    (tmp_path / "unknown.mp4").write_bytes(data.replace(b"avc1", b"zzzz"))
    (tmp_path / "half.mp4").write_bytes(data[: len(data) // 2])
    (tmp_path / "empty.mp4").touch()
    with av.open(str(tmp_path / "sound.m4a"), "w") as file:
        stream = file.add_stream("aac", 8000)
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        sound.sample_rate = 8000
        file.mux(stream.encode(sound))
        file.mux(stream.encode())
    cases = {
        "codec.mp4": "contains no video that can be decoded",
        "unknown.mp4": "ffmpeg -i unknown.mp4 -c:v libx264",
        "half.mp4": "is it complete?",
        "empty.mp4": "is not a video that can be read",
        "sound.m4a": "contains no video",
    }
    for name, words in cases.items():
        assert call_faze("gaze", tmp_path / name, "--table", tmp_path / "gaze.csv") == 1
        error = capsys.readouterr().err.splitlines()[-1]
        assert name in error and words in error, error
        assert list(tmp_path.glob("gaze*")) == []
