"""`faze gaze`: images and videos of faces -> a table of the gaze in each frame.

    faze gaze me.mp4 --hfov-deg 70 --table gaze.csv --overlay gaze.mp4
    faze gaze --camera-index 0 --screen screen.yaml --table gaze.csv

Each frame is processed like a frame in a manifest: face, landmarks (MediaPipe), head pose, strip, network, calibration.
If neither --lens nor --hfov-deg is given, a field of view is assumed. For a manifest, its own lenses are used instead,
as are its head poses, if any. Its labels are ignored.

The camera frame is OpenCV's: x right, y down, z away from the camera.

| column | content |
|---|---|
| source, frame, timestamp | file; index of the frame in a video or camera stream, from 0; its time in s |
| face_id, success, reason | index of the face in this source, from 0; 1 if it has a gaze, else 0; why it has none |
| gaze_angle_x, gaze_angle_y | angles of the gaze to the right and down in the image, rad, as in OpenFace |
| gaze_pitch_deg, gaze_yaw_deg | pitch (up) and yaw (to the left in the image) in the camera frame |
| gaze_x, gaze_y, gaze_z | gaze direction, a unit vector |
| screen_x_px, screen_y_px | where the gaze meets the screen's plane (--screen), px from the top left corner |
| origin_x_mm, origin_y_mm, origin_z_mm | origin of the gaze, midway between the inner eye corners |
| pose_Tx, pose_Ty, pose_Tz | position of the head, mm: the origin of faze's face model, between the eyes |
| pose_Rx, pose_Ry, pose_Rz | angles of the head about x, y and z, rad: R_x R_y R_z is its rotation |
| expected_error_deg | expected error of the gaze; empty without --person, for networks, and for `offset` with k < 3 |
| eye_opening | distance between the lids divided by the eye's width, of the wider open eye; empty for known poses |

If the person resembles the learner's training people, 95 % of errors are below 2.2 times the expected error, and 68 %
below 1.2 times. With the shipped `bayes`, real people's errors exceed it by 100 % (k = 1) to 40 % (k = 9).

The overlay is the video with the strip, the angles and an arrow for the gaze, or the reason why there is no gaze. An
interrupted run leaves its rows in NAME.partial.csv. Ctrl-C ends a recording from a camera.
"""

import contextlib
from pathlib import Path

import torch

from faze.base.errors import UserError
from faze.base.progress import Progress
from faze.data.readers.screen import read_screen
from faze.evaluation.wording import counted
from faze.gaze.estimator import LANDMARKER, GazeEstimator
from faze.gaze.overlay import draw, open_overlay
from faze.gaze.sources import ASSUMED_HFOV_DEG, camera_frames, frames_of, read_lens, sources_of
from faze.gaze.table import Table
from faze.weights import SHIPPED, UNCALIBRATED


def main(
    inputs: list[Path] = (),
    *,
    camera_index: int | None = None,
    model: Path = Path(SHIPPED),
    person: Path | None = None,
    lens: Path | None = None,
    hfov_deg: float | None = None,
    landmarker: Path = LANDMARKER,
    faces: int = 1,
    screen: Path | None = None,
    table: Path,
    overlay: Path | None = None,
) -> None:
    """Estimate the gaze in every frame, and write the table.

    Args:
        inputs: images, videos, folders of these, or manifests
        camera_index: index of a camera on this machine (from 0), instead of inputs
        model: checkpoint, or a network of another project (docs/how-to/gaze.md); default: the shipped network
        person: file that `faze calibrate` wrote for this network
        lens: camera calibration, as a YAML file from OpenCV or ROS, or a .mat file
        hfov_deg: horizontal field of view of the upright frame, instead of --lens
        landmarker: MediaPipe Face Landmarker file (default: face_landmarker.task)
        faces: maximum number of faces per frame
        screen: screen.yaml, to compute the point on the screen that a face looks at
        table: CSV file to write
        overlay: mp4 file to write, for a single video or camera
    """
    torch.set_num_threads(1)  # for one strip at a time, more threads are slower
    if (camera_index is None) != bool(inputs):
        raise UserError("pass images, videos or manifests, or --camera-index, but not both")
    camera, assumed = read_lens(lens, hfov_deg), lens is None and hfov_deg is None
    sources, outputs = sources_of(inputs), [path for path in (table, overlay) if path]
    if overlay and sources and (len(sources) > 1 or not sources[0].is_video):
        raise UserError("--overlay is for a single video or camera")
    if replaced := {path.resolve() for path in outputs} & {source.path.resolve() for source in sources}:
        raise UserError(f"{replaced.pop()} is an input and would be overwritten: choose another output name")
    partial = {path: path.with_name(f"{path.stem}.partial{path.suffix}") for path in outputs}
    for path in outputs:
        path.parent.mkdir(parents=True, exist_ok=True)
    screen_found = read_screen(screen) if screen else None
    frames = frames_of(sources) if sources else camera_frames(camera_index)
    # There is no total, since the number of frames in a video's metadata is only an estimate.
    progress = Progress("gaze" if sources else "gaze (Ctrl-C to stop)", None, "frames")
    with (
        GazeEstimator.load(model, landmarker, person=person, lens=camera, faces=faces) as estimator,
        partial[table].open("w", buffering=1, newline="", encoding="utf-8") as file,
        open_overlay(partial[overlay]) if overlay else contextlib.nullcontext() as show,
    ):
        rows = Table(file, screen_found)
        try:
            for frame, found in estimator.frames(frames):
                rows.add(frame, found)
                if show and frame.image is not None:
                    show(draw(frame.image, camera, found), frame.time_s)
                progress(rows.frames)
        except KeyboardInterrupt:
            if sources or not rows.frames:
                raise
    for path in outputs:
        partial[path].replace(path)
    print(f"{table}: {counted(rows.frames, 'frame')}, {rows.usable} with a gaze")
    if assumed and not all(source.people for source in sources):
        print(f"a field of view of {ASSUMED_HFOV_DEG:g} degrees is assumed; pass --lens or --hfov-deg to set it")
    if person is None and str(model) == SHIPPED and rows.usable:
        print(UNCALIBRATED)
