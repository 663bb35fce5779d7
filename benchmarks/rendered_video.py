"""Errors of `faze gaze` on videos of rendered people, whose gaze is known, separated by step.

    python benchmarks/rendered_video.py [--landmarker face_landmarker.task] [--people 6] [--frames 60] [--model dted.pt]

For each person of the test set of config/config.yaml, phone and laptop users in turn, the frames of the first one's
size are encoded as an H.264 video and read again. The error is the mean angle between the estimated and the labelled
gaze, in degrees:

1. frames without compression, head poses as annotated;
2. the frames of the video, head poses as annotated;
3. the frames of the video, exact landmarks: the points of the face model projected in the annotated pose;
4. the frames of the video, landmarks of MediaPipe (with --landmarker).

Step 3 equals step 2, since landmarks without errors give the annotated pose.
"""

import argparse
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import cv2
import imageio_ffmpeg
import numpy as np
from numpy.typing import NDArray

from faze.base.geometry import angular_error
from faze.config.check import build
from faze.config.parameters import Synthetic
from faze.config.shipped import SHIPPED
from faze.config.validation import read_config
from faze.data.landmarks import NO_FACE
from faze.data.landmarks.pose import FACE_MODEL_MM, estimate_pose
from faze.data.synthetic.layouts import supplementary
from faze.data.synthetic.people import Role, render_frames, sample_frames
from faze.gaze.estimator import FaceGaze, GazeEstimator
from faze.gaze.sources import frames_of, sources_of

STEPS = ("frames", "video", "video, exact landmarks", "video, MediaPipe")


def write_video(path: Path, images: Sequence[NDArray[np.uint8]]) -> None:
    """Encode RGB frames (H, W, 3) as H.264, as a phone or a webcam does."""
    height, width = images[0].shape[:2]
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", "30", "-i", "-"]
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-loglevel", "error", *raw, "-pix_fmt", "yuv420p", "-crf", "23"]
    subprocess.run([*command, str(path)], input=b"".join(image.tobytes() for image in images), check=True)


def measure_person(role: Role, synthetic: Synthetic, estimator: GazeEstimator) -> dict[str, list[float]]:
    """Return the error of each frame for each step, in degrees; nan if a frame has no usable face."""
    frames = sample_frames(role, synthetic)
    images = list(render_frames(role, frames, synthetic.seed))
    rows = [row for row, image in enumerate(images) if image.shape == images[0].shape]  # phones are also turned
    with tempfile.TemporaryDirectory() as folder:
        write_video(video := Path(folder, "person.mp4"), [images[row] for row in rows])
        decoded = [frame.image for frame in frames_of(sources_of([video]))]
    known = supplementary(frames)
    errors: dict[str, list[float]] = {step: [] for step in STEPS}
    for row, image in zip(rows, decoded, strict=True):
        fx, fy, cx, cy = known.camera_parameters[row]
        camera = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]]), known.distortion_parameters[row]
        pose = known.head_pose[row]
        original = cv2.cvtColor(images[row], cv2.COLOR_RGB2BGR)
        exact = estimate_pose(cv2.projectPoints(FACE_MODEL_MM, pose[:3], pose[3:], *camera)[0].reshape(-1, 2), *camera)
        found = [estimator.at_pose(each, camera, of) for each, of in ((original, pose), (image, pose), (image, exact))]
        found += estimator.faces(image, camera)[:1] or [NO_FACE]
        for step, face in zip(STEPS, found, strict=True):
            errors[step].append(error_deg(face, known.gaze_target_mm[row]))
    return errors


def error_deg(face: FaceGaze | str, target_mm: NDArray[np.float64]) -> float:
    """Return the angle between the estimated gaze and the direction from its origin to the target; nan for a reason."""
    if isinstance(face, str):
        return float("nan")
    toward = target_mm - face.origin_mm
    return float(np.degrees(angular_error(face.direction[None], toward[None] / np.linalg.norm(toward))[0]))


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--landmarker", type=Path)
    parser.add_argument("--people", type=int, default=6)
    parser.add_argument("--frames", type=int, default=60)
    parser.add_argument("--model", default=SHIPPED)
    args = parser.parse_args()
    section = read_config([])["synthetic"]
    synthetic = build(Synthetic, section | {"frames_per_person": args.frames})
    estimator = GazeEstimator.load(args.model, args.landmarker, faces=int(args.landmarker is not None))
    print(f"person: {', '.join(STEPS)} (frames without a usable face)")
    rows = []
    for number in range(args.people):
        role = Role(("mpiifacegaze", "gazecapture")[number % 2], "test", number // 2)
        errors = measure_person(role, synthetic, estimator)
        rows.append([np.nanmean(each) if np.isfinite(each).any() else np.nan for each in errors.values()])
        lost = int(np.isnan(errors[STEPS[3]]).sum())
        print(
            f"{role.person_id}: {', '.join(f'{value:.2f}' for value in rows[-1])} ({lost} of {args.frames})", flush=True
        )
    print(f"mean: {', '.join(f'{value:.2f}' for value in np.mean(rows, axis=0))}")


if __name__ == "__main__":
    main()
